// SPDX-License-Identifier: Apache-2.0

// Timeline: what it keeps of batches that have ended, and what it adds up.

#include <penstock/detail/observe/timeline.hpp>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"

using penstock::detail::BatchTimes;
using penstock::detail::DeviceDurations;
using penstock::detail::FinishedBatch;
using penstock::detail::Ticks;
using penstock::detail::Timeline;
using penstock::detail::TimelineSums;
using penstock::test::allocations_of_this_thread;

namespace {

/// Batch `number`, with a step of 100, filled in 10, staged 3 later, and taken 20 later after a
/// wait of 5.
BatchTimes times_of(std::uint64_t number) {
  const auto begin = 1000 + 100 * static_cast<Ticks>(number);
  return {.wanted = begin - 2,
          .opened = begin,
          .filled = begin + 10,
          .staged = begin + 13,
          .asked = begin + 28,
          .taken = begin + 33,
          .released = begin + 50,
          .work = 9};
}

std::vector<FinishedBatch> kept_by(const Timeline& timeline) {
  std::vector<FinishedBatch> batches;
  timeline.copy(batches);
  return batches;
}

std::vector<std::uint64_t> numbers_of(const std::vector<FinishedBatch>& batches) {
  std::vector<std::uint64_t> numbers;
  for (const FinishedBatch& batch : batches) numbers.push_back(batch.number);
  return numbers;
}

}  // namespace

TEST_CASE("a timeline keeps the last batches, at least 256", "[timeline]") {
  const std::size_t batches = GENERATE(1, 64, 65, 100);
  Timeline timeline(batches);
  const std::size_t size = std::max<std::size_t>(256, 4 * batches);
  REQUIRE(timeline.size() == size);
  CHECK(kept_by(timeline).empty());
  for (std::uint64_t i = 0; i < 3 * size + 7; ++i) {
    timeline.add(i, i, times_of(i));
    if (i == size / 2) CHECK(kept_by(timeline).size() == i + 1);
  }
  const std::vector<FinishedBatch> kept = kept_by(timeline);
  REQUIRE(kept.size() == size);
  CHECK(kept.front().number == 2 * size + 7);
  CHECK(kept.back().number == 3 * size + 6);
  CHECK(kept.back().times.filled == times_of(3 * size + 6).filled);
}

TEST_CASE("a timeline hands out batches as they were taken, whatever leases end first",
          "[timeline]") {
  Timeline timeline(4);
  for (const std::uint64_t number : {2, 0, 3, 1, 5, 4})
    timeline.add(number, number, times_of(number));
  CHECK(numbers_of(kept_by(timeline)) == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("the sums of a timeline leave out the first wait, whatever leases end first",
          "[timeline]") {
  const auto order =
      GENERATE(std::vector<std::uint64_t>{0, 1, 2}, std::vector<std::uint64_t>{2, 1, 0},
               std::vector<std::uint64_t>{1, 2, 0});
  Timeline timeline(4);
  for (const std::uint64_t number : order) {
    BatchTimes times = times_of(number);
    times.asked -= 2 * static_cast<Ticks>(number);
    if (number == 0) times.asked = times.taken - 90;
    timeline.add(number, number, times);
  }
  const TimelineSums sums = timeline.sums();
  CHECK(sums.batches == 3);
  CHECK(sums.waiting == 7 + 9);
  CHECK(sums.longest_wait == 9);
  CHECK(sums.consuming >= 200 - 7 - 9);
  CHECK(sums.consuming <= 200);  // The waits of leases that end late come late.
}

TEST_CASE("the longest fill of a timeline is none of a worker's first batches", "[timeline]") {
  Timeline timeline(4);
  BatchTimes times = times_of(0);
  times.filled += 1000;
  times.work |= BatchTimes::kFirstOfWorker;
  timeline.add(0, 0, times);
  CHECK(timeline.sums().longest_fill == 0);
  timeline.add(1, 1, times_of(1));
  CHECK(timeline.sums().longest_fill == 10);
}

TEST_CASE("a clock that jumps back stands still for the sums of a timeline", "[timeline]") {
  Timeline timeline(4);
  for (std::uint64_t i = 0; i < 4; ++i) timeline.add(i, i, times_of(i));
  const TimelineSums before = timeline.sums();
  BatchTimes times = times_of(2);
  times.staged = times.filled - 1'000'000;
  times.taken = times.staged - 1'000'000;
  times.opened = times.filled + 1'000'000;
  timeline.add(4, 4, times);
  const TimelineSums sums = timeline.sums();
  CHECK(sums.longest_fill == before.longest_fill);
  CHECK(sums.waiting >= before.waiting);
  CHECK(sums.consuming >= 0);
  CHECK(sums.last_taken == before.last_taken);
}

TEST_CASE("what was measured of a batch comes with it, whether before its end or after",
          "[timeline]") {
  Timeline timeline(4);
  timeline.measure(0, {.copy = 7});
  timeline.add(0, 40, times_of(0));
  timeline.add(1, 41, times_of(1));
  timeline.measure(0, {.wait = 8});
  timeline.measure(0, {.step = 9});
  timeline.measure(2, {.source = 1, .transform = 2});
  const std::vector<FinishedBatch> batches = kept_by(timeline);
  REQUIRE(batches.size() == 2);
  const DeviceDurations& device = batches[0].device;
  CHECK(std::vector{device.source, device.copy, device.transform, device.wait, device.step} ==
        std::vector<std::int64_t>{-1, 7, -1, 8, 9});
  CHECK(batches[1].device.copy == -1);
  timeline.add(2, 42, times_of(2));
  CHECK(kept_by(timeline).back().device.source == 1);
  CHECK(kept_by(timeline).back().device.transform == 2);
}

TEST_CASE("a batch that is held for very long has no other one's times", "[timeline]") {
  Timeline timeline(1);
  timeline.measure(0, {.copy = 7});
  const std::uint64_t later = 2 * timeline.size();  // It has the place of the first.
  timeline.measure(later, {.copy = 8});
  timeline.measure(0, {.wait = 9});  // Too late.
  timeline.add(later, later, times_of(later));
  timeline.add(0, 0, times_of(0));
  const std::vector<FinishedBatch> batches = kept_by(timeline);
  REQUIRE(numbers_of(batches) == std::vector<std::uint64_t>{0, later});
  CHECK(batches[0].device.copy == -1);
  CHECK(batches[1].device.copy == 8);
  CHECK(batches[1].device.wait == -1);
}

TEST_CASE("a restart of a timeline keeps the sums alone", "[timeline]") {
  Timeline timeline(4);
  for (std::uint64_t i = 0; i < 4; ++i) timeline.add(i, i, times_of(i));
  timeline.restart(6);
  CHECK(kept_by(timeline).empty());
  CHECK(timeline.sums().batches == 4);
  timeline.add(5, 5, times_of(5));  // A lease that has outlived the restart.
  timeline.add(6, 0, times_of(6));
  CHECK(numbers_of(kept_by(timeline)) == std::vector<std::uint64_t>{0});
  CHECK(timeline.sums().batches == 6);
}

TEST_CASE("a timeline allocates nothing after its construction", "[timeline][allocations]") {
  Timeline timeline(4);
  std::vector<FinishedBatch> batches;
  batches.reserve(timeline.size());
  const std::uint64_t before = allocations_of_this_thread();
  for (std::uint64_t i = 0; i < 3 * timeline.size(); ++i) {
    timeline.measure(i, {.copy = 1});
    timeline.add(i, i, times_of(i));
  }
  timeline.restart(3 * timeline.size());
  timeline.copy(batches);
  CHECK(timeline.sums().batches == 3 * timeline.size());
  CHECK(allocations_of_this_thread() == before);
}

TEST_CASE("any thread reads a timeline while others add", "[timeline]") {
  Timeline timeline(4);
  std::atomic<bool> over{false};
  std::thread measurer([&] {
    for (std::uint64_t i = 0; !over.load(std::memory_order_relaxed); ++i)
      timeline.measure(i % 1000, {.copy = 1});
  });
  std::thread reader([&] {
    std::vector<FinishedBatch> batches;
    while (!over.load(std::memory_order_relaxed)) timeline.copy(batches);
  });
  for (std::uint64_t i = 0; i < 1000; ++i) timeline.add(i, i, times_of(i));
  over.store(true, std::memory_order_relaxed);
  measurer.join();
  reader.join();
  CHECK(timeline.sums().batches == 1000);
}
