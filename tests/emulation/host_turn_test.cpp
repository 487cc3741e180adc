// SPDX-License-Identifier: Apache-2.0

// Host functions of different streams, which CUDA may run one at a time: under some schedules the
// emulation does.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/standard_error.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;
using emulation::Schedule;
using std::chrono::milliseconds;

namespace {

void use(Schedule schedule, std::uint64_t seed, milliseconds report_after = milliseconds(0)) {
  emulation::Options options;
  options.schedule = schedule;
  options.seed = seed;
  options.report_after = report_after;
  emulation::reset(options);
}

/// Two host functions that each wait for the other to begin, until the runtime reports that it
/// waits for its turn.
struct Meeting {
  const CapturedStandardError errors;
  std::atomic<int> begun{0};
  std::atomic<int> met{0};

  static void CUDART_CB attend(void* data) {
    auto& meeting = *static_cast<Meeting*>(data);
    ++meeting.begun;
    const auto in_vain = [&] { return meeting.errors.contains("waits for its turn"); };
    (void)eventually([&] { return meeting.begun == 2 || in_vain(); });
    if (meeting.begun == 2) ++meeting.met;
  }
};

/// How many of the two have met the other.
int meet() {
  Meeting meeting;
  const TestStream first, second;
  REQUIRE_CUDA(cudaLaunchHostFunc(first, &Meeting::attend, &meeting));
  REQUIRE_CUDA(cudaLaunchHostFunc(second, &Meeting::attend, &meeting));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  return meeting.met;
}

}  // namespace

// CUDA may run the host functions of all streams one at a time.
TEST_CASE("host functions of different streams run side by side under eager and odd seeds",
          "[emulation][host-function][looser]") {
  const auto [schedule, seed] = GENERATE(table<Schedule, std::uint64_t>(
      {{Schedule::eager, 1}, {Schedule::eager, 2}, {Schedule::random, 1}, {Schedule::random, 3}}));
  use(schedule, seed);
  CHECK(meet() == 2);
}

TEST_CASE("a host function that waits for another stream's waits in vain under lazy and even seeds",
          "[emulation][host-function][held]") {
  const auto [schedule, seed] = GENERATE(table<Schedule, std::uint64_t>(
      {{Schedule::lazy, 1}, {Schedule::lazy, 2}, {Schedule::random, 2}, {Schedule::random, 4}}));
  use(schedule, seed, milliseconds(20));
  CHECK(meet() == 1);  // the second finds that the first has begun
}

TEST_CASE("host functions that take turns all run", "[emulation][host-function]") {
  use(GENERATE(Schedule::lazy, Schedule::random), 2);
  constexpr int streams = 5, each = 40;
  struct Room {
    std::atomic<int> inside{0}, most{0}, through{0};
  } room;
  const auto enter = [](void* data) {
    auto& it = *static_cast<Room*>(data);
    const int now = ++it.inside;
    if (now > it.most) it.most = now;
    std::this_thread::yield();
    --it.inside;
    ++it.through;
  };
  const std::vector<TestStream> all(streams);
  for (int i = 0; i < each; ++i)
    for (const TestStream& stream : all) REQUIRE_CUDA(cudaLaunchHostFunc(stream, enter, &room));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(room.through == streams * each);
  CHECK(room.most == 1);
}

TEST_CASE("a host function that another waits for in vain is reported, with both streams",
          "[emulation][host-function]") {
  use(Schedule::lazy, 1, milliseconds(50));
  const TestStream unused, first, second;
  const auto number = [](cudaStream_t stream) {
    unsigned long long id = 0;
    REQUIRE_CUDA(cudaStreamGetId(stream, &id));
    return "stream " + std::to_string(id - 1) + " of device 0";
  };
  struct Wait {
    const CapturedStandardError errors;
    bool reported = false;
  } wait;
  // Holds its turn until the report is there: no stream can pass it.
  const auto hold = [](void* data) {
    auto& it = *static_cast<Wait*>(data);
    it.reported = eventually([&] { return it.errors.contains("waits for its turn"); });
  };
  REQUIRE_CUDA(cudaLaunchHostFunc(first, hold, &wait));
  REQUIRE_CUDA(cudaLaunchHostFunc(
      second, [](void*) {}, nullptr));
  REQUIRE_CUDA(cudaStreamSynchronize(first));
  REQUIRE_CUDA(cudaStreamSynchronize(second));
  CHECK(wait.reported);
  CHECK(wait.errors.contains("a host function of " + number(first) + " has run for 50 ms"));
  CHECK(wait.errors.contains("and one of " + number(second) + " waits for its turn"));
}
