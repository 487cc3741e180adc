// SPDX-License-Identifier: Apache-2.0

// What a Tuner decides about pipelines in which time is a number.

#include <penstock/detail/observe/tuner.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/simulated_pipeline.hpp"

using penstock::Stats;
using penstock::TuneDecision;
using penstock::TuneKnob;
using penstock::TuneReason;
using penstock::detail::PipelineShape;
using penstock::detail::Timeline;
using penstock::detail::Tuner;
using penstock::detail::TuneSettings;
using penstock::test::SimulatedPipeline;
using penstock::test::SimulatedTimes;

namespace {

constexpr TuneSettings kStart{.workers = 1, .host_depth = 2, .device_depth = 2};

TuneSettings most_of(std::size_t workers, std::size_t blocks = 64, std::size_t slots = 3) {
  return {workers, blocks, slots};
}
PipelineShape on_device_shape() {
  PipelineShape shape;
  shape.on_device = true;
  return shape;
}
PipelineShape per_sample_shape() {
  PipelineShape shape;
  shape.setup.per_sample = true;
  shape.setup.batch_size = 16;
  return shape;
}

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

/// Takes batches whose source takes `source` ms and whose consumer takes 2: how many workers there
/// are then.
void expect_workers(SimulatedPipeline& run, double source, int batches, int least, int most) {
  run.take({.source = source, .consumer = 2}, batches);
  CAPTURE(source);
  CHECK(run.workers() >= least);
  CHECK(run.workers() <= most);
}

bool has(const SimulatedPipeline& run, TuneReason reason) {
  const std::vector<TuneDecision> decisions = run.decisions();
  return std::any_of(decisions.begin(), decisions.end(),
                     [&](const TuneDecision& decision) { return decision.reason == reason; });
}

/// How many workers run on average while so many batches are taken. `times`: of batch b.
template <class Times>
double mean_workers(SimulatedPipeline& run, Times times, int first, int batches) {
  double sum = 0;
  for (int batch = first; batch < first + batches; ++batch) {
    run.take(times(batch), 1);
    sum += run.workers();
  }
  return sum / batches;
}

}  // namespace

TEST_CASE("a slow source gets the workers that it needs, within 20 batches", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  expect_workers(run, 8, 20, 4, 5);
  run.take({.source = 8, .consumer = 2}, 20);
  const std::vector<TuneDecision> decisions = run.decisions();
  REQUIRE(decisions.size() == 2);
  CHECK(decisions[0].knob == TuneKnob::workers);
  CHECK(decisions[0].reason == TuneReason::faster);
  CHECK(decisions[0].from == 1);
  CHECK(milliseconds(decisions[0].source) == Approx(8).epsilon(0.01));
  CHECK(milliseconds(decisions[0].consumer) == Approx(2).epsilon(0.05));
  CHECK(milliseconds(decisions[0].period) == Approx(8).epsilon(0.05));
  CHECK(milliseconds(decisions[0].predicted) == Approx(2).epsilon(0.03));
  CHECK(milliseconds(decisions[0].measured) == Approx(2).epsilon(0.3));  // the first ones, too
  CHECK(decisions[0].batch <= 10);
  CHECK(decisions[1].knob == TuneKnob::host_depth);
  CHECK(decisions[1].to > static_cast<std::size_t>(run.workers()));
  CHECK(decisions[1].batch == decisions[0].batch);
}

TEST_CASE("what has become of a change is told when it is known", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  while (run.decisions().empty()) run.take({.source = 8, .consumer = 2}, 1);
  CHECK(run.decisions()[0].predicted.count() > 0);
  CHECK(run.decisions()[0].measured.count() == 0);
}

TEST_CASE("a tuner that has found its settings keeps them", "[tuner]") {
  const double source = GENERATE(1.0, 3.0, 7.9, 8.0, 8.1, 31.0);
  CAPTURE(source);
  SimulatedPipeline run(most_of(32), kStart);
  run.take({.source = source, .consumer = 2}, 150);
  const TuneSettings found = run.settings();
  const std::uint64_t decisions = run.count_decisions();
  run.take({.source = source, .consumer = 2}, 2000);
  CHECK(run.settings() == found);
  CHECK(run.count_decisions() == decisions);
}

TEST_CASE("workers stay within the bound", "[tuner]") {
  SimulatedPipeline run(most_of(6), kStart);
  run.take({.source = 40, .consumer = 1}, 200);
  CHECK(run.workers() == 6);
}

TEST_CASE("the depth stays within the bound", "[tuner]") {
  SimulatedPipeline run(most_of(16, 7), kStart);
  run.take({.source = 8, .consumer = 1}, 200);
  CHECK(run.host_depth() == 7);
  CHECK(run.device_depth() <= 3);
}

TEST_CASE("workers that a consumer does not need are parked", "[tuner]") {
  SimulatedPipeline run(most_of(16), {12, 14, 2});
  run.take({.source = 6, .consumer = 4}, 150);
  CHECK(run.workers() == 2);
  CHECK(run.host_depth() <= 5);
  CHECK(has(run, TuneReason::cheaper));
}

TEST_CASE("waits for the copy are none for the source", "[tuner]") {
  SimulatedPipeline run(most_of(16), {4, 6, 2});
  run.take({.source = 2, .consumer = 0.01, .copy = 4}, 100);
  CHECK(run.workers() == 1);
  CHECK(!has(run, TuneReason::faster));
}

TEST_CASE("a loop that only queues its work is told by its stream", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  run.take({.source = 12, .queue_only = 4}, 60);
  CHECK(run.workers() == 3);
}

TEST_CASE("a source that becomes 4 times slower gets 4 times the workers", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  expect_workers(run, 4, 100, 2, 3);
  expect_workers(run, 16, 50, 8, 9);
}

TEST_CASE("workers that have to share what they work with are taken back", "[tuner]") {
  // In turn, three of four workers are served at once: in the median they share nothing.
  const bool in_turn = GENERATE(false, true);
  CAPTURE(in_turn);
  SimulatedPipeline run(most_of(16), kStart);
  const SimulatedTimes disk{.source = 8, .consumer = 1, .places = 3, .in_turn = in_turn};
  run.take(disk, 50);
  CHECK(run.workers() == 3);
  CHECK(mean_workers(
            run, [&](int) { return disk; }, 50, 500) <= 1.2 * 3);
  // It is tried again, ever more seldom.
  const std::uint64_t early = run.count_decisions();
  run.take(disk, 550);
  CHECK(run.count_decisions() < early + early / 2);
}

TEST_CASE("from where more workers gave nothing, steps up are small until one helps", "[tuner]") {
  SimulatedPipeline run(most_of(32), kStart);
  SimulatedTimes disk{.source = 8, .consumer = 0.25, .places = 8};
  run.take(disk, 400);
  const auto steps_up = [&](std::uint64_t since) {
    std::vector<std::size_t> steps;
    for (const TuneDecision& decision : run.decisions())
      if (decision.batch >= since && decision.knob == TuneKnob::workers &&
          decision.reason == TuneReason::faster)
        steps.push_back(decision.to - decision.from);
    return steps;
  };
  run.take(disk, 1000);
  CHECK(run.workers() >= 8);
  CHECK(run.workers() <= 10);
  const std::vector<std::size_t> in_vain = steps_up(400);
  REQUIRE(!in_vain.empty());
  CHECK(std::count(in_vain.begin(), in_vain.end(), 2U) == std::ssize(in_vain));
  disk.places = 1e9;
  run.take(disk, 3000);
  CHECK(run.workers() == 32);
}

TEST_CASE("a source that became slower while workers came is not taken for a shared one",
          "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  while (run.workers() == 1) run.take({.source = 8, .consumer = 2}, 1);
  const SimulatedTimes slower{.source = 12, .consumer = 2};
  run.take(slower, 200);
  const std::uint64_t early = run.count_decisions();
  run.take(slower, 1000);
  CHECK(run.workers() >= 6);
  CHECK(run.workers() <= 7);
  CHECK(run.count_decisions() <= early + 2);
}

TEST_CASE("workers are parked when somebody else takes half of the cores", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  run.take({.source = 12, .consumer = 1, .places = 8}, 100);
  CHECK(run.workers() >= 8);
  const SimulatedTimes fewer{.source = 12, .consumer = 1, .places = 4};
  run.take(fewer, 50);
  CHECK(mean_workers(
            run, [&](int) { return fewer; }, 150, 100) <= 1.2 * 4);
}

TEST_CASE("a hundred workers are tuned, too", "[tuner]") {
  SimulatedPipeline up(most_of(100, 300), kStart), down(most_of(100, 300), {100, 102, 2});
  up.take({.source = 600, .consumer = 2}, 300);
  CHECK(up.workers() == 100);
  down.take({.source = 50, .consumer = 2}, 3000);
  CHECK(down.workers() >= 25);
  CHECK(down.workers() <= 27);
}

TEST_CASE("a step is never put back to fewer slots than the leases need", "[tuner]") {
  SimulatedPipeline run(most_of(16), {4, 6, 2});
  const SimulatedTimes fast{.source = 2, .consumer = 2}, slow{.source = 8, .consumer = 2};
  while (!has(run, TuneReason::cheaper)) run.take(fast, 1);
  REQUIRE(run.tuner().add_slot(1, TuneReason::leases));
  run.apply();
  run.take(slow, 100);
  REQUIRE(has(run, TuneReason::reverted));
  CHECK(run.device_depth() == 3);
}

TEST_CASE("a step up lowers nothing", "[tuner]") {
  SimulatedPipeline disk(most_of(16), {1, 20, 2}), pauses(most_of(16), {4, 6, 2});
  disk.take({.source = 8, .consumer = 1, .places = 3}, 300);
  for (int batch = 0; batch < 300; ++batch)
    pauses.take({.source = 5, .consumer = batch % 16 == 15 ? 30.0 : 1.0}, 1);
  int up = 0;
  for (const SimulatedPipeline* run : {&disk, &pauses})
    for (const TuneDecision& decision : run->decisions()) {
      if (decision.reason != TuneReason::faster) continue;
      CHECK(decision.to > decision.from);
      ++up;
    }
  CHECK(up > 2);
}

TEST_CASE("cores that go while a step down is on trial do not undo it", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  const auto with = [](double places) {
    return SimulatedTimes{.source = 12, .consumer = 1, .places = places};
  };
  while (!has(run, TuneReason::cheaper)) run.take(with(8), 1);
  run.take(with(4), 60);
  CHECK(run.workers() <= 5);
  CHECK(!has(run, TuneReason::reverted));
}

TEST_CASE("the CPU time of a source bounds its workers", "[tuner]") {
  PipelineShape shape;
  shape.setup.cores = 4;
  SimulatedPipeline computes(most_of(16), kStart, shape), half_waits(most_of(16), kStart, shape);
  computes.take({.source = 8, .consumer = 0.5, .computes = 1}, 200);
  CHECK(computes.workers() == 4);
  half_waits.take({.source = 8, .consumer = 0.5, .computes = 0.5}, 200);
  CHECK(half_waits.workers() == 8);
}

TEST_CASE("depth grows where source and consumer wait in turn", "[tuner]") {
  SimulatedPipeline run(most_of(4), {3, 4, 2});
  // One batch in eight takes 17 ms, the others 1: the source is fast enough on average.
  for (int batch = 0; batch < 100; ++batch)
    run.take({.source = batch % 8 == 7 ? 17.0 : 1.0, .consumer = 3}, 1);
  CHECK(run.host_depth() > 4);
  CHECK(run.workers() <= 3);
  const std::vector<TuneDecision> decisions = run.decisions();
  CHECK(std::any_of(decisions.begin(), decisions.end(), [](const TuneDecision& decision) {
    return decision.knob == TuneKnob::host_depth && decision.reason == TuneReason::faster;
  }));
}

TEST_CASE("where more depth gives nothing, none is added", "[tuner]") {
  SimulatedPipeline run(most_of(4), {4, 6, 2});
  run.take({.source = 8, .consumer = 0.2}, 200);  // The source is at its bound.
  CHECK(run.workers() == 4);
  CHECK(run.host_depth() <= 6);
}

TEST_CASE("a few slow batches get the workers and the depth that hide them", "[tuner]") {
  const auto stalls = [](int batch) {
    return SimulatedTimes{.source = batch % 20 == 19 ? 32.0 : 2.0, .consumer = 2.5};
  };
  const auto bursts = [](int batch) {
    return SimulatedTimes{.source = batch % 8 == 7 ? 37.5 : 1.5, .consumer = 2.5};
  };
  SimulatedPipeline stalled(most_of(16), kStart), bursty(most_of(16), kStart);
  mean_workers(stalled, stalls, 0, 50);
  CHECK(mean_workers(stalled, stalls, 50, 200) <= 1.2 * 2);
  mean_workers(bursty, bursts, 0, 50);
  CHECK(mean_workers(bursty, bursts, 50, 200) <= 1.2 * 3);
  CHECK(bursty.host_depth() > 8);
}

TEST_CASE("batches that are always ready give up their memory", "[tuner]") {
  SimulatedPipeline run(most_of(16), {2, 20, 2});
  run.take({.source = 3, .consumer = 2}, 400);
  CHECK(run.host_depth() <= 5);
  CHECK(run.host_depth() >= 3);
  CHECK(has(run, TuneReason::cheaper));
}

TEST_CASE("a slot for each lease comes at once, and stays", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  REQUIRE(run.tuner().add_slot(5, TuneReason::leases));
  run.apply();
  CHECK(run.device_depth() == 3);
  REQUIRE(run.decisions().size() == 1);
  CHECK(run.decisions()[0].batch == 5);
  CHECK(run.decisions()[0].knob == TuneKnob::device_depth);
  CHECK(run.decisions()[0].reason == TuneReason::leases);
  CHECK(run.decisions()[0].from == 2);
  CHECK(run.decisions()[0].to == 3);
  run.take({.source = 4, .consumer = 2}, 200);
  CHECK(run.device_depth() == 3);
  CHECK(!run.tuner().add_slot(5, TuneReason::leases));
}

TEST_CASE("memory that was lost is made up for, up to the bound", "[tuner]") {
  SimulatedPipeline run(most_of(16, 8), kStart);
  REQUIRE(run.tuner().add_memory(7));
  run.apply();
  CHECK(run.host_depth() == 3);
  CHECK(run.decisions()[0].reason == TuneReason::lost);
  SimulatedPipeline whole(most_of(16, 8), kStart);
  run.take({.source = 4, .consumer = 2}, 60);
  whole.take({.source = 4, .consumer = 2}, 60);
  CHECK(run.host_depth() == whole.host_depth() + 1);
  while (run.tuner().add_memory(0)) run.apply();
  CHECK(run.host_depth() == 8);
}

TEST_CASE("an on_device source gets slots for its workers", "[tuner]") {
  SimulatedPipeline run({16, 0, 18}, {1, 0, 3}, on_device_shape());
  run.take({.source = 7, .consumer = 2}, 60);
  CHECK(run.workers() == 4);
  CHECK(run.device_depth() >= 5);
  CHECK(run.host_depth() == 0);
  REQUIRE(run.tuner().add_memory(7));
  run.apply();
  CHECK(run.decisions().back().knob == TuneKnob::device_depth);
}

TEST_CASE("a per_sample source needs no memory for each worker", "[tuner]") {
  SimulatedPipeline run(most_of(16), {1, 4, 2}, per_sample_shape());
  run.take({.source = 16, .consumer = 2}, 50);
  CHECK(run.workers() >= 8);
  CHECK(run.host_depth() <= 4);
}

TEST_CASE("a worker too many is parked, and comes back when it is missed", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  expect_workers(run, 8, 50, 4, 5);
  expect_workers(run, 4, 150, 2, 3);
  expect_workers(run, 8, 100, 4, 5);
}

TEST_CASE("batches ahead replace workers that only a fast consumer keeps busy", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  // It takes 1 ms for a batch, and 30 ms for one of 16: 2.8 on average.
  const auto pauses = [](int batch) {
    return SimulatedTimes{.source = 5, .consumer = batch % 16 == 15 ? 30.0 : 1.0};
  };
  mean_workers(run, pauses, 0, 250);
  CHECK(run.workers() == 2);
  CHECK(run.host_depth() >= 2 + 8);
}

TEST_CASE("a change that costs time is taken back", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  run.take({.source = 8, .consumer = 2}, 50);
  REQUIRE(run.workers() == 4);
  while (!has(run, TuneReason::cheaper)) run.take({.source = 2, .consumer = 2}, 1);
  run.take({.source = 8, .consumer = 2}, 100);
  CHECK(run.workers() >= 4);
  CHECK(has(run, TuneReason::reverted));
}

TEST_CASE("settings that go to and fro change ever more seldom", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  const auto swing = [&](int times) {
    const std::uint64_t before = run.count_decisions();
    for (int i = 0; i < times; ++i) {
      run.take({.source = 8, .consumer = 2}, 60);
      run.take({.source = 2, .consumer = 2}, 60);
    }
    return run.count_decisions() - before;
  };
  const std::uint64_t first = swing(10);
  swing(20);
  CHECK(swing(10) < first);
}

TEST_CASE("a restart drops the batches, and keeps the settings", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  run.take({.source = 8, .consumer = 2}, 50);
  const TuneSettings found = run.settings();
  run.restart();
  CHECK(run.settings() == found);
  run.take({.source = 8, .consumer = 2}, 50);
  CHECK(run.settings() == found);
}

TEST_CASE("nothing is decided before a batch has ended", "[tuner]") {
  Tuner tuner(most_of(16), kStart, {});
  const Timeline timeline(8);
  int looks = 0;
  for (int i = 1; i <= 100; ++i) {
    if (!tuner.is_due()) continue;
    ++looks;
    CHECK(!tuner.look(timeline, {}, i * 5'000'000));
  }
  CHECK(looks > 0);
  CHECK(tuner.settings() == kStart);
}

TEST_CASE("one thread at a time looks", "[tuner]") {
  Tuner tuner(most_of(16), kStart, {});
  const Timeline timeline(8);
  int due = 0;
  for (int i = 0; i < 100; ++i) due += tuner.is_due() ? 1 : 0;
  CHECK(due == 1);
  tuner.look(timeline, {}, 1);
  for (int i = 0; i < 100; ++i) due += tuner.is_due() ? 1 : 0;
  CHECK(due == 2);
}

TEST_CASE("batches are looked at every eight, and fast ones every 10 ms", "[tuner]") {
  SimulatedPipeline slow(most_of(1), kStart), fast(most_of(1), kStart);
  slow.take({.source = 1, .consumer = 5}, 400);
  CHECK(slow.looks() >= 45);
  CHECK(slow.looks() <= 51);
  // 10,000 of 10 us are 100 ms. Looks that come too early end at once, and are one in eight.
  fast.take({.source = 0.005, .consumer = 0.01, .copy = 0.001}, 10'000);
  CHECK(fast.looks() <= 10'000 / 8);
}

TEST_CASE("a look allocates nothing", "[tuner]") {
  SimulatedPipeline run(most_of(16), kStart);
  run.take({.source = 8, .consumer = 2}, 40);
  Tuner tuner(most_of(16), kStart, {});
  const std::uint64_t before = penstock::test::allocations_of_this_thread();
  for (int i = 0; i < 8; ++i) static_cast<void>(tuner.is_due());
  tuner.look(run.timeline(), {}, penstock::detail::Ticks{1} << 40);
  CHECK(penstock::test::allocations_of_this_thread() == before);
  CHECK(tuner.settings().workers > 0);
}
