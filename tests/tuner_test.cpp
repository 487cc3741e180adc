// SPDX-License-Identifier: Apache-2.0

// What a Tuner decides, under measurements that are made up: a model of a pipeline, in which time
// is a number.

#include <penstock/detail/pipeline/tuner.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"

using penstock::TuneDecision;
using penstock::TuneKnob;
using penstock::TuneReason;
using penstock::detail::TuneChanges;
using penstock::detail::TuneCounts;
using penstock::detail::TuneLimits;
using penstock::detail::Tuner;
using penstock::detail::TuneSettings;

namespace {

std::chrono::nanoseconds milliseconds(double value) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e6 * value));
}

/// A steady pipeline: times in ms for a batch.
struct Model {
  double source = 1, consumer = 1;
  double places = 1e9;           ///< sources that can work at a time; more share the time
  double cpu = 0;                ///< of `source`
  std::size_t needed_depth = 0;  ///< with less, a part of the time is lost to waits in turn
  double downstream = 0;  ///< ms that the device takes, for which the consumer waits in next()

  double source_with(int workers) const { return source * std::max(1.0, workers / places); }
  double period(const TuneSettings& settings) const {
    const double steady =
        std::max({consumer, downstream, source_with(settings.workers) / settings.workers});
    return settings.depth < needed_depth ? 1.5 * steady : steady;
  }
};

/// Feeds a tuner with what a model's pipeline counts.
class Run {
 public:
  explicit Run(const TuneLimits& limits, const TuneSettings& start = {1, 3})
      : tuner(limits, start) {}

  void take(const Model& model, int batches) {
    for (int i = 0; i < batches; ++i) take_one(model);
  }

  int workers() const { return tuner.settings().workers; }
  std::size_t depth() const { return tuner.settings().depth; }

  Tuner tuner;
  std::vector<TuneDecision> decisions;
  std::size_t ready = 0;  ///< batches that are there at a take

 private:
  void take_one(const Model& model) {
    const TuneSettings now = tuner.settings();
    const double period = model.period(now), source = model.source_with(now.workers);
    counts_.consuming += milliseconds(model.consumer);
    counts_.waiting += milliseconds(period - model.consumer);
    ++counts_.delivered;
    ++counts_.filled;
    counts_.filling += milliseconds(source);
    counts_.cpu += milliseconds(model.cpu);
    counts_.workers_waiting += milliseconds(std::max(0.0, now.workers * period - source));
    if (model.downstream > 0)
      counts_.device_busy += milliseconds(period);
    else
      counts_.device_idle += milliseconds(period);
    tuner.note_ready([&](std::size_t most) { return std::min(most, ready); });
    if (!tuner.count_take(counts_.consuming, counts_.waiting)) return;
    const TuneChanges changes = tuner.look(counts_);
    decisions.insert(decisions.end(), changes.made.begin(),
                     changes.made.begin() + static_cast<std::ptrdiff_t>(changes.count));
  }

  TuneCounts counts_;
};

/// Takes batches whose source takes `source` ms and whose consumer takes 2: how many workers there
/// are then.
void expect_workers(Run& run, double source, int batches, int least, int most) {
  run.take({.source = source, .consumer = 2}, batches);
  CAPTURE(source);
  CHECK(run.workers() >= least);
  CHECK(run.workers() <= most);
}

TuneLimits most(int workers, std::size_t depth = 64) {
  return {.most = {workers, depth}, .for_each_worker = 1, .beside = 2, .cores = 64};
}

}  // namespace

TEST_CASE("a slow source gets the workers that it needs, within 50 batches", "[tuner]") {
  Run run(most(16));
  expect_workers(run, 8, 50, 4, 5);
  CHECK(run.depth() == static_cast<std::size_t>(run.workers()) + 2);
  REQUIRE(run.decisions.size() >= 2);
  CHECK(run.decisions[0].knob == TuneKnob::workers);
  CHECK(run.decisions[0].reason == TuneReason::source_bound);
  CHECK(run.decisions[0].from == 1);
  CHECK(run.decisions[0].source == milliseconds(8));
  CHECK(run.decisions[0].consumer == milliseconds(2));
  CHECK(run.decisions[0].batch <= 10);
  CHECK(run.decisions[1].knob == TuneKnob::host_depth);
  CHECK(run.decisions[1].reason == TuneReason::follows_workers);
}

TEST_CASE("a tuner that has found its settings keeps them", "[tuner]") {
  const double source = GENERATE(1.0, 3.0, 7.9, 8.0, 8.1, 31.0);
  CAPTURE(source);
  Run run(most(32));
  run.take({.source = source, .consumer = 2}, 100);
  const TuneSettings found = run.tuner.settings();
  const std::size_t decisions = run.decisions.size();
  run.take({.source = source, .consumer = 2}, 2000);
  CHECK(run.tuner.settings() == found);
  CHECK(run.decisions.size() == decisions);
}

TEST_CASE("workers stay within the bound", "[tuner]") {
  Run run(most(6));
  run.take({.source = 40, .consumer = 1}, 200);
  CHECK(run.workers() == 6);
}

TEST_CASE("the depth stays within the bound", "[tuner]") {
  Run run(most(16, 7));
  run.take({.source = 8, .consumer = 1}, 200);
  CHECK(run.depth() == 7);
}

TEST_CASE("workers that a consumer does not need are parked", "[tuner]") {
  Run run(most(16), {12, 14});
  run.take({.source = 6, .consumer = 4}, 50);
  CHECK(run.workers() == 2);
  CHECK(run.depth() == 4);
  REQUIRE(!run.decisions.empty());
  CHECK(run.decisions[0].reason == TuneReason::spare_workers);
}

TEST_CASE("waits for the device are none for data", "[tuner]") {
  Run run(most(16), {4, 6});
  run.take({.source = 2, .consumer = 0.01, .downstream = 4}, 60);
  CHECK(run.workers() == 1);
  for (const TuneDecision& decision : run.decisions) CHECK(decision.reason != TuneReason::in_turns);
}

TEST_CASE("a source that becomes 4 times slower gets 4 times the workers", "[tuner]") {
  Run run(most(16));
  expect_workers(run, 4, 100, 2, 3);
  expect_workers(run, 16, 50, 8, 9);
}

TEST_CASE("workers that have to share what they work with are taken back", "[tuner]") {
  Run run(most(16));
  const Model disk{.source = 8, .consumer = 1, .places = 3};
  run.take(disk, 50);
  CHECK(run.workers() == 3);
  int with_three = 0;
  for (int i = 0; i < 500; ++i) {
    run.take(disk, 1);
    with_three += run.workers() == 3 ? 1 : 0;
  }
  CHECK(with_three >= 400);
  // It is tried again, ever more seldom.
  const std::size_t early = run.decisions.size();
  run.take(disk, 550);
  CHECK(run.decisions.size() < early + early / 2);
}

TEST_CASE("from where more workers gave nothing, steps up are small until one helps", "[tuner]") {
  Run run(most(32));
  Model disk{.source = 8, .consumer = 0.25, .places = 8};
  run.take(disk, 300);
  CHECK(run.workers() == 8);
  const auto steps_up = [&](std::size_t since) {
    std::vector<std::size_t> steps;
    for (std::size_t i = since; i < run.decisions.size(); ++i)
      if (const TuneDecision& decision = run.decisions[i];
          decision.knob == TuneKnob::workers && decision.reason == TuneReason::source_bound)
        steps.push_back(decision.to - decision.from);
    return steps;
  };
  std::size_t since = run.decisions.size();
  run.take(disk, 1000);
  CHECK(run.workers() == 8);
  const std::vector<std::size_t> in_vain = steps_up(since);
  REQUIRE(!in_vain.empty());
  CHECK(std::count(in_vain.begin(), in_vain.end(), 2U) == std::ssize(in_vain));
  since = run.decisions.size();
  disk.places = 1e9;
  run.take(disk, 2000);
  CHECK(run.workers() == 32);
  REQUIRE(steps_up(since).size() >= 2);
  CHECK(steps_up(since)[1] > 2);
}

TEST_CASE("workers are parked when somebody else takes half of the cores", "[tuner]") {
  Run run(most(16));
  run.take({.source = 12, .consumer = 1, .places = 8}, 100);
  CHECK(run.workers() >= 8);
  run.take({.source = 12, .consumer = 1, .places = 4}, 100);
  CHECK(run.workers() == 4);
  CHECK(std::count_if(run.decisions.begin(), run.decisions.end(), [](const auto& decision) {
          return decision.reason == TuneReason::contended;
        }) >= 1);
}

TEST_CASE("the CPU time of a source bounds its workers", "[tuner]") {
  TuneLimits limits = most(16);
  limits.cores = 4;
  Run computes(limits), half_waits(limits);
  computes.take({.source = 8, .consumer = 0.5, .cpu = 8}, 200);
  CHECK(computes.workers() == 4);
  half_waits.take({.source = 8, .consumer = 0.5, .cpu = 4}, 200);
  CHECK(half_waits.workers() == 8);
}

TEST_CASE("depth grows where source and consumer wait in turn", "[tuner]") {
  Run run(most(16), {4, 6});
  run.take({.source = 4, .consumer = 2, .needed_depth = 7}, 60);
  CHECK(run.depth() >= 5);
  CHECK(std::any_of(run.decisions.begin(), run.decisions.end(), [](const auto& decision) {
    return decision.knob == TuneKnob::host_depth && decision.reason == TuneReason::in_turns;
  }));
}

TEST_CASE("where batches are ready, a wait is no reason for depth", "[tuner]") {
  Run run(most(16), {4, 6});
  run.ready = 1;
  run.take({.source = 4, .consumer = 2, .needed_depth = 1000}, 200);
  CHECK(run.depth() == 6);
}

TEST_CASE("depth that makes batches come sooner is kept, though the consumer still waits",
          "[tuner]") {
  // It waits for 87 % of its time, and then for 80 %.
  Run run(most(4), {4, 6});
  run.take({.source = 4, .consumer = 0.2, .needed_depth = 7}, 400);
  CHECK(run.depth() >= 7);
  CHECK(std::none_of(run.decisions.begin(), run.decisions.end(),
                     [](const auto& decision) { return decision.reason == TuneReason::no_gain; }));
}

TEST_CASE("batches that are always ready give up their memory, but for one", "[tuner]") {
  Run run(most(16), {2, 20});
  for (int i = 0; i < 400; ++i) {
    run.ready = run.depth() - 3;
    run.take({.source = 2, .consumer = 2}, 1);
  }
  CHECK(run.depth() == 4);
  REQUIRE(!run.decisions.empty());
  CHECK(run.decisions[0].reason == TuneReason::unused);
  Run least(most(16), {2, 4});
  least.ready = 17;
  least.take({.source = 2, .consumer = 2}, 200);
  CHECK(least.depth() >= 2);
}

TEST_CASE("memory that is kept or lost stays added", "[tuner]") {
  Run run(most(16, 6), {1, 3});
  const TuneChanges changes = run.tuner.add_depth(5, TuneReason::leases);
  REQUIRE(changes.count == 1);
  CHECK(changes.made[0].batch == 5);
  CHECK(changes.made[0].from == 3);
  CHECK(changes.made[0].to == 4);
  CHECK(run.depth() == 4);
  run.take({.source = 4, .consumer = 2}, 50);
  CHECK(run.depth() == static_cast<std::size_t>(run.workers()) + 3);
  while (run.tuner.add_depth(0, TuneReason::lost).count > 0) {
  }
  CHECK(run.depth() == 6);
}

TEST_CASE("a worker too many is parked, and comes back when it is missed", "[tuner]") {
  Run run(most(16));
  expect_workers(run, 8, 50, 4, 5);
  expect_workers(run, 4, 100, 2, 3);
  expect_workers(run, 8, 100, 4, 5);
}

TEST_CASE("batches ahead replace workers that only a fast consumer keeps busy", "[tuner]") {
  Run run(most(16));
  const auto find = [&](TuneReason reason) {
    return std::find_if(run.decisions.begin(), run.decisions.end(),
                        [&](const TuneDecision& decision) { return decision.reason == reason; });
  };
  // It takes 1 ms for a batch, and 30 ms for one of 16: 2.8 on average.
  for (int batch = 0; find(TuneReason::replaces_workers) == run.decisions.end(); ++batch) {
    REQUIRE(batch < 60);
    run.take({.source = 5, .consumer = batch % 16 == 15 ? 30.0 : 1.0}, 1);
  }
  CHECK(run.workers() == 2);
  const TuneDecision replaces = *find(TuneReason::replaces_workers);
  CHECK(replaces.knob == TuneKnob::host_depth);
  CHECK(replaces.to >= 2 + 9);  // of 15 batches two workers fill 6 while they are taken
  // In this model batches that are ahead are of no use: the consumer waits, and they are given up.
  run.take({.source = 5, .consumer = 1}, 40);
  CHECK(find(TuneReason::no_gain) != run.decisions.end());
}

TEST_CASE("settings that go to and fro change ever more seldom", "[tuner]") {
  Run run(most(16));
  const auto swing = [&](int times) {
    const std::size_t before = run.decisions.size();
    for (int i = 0; i < times; ++i) {
      run.take({.source = 8, .consumer = 2}, 40);
      run.take({.source = 2, .consumer = 2}, 40);
    }
    return run.decisions.size() - before;
  };
  const std::size_t first = swing(10);
  swing(20);
  CHECK(swing(10) < first);
}

TEST_CASE("a restart forgets the window, and keeps the settings", "[tuner]") {
  Run run(most(16));
  run.take({.source = 8, .consumer = 2}, 50);
  const TuneSettings found = run.tuner.settings();
  run.tuner.restart();
  CHECK(run.tuner.settings() == found);
  run.take({.source = 8, .consumer = 2}, 50);
  CHECK(run.tuner.settings() == found);
}

TEST_CASE("nothing is decided before a batch was filled", "[tuner]") {
  Tuner tuner(most(16), {1, 3});
  TuneCounts counts;
  for (int i = 0; i < 100; ++i) {
    counts.waiting += milliseconds(5);
    ++counts.delivered;
    if (tuner.count_take(counts.consuming, counts.waiting)) CHECK(tuner.look(counts).count == 0);
  }
}

TEST_CASE("fast batches are looked at every 10 ms, and not more often", "[tuner]") {
  Tuner tuner(most(16), {1, 3});
  TuneCounts counts;
  int looks = 0;
  for (int i = 0; i < 10'000; ++i) {  // of 10 us: 100 ms
    counts.consuming += milliseconds(0.01);
    counts.filling += milliseconds(0.005);
    ++counts.filled;
    ++counts.delivered;
    if (!tuner.count_take(counts.consuming, counts.waiting)) continue;
    tuner.look(counts);
    ++looks;
  }
  CHECK(looks >= 9);
  CHECK(looks <= 11);
}

TEST_CASE("a window begins when all workers have filled a batch since the change", "[tuner]") {
  TuneLimits limits = most(4);
  const bool by_sample = GENERATE(false, true);
  limits.for_each_worker = by_sample ? 0 : 1;
  Run run(limits);
  while (run.workers() == 1) run.take({.source = 16, .consumer = 2}, 1);
  REQUIRE(run.workers() == 4);
  TuneCounts counts;
  const auto takes_to_look = [&] {
    int takes = 0;
    do {
      ++takes;
      ++counts.delivered;
      counts.waiting += milliseconds(5);
    } while (!run.tuner.count_take(counts.consuming, counts.waiting));
    run.tuner.look(counts);
    return takes;
  };
  CHECK(takes_to_look() == (by_sample ? 1 : 4));
  CHECK(takes_to_look() == 8);
}

TEST_CASE("a per_sample source is looked at every few batches, with any number of workers",
          "[tuner]") {
  TuneLimits limits = most(11);
  limits.for_each_worker = 0;
  Tuner tuner(limits, {11, 4});
  TuneCounts counts;
  int takes = 0;
  do {
    ++takes;
    counts.waiting += milliseconds(5);
  } while (!tuner.count_take(counts.consuming, counts.waiting));
  tuner.look(counts);
  do {
    ++takes;
    counts.waiting += milliseconds(5);
  } while (!tuner.count_take(counts.consuming, counts.waiting));
  CHECK(takes == 9);
}

TEST_CASE("a per_sample source needs no memory for each worker", "[tuner]") {
  TuneLimits limits = most(16);
  limits.for_each_worker = 0;
  limits.beside = 4;
  Run run(limits, {1, 4});
  run.take({.source = 16, .consumer = 2}, 50);
  CHECK(run.workers() >= 8);
  CHECK(run.depth() == 4);
}

TEST_CASE("timed batches tell what a consumer takes that only queues its work", "[tuner]") {
  Tuner tuner(most(16), {1, 3});
  TuneCounts counts;
  for (int i = 0; i < 12; ++i) {
    counts.waiting += milliseconds(12);
    counts.filling += milliseconds(12);
    counts.timed_consuming += milliseconds(4);
    ++counts.timed;
    ++counts.filled;
    ++counts.delivered;
    if (tuner.count_take(counts.consuming, counts.waiting)) tuner.look(counts);
  }
  CHECK(tuner.settings().workers == 4);  // 12 / (0.95 x 4); without, it would be 5
}
