// SPDX-License-Identifier: Apache-2.0

// Session::recent over the emulated runtime, under every schedule: the last moments of a program,
// which goes on.

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <penstock/penstock.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/trace/session.hpp>
#include <sstream>
#include <thread>
#include <tuple>

#include "nvtx_attributes.hpp"
#include "ranges.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/thrown.hpp"
#include "timelines.hpp"

using namespace penstock::trace;
using namespace penstock::test;
using namespace std::chrono_literals;

namespace {

/// Device memory, and steps that fill as many bytes of it as their number says.
struct Stepper {
  Stepper() { REQUIRE_CUDA(cudaMalloc(&device, 1 << 20)); }
  ~Stepper() { cudaFree(device); }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  void steps(std::uint64_t count) {
    for (const std::uint64_t end = number + count; number < end; ++number) {
      push_step(number);
      cudaMemsetAsync(device, 0, number + 1, stream);
      cudaStreamSynchronize(stream);
      nvtxRangePop();
    }
  }

  void* device = nullptr;
  TestStream stream;
  std::uint64_t number = 0;
};

std::vector<std::uint64_t> values(const Timeline& timeline, Kind kind) {
  std::vector<std::uint64_t> found;
  for (const Event& event : events_of(timeline, kind)) found.push_back(event.value);
  return found;
}

std::vector<std::uint64_t> numbers(std::uint64_t begin, std::uint64_t end) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t number = begin; number < end; ++number) all.push_back(number);
  return all;
}

/// What an event is in every timeline of the same recording.
using Identity = std::tuple<Kind, Track::Kind, std::uint64_t, Time, std::string, std::string,
                            std::uint64_t, std::uint32_t>;

Identity identity_of(const Timeline& timeline, const Event& event) {
  const Track& track = timeline.track(event);
  return {event.kind,  track.kind,           track.id,
          event.begin, timeline.name(event), timeline.domain(event),
          event.value, event.correlation};
}

std::map<Identity, Time> ends_of(const Timeline& timeline) {
  std::map<Identity, Time> ends;
  for (const Event& event : timeline.events)
    if (!ends.emplace(identity_of(timeline, event), event.end).second)
      FAIL("twice: " << timeline.name(event));
  return ends;
}

/// All of its events are in the whole recording, but that ranges under way are cut; and of what
/// ended on a track before the last one that it has, nothing is missing.
void check_is_of(const Timeline& recent, const Timeline& whole) {
  using Place = std::tuple<Kind, Track::Kind, std::uint64_t>;
  const auto place_of = [](const Identity& what) {
    return Place{std::get<0>(what), std::get<1>(what), std::get<2>(what)};
  };
  const std::map<Identity, Time> ends = ends_of(recent), all = ends_of(whole);
  std::map<Place, Time> last;
  for (const auto& [what, end] : ends) {
    const auto found = all.find(what);
    REQUIRE(found != all.end());
    if (found->second == end)
      last[place_of(what)] = std::max(last[place_of(what)], end);
    else if (std::get<0>(what) != Kind::range)  // It ended while the copy was made.
      REQUIRE((end == recent.end && found->second > end));
    else
      REQUIRE(found->second > end);
  }
  for (const auto& [what, end] : all)
    if (last.contains(place_of(what)) && end <= last[place_of(what)] && !ends.contains(what))
      FAIL("missing: " << std::get<4>(what));
}

}  // namespace

TEST_CASE("Session: the last moments again and again, and recording goes on", "[trace]") {
  Stepper stepper;
  Session session({.last = 1h});
  for (int round = 1; round <= 3; ++round) {
    stepper.steps(10);
    const Timeline timeline = session.recent();
    CHECK(values(timeline, Kind::range) == numbers(0, stepper.number));
    CHECK(values(timeline, Kind::fill) == numbers(1, stepper.number + 1));
    CHECK(events_of(timeline, Kind::call).size() == 2 * stepper.number);
    CHECK_THAT(timeline.origin.excerpt, Mentions("since when it is recorded"));
    CHECK(timeline.origin.emulated);
    CHECK(timeline.origin.device == "penstock emulated device");
    std::ostringstream report;
    report << Report(timeline);
    CHECK_THAT(report.str(), Mentions("EXCERPT: the last "));
  }
  CHECK(values(session.stop(), Kind::range) == numbers(0, 30));
}

TEST_CASE("Session: what is long past is not in the last moments", "[trace]") {
  constexpr auto kLast = 400ms;  // Longer than a few calls take on a busy machine.
  Stepper stepper;
  Session session({.last = kLast});
  stepper.steps(10);
  std::this_thread::sleep_for(kLast + 10ms);
  nvtxRangePushA("around");
  const auto begin = stepper.number;
  stepper.steps(5);
  const Timeline timeline = session.recent();
  CHECK(timeline.end - timeline.begin == std::chrono::nanoseconds(kLast).count());
  const auto found = values(timeline, Kind::fill);
  REQUIRE_FALSE(found.empty());
  CHECK(found.front() > begin);
  std::this_thread::sleep_for(kLast + 10ms);
  stepper.steps(1);
  const Timeline end = session.stop();
  nvtxRangePop();
  CHECK(values(end, Kind::fill) == numbers(stepper.number, stepper.number + 1));
  const auto around = events_named(end, "around");
  REQUIRE(around.size() == 1);
  CHECK(around[0].has(cut));
  CHECK(around[0].begin == end.begin);
  CHECK_THAT(end.origin.excerpt, Mentions("began before and"));
}

TEST_CASE("Session: the last moments have a lane's range once, open or ended", "[trace]") {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("penstock");
  const nvtxEventAttributes_t named = attributes("GET /a");
  Session session({.last = 1h});
  const nvtxRangeId_t request = nvtxDomainRangeStartEx(domain, &named);
  const auto lanes = [&] {
    std::vector<std::uint64_t> found;
    const Timeline timeline = session.recent();
    for (const Event& event : events_named(timeline, "GET /a")) {
      CHECK(timeline.track(event).kind == Track::Kind::lane);
      found.push_back(timeline.track(event).id);
    }
    return found;
  };
  CHECK(lanes() == std::vector<std::uint64_t>{0});
  nvtxDomainRangeEnd(domain, request);
  CHECK(lanes() == std::vector<std::uint64_t>{0});
}

TEST_CASE("Session: max_events makes the last moments shorter, and that is told", "[trace]") {
  Stepper stepper;
  Session session({.max_events = 2048, .last = 1h});
  stepper.steps(2000);
  const Timeline timeline = session.recent();
  CHECK(timeline.dropped == 0);
  CHECK(timeline.events.size() < 2048 + 3 * 512);
  CHECK_THAT(timeline.origin.excerpt, Mentions("max_events leaves no room for more"));
  const auto found = values(timeline, Kind::range);
  CHECK(found == numbers(found.front(), 2000));
}

TEST_CASE("Session: the last moments are what the whole recording has of them", "[trace]") {
  constexpr int kThreads = 3, kCopies = 10;
  std::atomic<bool> stop{false};
  std::atomic<int> working{0};
  Session session({.last = 1h});
  std::array<Stepper, kThreads> steppers;  // Catch2 checks them, and knows no threads.
  std::vector<std::thread> threads;
  for (Stepper& stepper : steppers)
    threads.emplace_back([&] {
      for (bool first = true; !stop; first = false) {
        nvtxRangePushA("outer");
        const nvtxRangeId_t started = nvtxRangeStartA("started");
        stepper.steps(2);
        nvtxRangePop();
        nvtxRangeEnd(started);
        if (first) ++working;
        std::this_thread::sleep_for(300us);
      }
    });
  while (working < kThreads) std::this_thread::yield();
  std::vector<Timeline> recent;
  for (int i = 0; i < kCopies; ++i) {
    std::this_thread::sleep_for(1ms);
    recent.push_back(session.recent());
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const Timeline whole = session.stop();
  for (const Timeline& timeline : recent) check_is_of(timeline, whole);
}

TEST_CASE("Session: the last moments of capture ranges", "[trace]") {
  Stepper stepper;
  Session session({.capture_range = true, .last = 1h});
  CHECK(session.recent().events.empty());
  stepper.steps(3);
  REQUIRE_CUDA(cudaProfilerStart());
  stepper.steps(3);
  REQUIRE_CUDA(cudaProfilerStop());
  stepper.steps(3);
  CHECK(values(session.recent(), Kind::fill) == numbers(4, 7));
  REQUIRE_CUDA(cudaProfilerStart());
  stepper.steps(3);
  CHECK(values(session.recent(), Kind::range) == std::vector<std::uint64_t>{3, 4, 5, 9, 10, 11});
}

TEST_CASE("Session: no last moments where they are not kept", "[trace]") {
  {
    Session session;
    CHECK_THAT(thrown<std::logic_error>([&] { session.recent(); }),
               Mentions("SessionOptions::last"));
  }
  Session session({.last = 1s});
  session.stop();
  CHECK_THAT(thrown<std::logic_error>([&] { session.recent(); }), Mentions("stopped before"));
}

TEST_CASE("Session: a stall is told as it is about to be thrown", "[trace]") {
  static std::vector<std::size_t> open;  // ranges at each stall, with its own
  open.clear();
  Session session({.last = 1h});
  detail::call_at_stalls(+[] { open.push_back(detail::open_ranges().events.size()); });
  {
    const penstock::ScopedRange other(penstock::markers::next, 0);
    const penstock::ScopedRange stall(penstock::markers::stall, 0);
  }
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("somebody");
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = nvtxDomainRegisterStringA(domain, "stall");
  nvtxDomainRangePushEx(domain, &attributes);
  nvtxDomainRangePop(domain);
  detail::call_at_stalls(nullptr);
  CHECK(open == std::vector<std::size_t>{2});
}

TEST_CASE("NVTX: ranges that never end do not pile up", "[trace]") {
  constexpr int kMany = 50'000;
  Session session({.last = 1h});
  std::thread([] {
    for (int i = 0; i < kMany; ++i) nvtxRangePushA("push");
    std::vector<nvtxRangeId_t> started;
    for (int i = 0; i < kMany; ++i) started.push_back(nvtxRangeStartA("start"));
    nvtxRangePushA("last");
    CHECK(nvtxRangePop() >= 0);
    CHECK(nvtxRangePop() < 1 << 14);
    for (const nvtxRangeId_t range : started) nvtxRangeEnd(range);
  }).join();
  const Timeline timeline = session.stop();
  CHECK(events_named(timeline, "last").size() == 1);
  CHECK(events_named(timeline, "push").size() <= 1 << 14);
  CHECK(events_named(timeline, "start").size() <= 1 << 14);
  CHECK(events_named(timeline, "start").size() > 1000);
}
