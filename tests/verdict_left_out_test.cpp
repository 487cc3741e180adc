// SPDX-License-Identifier: Apache-2.0

// What the verdict leaves out: the consumer's pauses, and the first batch of each worker.

#include <penstock/detail/observe/consumer_clock.hpp>
#include <penstock/stats.hpp>

#include <chrono>
#include <thread>

#include "support/catch.hpp"
#include "support/made_stats.hpp"

using namespace std::chrono_literals;
using penstock::Bottleneck;
using penstock::Stats;
using penstock::VerdictKind;
using penstock::detail::ConsumerClock;
using penstock::test::says;
using penstock::test::timed;

namespace {

/// Half a second in which the consumer was away, and two workers and the copies waited for it.
Stats with_pause(Stats stats) {
  stats.source.waiting_for_room += 1s;
  stats.copy.waiting_for_room += 500ms;
  stats.consumer.busy += 500ms;
  stats.device->consuming += 500ms;
  stats.pauses = {.source = 1s, .copy = 500ms, .consumer = 500ms, .device = 500ms};
  return stats;
}

auto present_pause(const ConsumerClock& clock) {
  return clock.present_pause(std::chrono::steady_clock::now());
}

void next(ConsumerClock& clock) {
  const ConsumerClock::Visit visit(clock);
}

}  // namespace

TEST_CASE("the consumer's pauses change no verdict", "[verdict]") {
  for (const auto& loads : {penstock::test::PerMille{990, 100, 250},
                            {100, 990, 300},
                            {600, 100, 800},
                            {500, 100, 950}}) {
    const penstock::Verdict plain = timed(loads).verdict(),
                            paused = with_pause(timed(loads)).verdict();
    CHECK(paused.sentence == plain.sentence);
    CHECK(paused.stage == plain.stage);
    CHECK(paused.period == plain.period);
    CHECK(with_pause(timed(loads)).bottleneck() == plain.stage);
  }
  // If nobody knew of them, the source would not be at its limit.
  Stats unknown = with_pause(timed({990, 100, 250}));
  unknown.pauses = {};
  CHECK(unknown.verdict().kind != VerdictKind::more_workers);
}

TEST_CASE("pauses before a snapshot are not taken from what came after it", "[verdict]") {
  Stats none;
  none.device.emplace();
  const Stats before = with_pause(none);
  const Stats after = with_pause(timed({990, 100, 250}));
  CHECK(after.since(before).pauses.source == 0s);
  CHECK(after.since(before).verdict().kind == VerdictKind::more_workers);
}

TEST_CASE("a slow first batch of each worker does not stand for the others", "[verdict]") {
  Stats stats = timed({500, 100, 950});
  stats.source.busy += 800ms;  // of two workers
  stats.source.batches += 2;
  CHECK(stats.verdict().source == 8823529ns);
  stats.first_fills = 800ms;
  CHECK(stats.verdict().source == 5ms);
  CHECK(stats.verdict().kind == VerdictKind::compute_bound);
  // Of a per_sample source, a worker's first piece is no batch.
  stats.setup.per_sample = true;
  stats.source.batches -= 2;
  CHECK(stats.verdict().source == 5ms);
  // As fast as the others, or no slower than the clock is exact: they belong to them.
  stats = timed({500, 100, 950});
  for (const auto first : {20ms, 87ms}) {
    stats.first_fills = first;
    CHECK(stats.verdict().source == 5ms);
  }
  // There are no others.
  stats.source.batches = 2;
  stats.first_fills = 1000ms;
  CHECK(stats.verdict().source == 250ms);
}

TEST_CASE("until the second call of next, the consumer is in a pause", "[consumer_clock]") {
  ConsumerClock clock;
  CHECK(present_pause(clock).has_value());
  {
    const ConsumerClock::Visit visit(clock);
    CHECK(visit.ended_pause().has_value());
    CHECK_FALSE(present_pause(clock).has_value());
  }
  std::this_thread::sleep_for(2ms);
  CHECK(clock.paused() == 0ns);
  CHECK(present_pause(clock)->length() >= 2ms);
  {
    const ConsumerClock::Visit visit(clock);
    CHECK(visit.ended_pause()->length() >= 2ms);
  }
  CHECK(clock.paused() == clock.busy());
  CHECK(clock.paused() >= 2ms);
  // With no other step to compare it with, the next one is none.
  std::this_thread::sleep_for(2ms);
  CHECK_FALSE(present_pause(clock).has_value());
  next(clock);
  CHECK(clock.paused() < clock.busy());
}

TEST_CASE("a step far longer than the others is a pause", "[consumer_clock]") {
  ConsumerClock clock;
  for (int i = 0; i < 40; ++i) next(clock);
  const auto before = clock.paused();
  // 32 times their mean is far less than a second.
  std::this_thread::sleep_for(1s);
  CHECK(present_pause(clock)->length() >= 1s);
  {
    const ConsumerClock::Visit visit(clock);
    CHECK(visit.ended_pause()->length() >= 1s);
  }
  CHECK(clock.paused() - before >= 1s);
  // It counts for the mean.
  std::this_thread::sleep_for(10ms);
  CHECK_FALSE(present_pause(clock).has_value());
}

TEST_CASE("the first step is not among those that others are compared with", "[consumer_clock]") {
  ConsumerClock clock;
  next(clock);
  std::this_thread::sleep_for(1s);
  for (int i = 0; i < 40; ++i) next(clock);
  std::this_thread::sleep_for(400ms);  // 16 times the mean that the first step would make
  CHECK(present_pause(clock).has_value());
}
