// SPDX-License-Identifier: Apache-2.0

// A sink that keeps the last events alone: which those are, and that nothing grows with the run.

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "event_sink.hpp"
#include "kept_number.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "timelines.hpp"

using namespace penstock::trace;
using penstock::trace::detail::EventSink;
using penstock::trace::detail::KeptNumber;
using penstock::trace::detail::RangesUnderWay;

namespace {

constexpr Time kSecond = 1'000'000'000;

std::atomic<Time> the_time{0};
Time test_clock() {
  return the_time;
}

/// An event that ends now.
Event call(EventSink& sink, Time duration, const std::string& name = "cudaMalloc",
           std::uint64_t thread = 7) {
  Event event;
  event.kind = Kind::call;
  event.begin = the_time - duration;
  event.end = the_time;
  event.value = static_cast<std::uint64_t>(the_time.load());
  event.name = sink.name(name);
  event.track = sink.thread_track(thread);
  return event;
}

RangesUnderWay none_open() {
  RangesUnderWay none;
  none.moment = the_time;
  return none;
}

Timeline last(EventSink& sink, Time length) {
  return sink.copy(the_time - length, the_time, none_open());
}

/// `count` calls of `step` each, one after the other.
void add_calls(EventSink& sink, int count, Time step) {
  for (int i = 0; i < count; ++i) {
    the_time += step;
    sink.add(call(sink, step));
  }
}

}  // namespace

TEST_CASE("the last events are those that ended within the time, whatever was before", "[trace]") {
  the_time = kSecond;
  EventSink sink(1'000'000, kSecond, &test_clock);
  Time added = 0;
  for (const int count : {10, 500, 12'345, 100'000}) {
    add_calls(sink, count, kSecond / 5000);
    const Timeline timeline = last(sink, kSecond);
    const auto there = static_cast<std::size_t>(std::min<Time>(5000, added += count));
    CHECK(timeline.events.size() == there);
    CHECK(timeline.end == the_time);
    CHECK(timeline.dropped == 0);
    for (std::size_t i = 1; i < timeline.events.size(); ++i)
      REQUIRE(timeline.events[i].begin == timeline.events[i - 1].end);
    CHECK(timeline.events.back().end == the_time);
    CHECK(last(sink, kSecond).events.size() == there);  // It is still there.
  }
  const Timeline all = sink.take(the_time - kSecond, the_time);
  CHECK(all.events.size() == 5000);
  CHECK(last(sink, kSecond).events.empty());
}

TEST_CASE("what began before the time is cut to it, and says so", "[trace]") {
  the_time = 20 * kSecond;
  EventSink sink(1000, 2 * kSecond, &test_clock);
  sink.add(call(sink, 10 * kSecond, "long"));
  the_time += kSecond;
  sink.add(call(sink, kSecond / 2, "short"));
  RangesUnderWay open = none_open();
  Event range = call(sink, 15 * kSecond, "open");
  range.kind = Kind::range;
  open.events.push_back(range);
  const Timeline timeline = sink.copy(the_time - 2 * kSecond, the_time, open);
  REQUIRE(timeline.events.size() == 3);
  for (const Event& event : timeline.events) {
    INFO(timeline.name(event));
    CHECK(event.has(cut) == (timeline.name(event) != "short"));
    CHECK(event.begin >= timeline.begin);
  }
  CHECK(timeline.events[0].begin == 19 * kSecond);
}

TEST_CASE("a range is in a copy once, whether it ends before or after it is looked at", "[trace]") {
  the_time = 100;
  EventSink sink(1000, kSecond, &test_clock);
  const auto add_range = [&](const char* name, Time begin, Time end, std::uint64_t thread) {
    Event range = call(sink, 0, name, thread);
    range.kind = Kind::range;
    range.begin = begin;
    range.end = end;
    return range;
  };
  RangesUnderWay open;
  open.moments[1] = 50;  // the first thread was looked at before the second one
  open.moments[2] = 60;
  open.moment = 70;
  open.events.push_back(add_range("a", 10, 50, 1));
  sink.add(add_range("a", 10, 55, 1));      // it has ended meanwhile
  sink.add(add_range("later", 51, 52, 1));  // began after it was looked at
  sink.add(add_range("b", 10, 60, 2));      // ended before
  sink.add(add_range("other", 10, 70, 3));  // a thread that was not there
  sink.add(add_range("other later", 10, 71, 3));
  the_time = 65;
  sink.add(call(sink, 5, "no range", 1));
  const Timeline timeline = sink.copy(0, 70, open);
  std::map<std::string, Time> ends;
  for (const Event& event : timeline.events)
    REQUIRE(ends.emplace(timeline.name(event), event.end).second);
  CHECK(ends == std::map<std::string, Time>{{"a", 50}, {"b", 60}, {"other", 70}, {"no range", 65}});
}

TEST_CASE("of more events than there is room for the latest are kept, all of them", "[trace]") {
  the_time = kSecond;
  constexpr int kRoom = 8 * 512;
  EventSink sink(kRoom, 1000 * kSecond, &test_clock);
  for (int round = 0; round < 50; ++round) {
    add_calls(sink, 1000, 10);
    const Timeline timeline = last(sink, 1000 * kSecond);
    CHECK(timeline.dropped == 0);
    CHECK(timeline.events.size() <= kRoom + 512 + 1);
    if (round > 5) CHECK(timeline.events.size() >= kRoom);
    CHECK(timeline.events.back().end == the_time);
    CHECK(timeline.begin <= timeline.events.front().begin);
    for (std::size_t i = 1; i < timeline.events.size(); ++i)
      REQUIRE(timeline.events[i].begin == timeline.events[i - 1].end);
    if (round > 5) CHECK(timeline.events.front().end - timeline.begin <= 10);
  }
}

TEST_CASE("a thread's old events make room for another's", "[trace]") {
  the_time = kSecond;
  EventSink sink(2 * 512, 1000 * kSecond, &test_clock);
  std::thread([&] { add_calls(sink, 2000, 10); }).join();
  std::thread([&] { add_calls(sink, 2000, 10); }).join();
  const Timeline timeline = last(sink, 1000 * kSecond);
  CHECK(timeline.events.size() >= 1024);
  CHECK(timeline.events.back().end == the_time);
  for (std::size_t i = 1; i < timeline.events.size(); ++i)
    REQUIRE(timeline.events[i].begin == timeline.events[i - 1].end);
}

TEST_CASE("names and tracks of the last events are right, those of others are gone", "[trace]") {
  the_time = kSecond;
  EventSink sink(100'000, kSecond, &test_clock);
  KeptNumber kept;
  sink.name_thread(1, "first");
  constexpr std::uint64_t kOthers = std::uint64_t{1} << 40;  // no thread of this process
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    the_time += kSecond / 1000;
    Event event = call(sink, 100, "request " + std::to_string(i), i % 10 == 0 ? 1 : kOthers + i);
    event.domain = kept.get(sink, [&] { return sink.name("domain"); });
    event.value = i;
    sink.add(event);
    if (i % 977 != 0) continue;
    const Timeline timeline = last(sink, kSecond);
    CHECK(timeline.names.size() == timeline.events.size() + 2);  // and "", and the domain
    for (const Event& one : timeline.events) {
      REQUIRE(timeline.name(one) == "request " + std::to_string(one.value));
      REQUIRE(timeline.domain(one) == "domain");
      REQUIRE(timeline.track(one).id == (one.value % 10 == 0 ? 1 : kOthers + one.value));
      REQUIRE(timeline.track(one).name == (one.value % 10 == 0 ? "first" : ""));
    }
  }
}

TEST_CASE("a run of any length takes the memory of the last moments", "[trace]") {
  the_time = kSecond;
  EventSink sink(4 * 512, kSecond, &test_clock);
  std::uint64_t number = 0;
  const auto run_for = [&](int seconds) {
    for (int i = 0; i < seconds * 1000; ++i, ++number) {
      the_time += kSecond / 1000;
      sink.name_thread(number, "thread " + std::to_string(number));
      sink.name_stream(0, number, "stream " + std::to_string(number));
      Event event = call(sink, 100, "request " + std::to_string(number), number);
      sink.add(event);
      event.kind = Kind::copy;
      event.track = sink.stream_track(0, number);
      sink.add(event);
      sink.drop(1);
    }
  };
  run_for(10);
  const std::int64_t before = penstock::test::bytes_of_this_thread();
  run_for(1);
  const std::int64_t a_second = penstock::test::bytes_of_this_thread() - before;
  run_for(40);
  const std::int64_t after = penstock::test::bytes_of_this_thread() - before;
  INFO("after one second " << a_second << ", after 41 " << after);
  CHECK(after < 500'000);
  CHECK(last(sink, kSecond).dropped > 0);
}

TEST_CASE("what a backend dropped is told as long as it may be missing", "[trace]") {
  the_time = kSecond;
  EventSink sink(100'000, kSecond, &test_clock);
  sink.drop(3);
  add_calls(sink, 10, 10);
  CHECK(last(sink, kSecond).dropped == 3);
  CHECK(last(sink, kSecond).dropped == 3);
  for (int i = 0; i < 5000; ++i) {
    the_time += kSecond / 1000;
    sink.add(call(sink, 10, std::to_string(i)));
  }
  CHECK(last(sink, kSecond).dropped == 0);
}

TEST_CASE("a copy that is asked for late begins where nothing was forgotten", "[trace]") {
  the_time = kSecond;
  EventSink sink(100'000, kSecond, &test_clock);
  std::thread([&] { add_calls(sink, 1000, kSecond / 1000); }).join();
  const Time asked = the_time - kSecond;
  std::thread([&] { add_calls(sink, 1100, kSecond / 1000); }).join();  // 512 are too old
  const Timeline timeline = sink.copy(asked, the_time, {});
  REQUIRE_FALSE(timeline.events.empty());
  CHECK(timeline.begin > asked);
  CHECK(timeline.events.front().begin == timeline.begin);
  CHECK(timeline.events.back().end == the_time);
  for (std::size_t i = 1; i < timeline.events.size(); ++i)
    REQUIRE(timeline.events[i].begin == timeline.events[i - 1].end);
}

TEST_CASE("copies are whole while threads come, add and go", "[trace]") {
  constexpr int kThreads = 4, kCopies = 40;
  EventSink sink(100'000, kSecond / 50);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number)
    threads.emplace_back([&sink, &stop, number] {
      std::uint64_t value = 0;
      while (!stop) {
        std::thread([&] {
          for (int i = 0; i < 300; ++i) {
            Event event;
            event.kind = Kind::call;
            event.value = value++;
            event.name = sink.name(std::to_string(event.value));
            event.track = sink.thread_track(static_cast<std::uint64_t>(number) + 1);
            event.begin = detail::now();
            event.end = detail::now();
            sink.add(event);
          }
        }).join();
      }
    });
  for (int copies = 0; copies < kCopies; ++copies) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    RangesUnderWay none;
    none.moment = detail::now();
    const Timeline timeline = sink.copy(none.moment - kSecond / 50, none.moment, none);
    std::map<std::uint64_t, std::uint64_t> next;  // of each thread
    for (const Event& event : timeline.events) {
      REQUIRE(timeline.name(event) == std::to_string(event.value));
      const auto [expected, is_first] = next.try_emplace(timeline.track(event).id, event.value);
      REQUIRE(expected->second == event.value);
      ++expected->second;
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
