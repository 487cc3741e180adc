// SPDX-License-Identifier: Apache-2.0

// Run, which every rung is made of: where the profiler is started and stopped, which plans are
// asked for, and losses that are no numbers.

#include "../../../../examples/resnet/train/run.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <penstock/emulation.hpp>
#include <stdexcept>
#include <vector>

#include "../../../support/temporary_directory.hpp"
#include "../matchers.hpp"
#include "support/catch.hpp"

namespace resnet {
namespace {

namespace emulation = penstock::emulation;
using penstock::test::TemporaryDirectory;
using test::contains;

Options small_run(const TemporaryDirectory& directory) {
  Options options;
  options.model = "resnet8";
  options.image_size = 16;
  options.batch = 4;
  options.warmup = 2;
  options.steps = 3;
  options.records = 20;
  options.cache = directory / "set";
  return options;
}

const Rung probe{.number = "T0", .name = "probe", .change = "nothing"};

/// What is seen before a step, and, last, after all of them.
struct Seen {
  std::uint64_t started, stopped;  // calls of the profiler
  std::int64_t done;               // steps whose work the device has done
};

std::vector<Seen> watch_profiler(const Options& options) {
  emulation::reset({.schedule = emulation::Schedule::lazy});  // What nobody waits for is not done.
  std::vector<Seen> seen;
  DataParallel ranks;
  Run run(probe, options, ranks);
  std::atomic<std::int64_t> done{0};
  const auto look = [&] {
    seen.push_back(
        {emulation::calls("cudaProfilerStart"), emulation::calls("cudaProfilerStop"), done.load()});
  };
  const auto count = [](void* number) {
    static_cast<std::atomic<std::int64_t>*>(number)->fetch_add(1, std::memory_order_relaxed);
  };
  run.for_each_step([&](Step& step) {
    look();
    REQUIRE_CUDA(cudaLaunchHostFunc(run.stream(), count, &done));
    static_cast<void>(step);
  });
  look();
  return seen;
}

TEST_CASE("as many epochs as are asked for are measured, behind the warm-up", "[resnet][run]") {
  const TemporaryDirectory directory;
  Options options = small_run(directory);
  options.batch = 8;  // Two whole batches in 20 records.
  options.epochs = 3;
  DataParallel ranks;
  Run run(probe, options, ranks);
  std::vector<std::uint64_t> epochs;
  run.for_each_step([&](Step& step) { epochs.push_back(step.epoch()); });
  CHECK(epochs == std::vector<std::uint64_t>{0, 0, 1, 1, 2, 2, 3, 3});
}

TEST_CASE("the profiler sees the measured steps, or those that were asked for, whole",
          "[resnet][run]") {
  const TemporaryDirectory directory;
  Options options = small_run(directory);
  std::size_t first = 2, end = 5;  // the measured ones, of five
  SECTION("the measured steps") {}
  SECTION("--profile 1:2") {
    options.profile_start = 1;
    options.profile_count = 2;
    first = 1, end = 3;
  }
  SECTION("--profile 0:1") {
    options.profile_start = 0;
    options.profile_count = 1;
    first = 0, end = 1;
  }
  SECTION("--profile 3:100, beyond the end") {
    options.profile_start = 3;
    options.profile_count = 100;
    first = 3;
  }
  const std::vector<Seen> seen = watch_profiler(options);
  REQUIRE(seen.size() == 6);
  for (std::size_t step = 0; step < seen.size(); ++step) {
    INFO("step " << step);
    CHECK(seen[step].started == (step >= first ? 1 : 0));
    CHECK(seen[step].stopped == (step >= end ? 1 : 0));
  }
  CHECK(seen[first].done == static_cast<std::int64_t>(first));
  CHECK(seen[end].done == static_cast<std::int64_t>(end));
}

/// What a run says it takes of the device when step `number` computes with `bytes` of its own.
std::size_t device_bytes(const Options& options, std::int64_t number, std::size_t bytes) {
  DataParallel ranks;
  Run run(probe, options, ranks);
  run.for_each_step([&](Step& step) {
    void* memory = nullptr;
    if (step.number() == number) REQUIRE_CUDA(cudaMalloc(&memory, bytes));
    step.compute(run.stream(), [] {});
    if (memory != nullptr) REQUIRE_CUDA(cudaFree(memory));
  });
  return run.device_bytes();
}

TEST_CASE("a run tells the most that it takes of the device in a step of the warm-up",
          "[resnet][run]") {
  const TemporaryDirectory directory;
  Options options = small_run(directory);
  constexpr std::size_t more = std::size_t{3} << 20;
  const std::size_t alone = device_bytes(options, -1, more);
  CHECK(alone > 0);
  void* before = nullptr;  // What is taken before the run is not the run's.
  REQUIRE_CUDA(cudaMalloc(&before, more));
  CHECK(device_bytes(options, 0, more) == alone + more);
  CHECK(device_bytes(options, 1, 2 * more) == alone + 2 * more);
  REQUIRE_CUDA(cudaFree(before));
  options.warmup = 0;  // Then the first step is looked at.
  CHECK(device_bytes(options, 0, more) == alone + more);
}

TEST_CASE("memory that a run takes in its measured steps is told at their end", "[resnet][run]") {
  const TemporaryDirectory directory;
  const Options options = small_run(directory);
  const std::size_t alone = device_bytes(options, -1, 0);
  DataParallel ranks;
  Run run(probe, options, ranks);
  DeviceArray<std::byte> kept;
  run.for_each_step([&](Step& step) {
    if (step.number() == options.warmup) kept = DeviceArray<std::byte>(1 << 20);
    step.compute(run.stream(), [] {});
  });
  CHECK(run.device_bytes() == alone + kept.bytes());
}

TEST_CASE("--exhaustive is for rungs that time plans", "[resnet][run]") {
  const TemporaryDirectory directory;
  Options options = small_run(directory);
  Rung rung = probe;
  DataParallel ranks;
  const auto plans = [&] { return Run(rung, options, ranks).operations().settings().plans; };
  CHECK(plans() == PlanChoice::heuristic);
  options.exhaustive = true;
  CHECK(plans() == PlanChoice::heuristic);
  rung.settings.plans = PlanChoice::timed;
  CHECK(plans() == PlanChoice::exhaustive);
  options.exhaustive = false;
  CHECK(plans() == PlanChoice::timed);
}

TEST_CASE("a loss that is no number is told, with its step", "[resnet][run]") {
  const TemporaryDirectory directory;
  DataParallel ranks;
  Run run(probe, small_run(directory), ranks);
  run.tell(3, {.loss = 8, .correct = 1, .samples = 4});
  CHECK(run.losses()[3] == 2);
  for (const float loss :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    CHECK_THROWS_WITH(run.tell(4, {.loss = loss, .correct = 0, .samples = 4}),
                      contains("the loss of step 4 is"));
  CHECK(run.losses()[4] == 0);
}

/// Steps of a run on images of zeros. The loss of those that `is_bad` names is NaN: their labels
/// are no classes.
void train_with_bad_steps(
    Run& run, const std::function<bool(std::int64_t)>& is_bad,
    const std::function<void(std::int64_t)>& after = [](std::int64_t) {}) {
  DeviceArray<float> pixels(static_cast<std::int64_t>(run.pixel_bytes() / sizeof(float)));
  DeviceArray<std::int32_t> labels(run.batch());
  pixels.set(std::vector<float>(pixels.size()), run.stream());
  run.for_each_step([&](Step& step) {
    const std::int32_t label = is_bad(step.number()) ? -1 : 3;
    labels.set(std::vector<std::int32_t>(labels.size(), label), run.stream());
    step.compute(pixels.data(), labels.data(), run.stream());
    run.tell(step.number(), run.read_metrics());
    after(step.number());
  });
}

Rung with_loss_scale() {
  Rung rung = probe;
  rung.settings.precision = Precision::fp16;
  return rung;
}

TEST_CASE(
    "with a loss scale, a step whose loss is not finite is skipped, counted, and gone on from",
    "[resnet][run]") {
  const TemporaryDirectory directory;
  const Rung rung = with_loss_scale();
  DataParallel ranks;
  Run run(rung, small_run(directory), ranks);
  std::vector<NetworkState> states{run.network().state(run.stream())};
  train_with_bad_steps(
      run, [](std::int64_t step) { return step == 2; },
      [&](std::int64_t) { states.push_back(run.network().state(run.stream())); });
  CHECK(run.skipped().count() == 1);
  CHECK(run.skipped().text() == ", 1 step skipped");
  for (std::size_t step = 0; step < 5; ++step) {
    INFO("step " << step);
    const NetworkState &before = states[step], &after = states[step + 1];
    const bool bad = step == 2;
    CHECK(std::isfinite(run.losses()[step]) == !bad);
    CHECK((after.parameters == before.parameters) == bad);
    CHECK((after.momenta == before.momenta) == bad);
    CHECK(after.step == before.step + (bad ? 0 : 1));
    CHECK(after.loss_scale.scale == before.loss_scale.scale / (bad ? 2 : 1));
    CHECK(std::all_of(after.parameters.begin(), after.parameters.end(),
                      [](float value) { return std::isfinite(value); }));
  }
}

TEST_CASE("many skipped steps in a row end the run, and fewer do not", "[resnet][run]") {
  const TemporaryDirectory directory;
  const Rung rung = with_loss_scale();
  Options options = small_run(directory);
  options.steps = 30;
  constexpr std::int64_t many = SkippedSteps::most_in_a_row;
  {
    DataParallel ranks;
    Run run(rung, options, ranks);
    train_with_bad_steps(run, [](std::int64_t step) { return step % many != 0; });
    CHECK(run.skipped().count() == 32 - 4);
  }
  DataParallel ranks;
  Run run(rung, options, ranks);
  const NetworkState start = run.network().state(run.stream());
  CHECK_THROWS_WITH(train_with_bad_steps(run, [](std::int64_t) { return true; }),
                    contains("10 steps in a row, up to step 9, were skipped"));
  CHECK(run.network().state(run.stream()).parameters == start.parameters);
}

TEST_CASE("without a loss scale, the first loss that is not finite ends the run", "[resnet][run]") {
  const TemporaryDirectory directory;
  DataParallel ranks;
  Run run(probe, small_run(directory), ranks);
  CHECK_THROWS_WITH(
      train_with_bad_steps(run, [](std::int64_t step) { return step == 2; }),
      contains("the loss of step 2 is") && contains("lower the learning rate (--rate)"));
  CHECK(run.skipped().count() == 0);
}

}  // namespace
}  // namespace resnet
