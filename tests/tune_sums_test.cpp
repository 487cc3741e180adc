// SPDX-License-Identifier: Apache-2.0

// TuneSums, TakeTimes: what a Tuner is told, as rates.

#include <penstock/detail/observe/tune_sums.hpp>

#include <chrono>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using penstock::detail::TakeTimes;
using penstock::detail::TuneCounts;
using penstock::detail::TuneSums;

namespace {

/// A batch of each: 10 ms in all, of which 6 wait.
TuneCounts one_batch() {
  return {.delivered = 1,
          .consuming = 4ms,
          .waiting = 6ms,
          .filled = 1,
          .filling = 8ms,
          .workers_waiting = 4ms,
          .cpu = 2ms};
}

}  // namespace

TEST_CASE("sums of some batches are rates", "[tune_sums]") {
  const TuneSums sums(TuneCounts{}, one_batch());
  CHECK(sums.knows_source());
  CHECK(sums.source() == 8e6);
  CHECK(sums.cpu() == 2e6);
  CHECK(sums.period() == 10e6);
  CHECK(sums.consumer() == 4e6);
  CHECK(sums.starved() == Approx(0.6));
  CHECK(sums.demand() == Approx(0.8));
  CHECK(sums.idle(2) == Approx(0.2));
}

TEST_CASE("what is not known of some batches does no harm", "[tune_sums]") {
  const TuneSums nothing{TuneCounts{}, TuneCounts{}};
  CHECK(!nothing.knows_source());
  CHECK(nothing.source() == 0);
  CHECK(nothing.cpu() == 0);
  CHECK(nothing.idle(1) == 0);
  CHECK(nothing.consumer() == 0);
  CHECK(nothing.device_idle() == 1);
}

TEST_CASE("timed batches tell the consumer's own time, its thread only a part of it",
          "[tune_sums]") {
  TuneCounts counts = one_batch();
  counts.timed = 2;
  counts.timed_consuming = 14ms;
  CHECK(TuneSums(TuneCounts{}, counts).consumer() == 7e6);
  counts.timed_consuming = 40ms;  // it cannot be more than there is
  CHECK(TuneSums(TuneCounts{}, counts).consumer() == 10e6);
}

TEST_CASE("the copy stream is idle for a part of its time", "[tune_sums]") {
  TuneCounts counts = one_batch();
  counts.device_busy = 3ms;
  counts.device_idle = 1ms;
  CHECK(TuneSums(TuneCounts{}, counts).device_idle() == Approx(0.25));
}

TEST_CASE("earlier batches count less", "[tune_sums]") {
  TuneSums sums(TuneCounts{}, one_batch());
  TuneCounts later = one_batch();
  later.filling = 2ms;
  sums.add(TuneSums(TuneCounts{}, later), 0.5);
  CHECK(sums.source() == Approx((0.5 * 8e6 + 2e6) / 1.5));
  CHECK(sums.period() == Approx(10e6));
}

TEST_CASE("batches ahead make up for a consumer that is faster for a while", "[tune_sums]") {
  TakeTimes times;
  CHECK(times.batches_ahead(1, 4e6) == 0);
  times.add(1ms);
  times.add(1ms);  // a worker fills a quarter of a batch in that time
  CHECK(times.batches_ahead(1, 4e6) == Approx(1.5));
  CHECK(times.batches_ahead(2, 4e6) == Approx(1));
  CHECK(times.batches_ahead(4, 4e6) == Approx(0));
  times.add(100ms);  // it catches up
  times.add(1ms);
  CHECK(times.batches_ahead(1, 4e6) == Approx(1.5));
  for (int i = 0; i < 64; ++i) times.add(4ms);  // the last are kept
  CHECK(times.batches_ahead(1, 4e6) == 0);
  times.clear();
  times.add(1ms);
  CHECK(times.batches_ahead(1, 4e6) == Approx(0.75));
}
