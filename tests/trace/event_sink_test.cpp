// SPDX-License-Identifier: Apache-2.0

#include "event_sink.hpp"

#include <algorithm>
#include <thread>
#include <vector>

#include "memory_levels.hpp"
#include "support/catch.hpp"
#include "timelines.hpp"

using namespace penstock::trace;
using penstock::trace::detail::EventSink;
using penstock::trace::detail::MemoryLevels;

namespace {

Event call(EventSink& sink, Time begin, Time end, const char* name = "cudaMalloc") {
  Event event;
  event.kind = Kind::call;
  event.begin = begin;
  event.end = end;
  event.name = sink.name(name);
  event.track = sink.thread_track(7);
  return event;
}

}  // namespace

TEST_CASE("EventSink: a name is one number, and the empty one is 0", "[trace]") {
  EventSink sink(10);
  CHECK(sink.name("") == 0);
  const auto copy = sink.name("copy");
  CHECK(sink.name("fill") != copy);
  CHECK(sink.name(std::string("co") + "py") == copy);
  const Timeline timeline = sink.take(0, 1);
  CHECK(timeline.names == std::vector<std::string>{"", "copy", "fill"});
}

TEST_CASE("EventSink: streams come before threads, in order, with their names", "[trace]") {
  EventSink sink(10);
  sink.name_thread(4711, "loader");
  Event event = call(sink, 1, 2);
  sink.add(event);
  sink.thread_track(9);  // never has an event, nor a name
  event.kind = Kind::copy;
  for (const auto& [device, stream] : {std::pair{1, 0}, {0, 13}, {0, 7}}) {
    event.track = sink.stream_track(device, static_cast<std::uint64_t>(stream));
    event.value = static_cast<std::uint64_t>(100 * device + stream);
    sink.add(event);
  }
  sink.name_stream(0, 13, "copies");
  sink.name_stream(0, 13, "uploads");  // the last name counts
  const Timeline timeline = sink.take(0, 10);

  std::vector<std::string> titles;
  for (const Track& track : timeline.tracks) titles.push_back(title(track));
  CHECK(titles == std::vector<std::string>{"device 0, stream 7", "uploads", "device 1, stream 0",
                                           "thread 7", "loader"});
  for (const Event& copy : penstock::test::events_of(timeline, Kind::copy)) {
    const Track& track = timeline.track(copy);
    CHECK(copy.value == static_cast<std::uint64_t>(100 * track.device) + track.id);
  }
}

TEST_CASE("EventSink: keeps the first events up to its bound and counts the others", "[trace]") {
  for (const std::size_t bound : {0UL, 1UL, 511UL, 512UL, 513UL, 2000UL}) {
    EventSink sink(bound);
    for (Time i = 0; i < 1500; ++i) sink.add(call(sink, i, i + 1));
    sink.drop(3);
    const Timeline timeline = sink.take(0, 5000);
    CHECK(timeline.events.size() == std::min<std::size_t>(bound, 1500));
    CHECK(timeline.dropped == 1500 - timeline.events.size() + 3);
    for (std::size_t i = 0; i < timeline.events.size(); ++i)
      REQUIRE(timeline.events[i].begin == static_cast<Time>(i));
  }
}

TEST_CASE("EventSink: names of events that are dropped take no memory", "[trace]") {
  EventSink sink(2);
  for (int i = 0; i < 1000; ++i) sink.add(call(sink, i, i + 1, std::to_string(i).c_str()));
  const Timeline timeline = sink.take(0, 5000);
  CHECK(timeline.names == std::vector<std::string>{"", "0", "1"});
  CHECK(timeline.dropped == 998);
}

TEST_CASE("EventSink: events are cut to the time of recording or left out", "[trace]") {
  EventSink sink(10);
  for (const auto& [begin, end] :
       {std::pair<Time, Time>{0, 9}, {0, 15}, {12, 12}, {11, 30}, {0, 30}, {21, 30}})
    sink.add(call(sink, begin, end));
  const Timeline timeline = sink.take(10, 20);
  std::vector<std::pair<Time, Time>> times;
  for (const Event& event : timeline.events) times.emplace_back(event.begin, event.end);
  CHECK(times == std::vector<std::pair<Time, Time>>{{10, 20}, {10, 15}, {11, 20}, {12, 12}});
  CHECK(timeline.begin == 10);
  CHECK(timeline.end == 20);
}

TEST_CASE("EventSink: memory's levels are in order, and cut to the time of recording", "[trace]") {
  EventSink sink(100);
  sink.hold_memory(0, 50, 10);
  sink.hold_memory(0, 300, 30);  // in no order
  sink.hold_memory(0, 80, 20);
  sink.hold_memory(0, 200, 20);  // no change
  sink.hold_memory(1, 150, 5);
  sink.hold_memory(0, 900, 90);  // behind the end
  const Timeline timeline = sink.take(100, 500);
  REQUIRE(timeline.memory.size() == 3);
  CHECK(timeline.memory[0].begin == 100);  // what was held when it began
  CHECK(timeline.memory[0].bytes == 20);
  CHECK(timeline.memory[1].device == 1);
  CHECK(timeline.memory[2].begin == 300);
  CHECK(timeline.memory[2].bytes == 30);
  CHECK(sink.take(100, 500).memory.empty());
}

TEST_CASE("MemoryLevels: of too many the peaks and the last are kept", "[trace]") {
  std::vector<MemoryLevel> many;
  for (int i = 0; i < 1000; ++i)
    many.push_back({i, i == 357 ? 99'999U : static_cast<std::uint64_t>(i % 7), i % 2});
  const std::vector<MemoryLevel> few = MemoryLevels::thinned(many, 64);
  CHECK(few.size() <= 64);
  CHECK(few.size() >= 16);
  CHECK(few.back().begin == 999);
  CHECK(few.back().bytes == 999 % 7);
  std::uint64_t peak = 0;
  for (std::size_t i = 0; i < few.size(); ++i) {
    if (few[i].device == 1) peak = std::max(peak, few[i].bytes);
    if (i > 0) CHECK(few[i].begin >= few[i - 1].begin);
  }
  CHECK(peak == 99'999);
  MemoryLevels levels;
  for (std::size_t i = 0; i < 3 * MemoryLevels::kMost; ++i)
    levels.add({static_cast<Time>(i), i % 1000, 0});
  CHECK(levels.within(0, 1'000'000'000).size() <= MemoryLevels::kMost);
}

TEST_CASE("EventSink: is empty after it was taken, and its numbers stay valid", "[trace]") {
  EventSink sink(2);
  const Event event = call(sink, 1, 2);
  for (int i = 0; i < 3; ++i) sink.add(event);
  CHECK(sink.take(0, 10).dropped == 1);
  sink.add(event);
  const Timeline again = sink.take(0, 10);
  CHECK(again.dropped == 0);
  REQUIRE(again.events.size() == 1);
  CHECK(again.name(again.events[0]) == "cudaMalloc");
}

TEST_CASE("EventSink: threads add at the same time, and none of it is lost", "[trace]") {
  constexpr int kThreads = 4;
  constexpr Time kEach = 2000;
  EventSink sink(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number)
    threads.emplace_back([&sink, number] {
      Event event = call(sink, 0, 0, std::to_string(number).c_str());
      event.track = sink.thread_track(static_cast<std::uint64_t>(number));
      for (event.begin = 0; event.begin < kEach; ++event.begin) {
        event.end = event.begin + 1;
        sink.add(event);
      }
    });
  for (std::thread& thread : threads) thread.join();

  const Timeline timeline = sink.take(0, kEach);
  CHECK(timeline.dropped == 0);
  CHECK(timeline.tracks.size() == kThreads);
  for (int number = 0; number < kThreads; ++number) {
    const auto events = penstock::test::events_named(timeline, std::to_string(number));
    REQUIRE(events.size() == kEach);
    for (std::size_t i = 0; i < events.size(); ++i) {
      REQUIRE(events[i].begin == static_cast<Time>(i));
      REQUIRE(timeline.track(events[i]).id == static_cast<std::uint64_t>(number));
    }
  }
}

TEST_CASE("EventSink: two of them, used in turns by one thread, share nothing", "[trace]") {
  EventSink a(10);
  {
    EventSink b(10);
    a.add(call(a, 1, 2));
    b.add(call(b, 3, 4));
    a.add(call(a, 5, 6));
    CHECK(b.take(0, 10).events.size() == 1);
  }
  EventSink c(10);  // perhaps where b was
  c.add(call(c, 7, 8));
  CHECK(c.take(0, 10).events.size() == 1);
  CHECK(a.take(0, 10).events.size() == 2);
}
