// SPDX-License-Identifier: Apache-2.0

// Does a pipeline run as fast as its slowest stage? One stage takes 20 ms for a batch, the others
// 5, on an emulated machine whose bus is as slow as that: 200 batches should take 200 x 20 ms, and
// once the time in which the first batch comes to the slowest stage and the last one leaves it. The
// counter `of_ideal` is measured time by that.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>
#include <thread>

namespace {

using namespace penstock;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

struct Bytes {
  Tensor<std::uint8_t, 1> value;
};

constexpr std::int64_t kBatchSize = 1 << 16;
constexpr std::uint64_t kBatches = 200;

/// How long each stage takes for a batch.
struct Stages {
  milliseconds source, copy, compute;

  std::chrono::duration<double> ideal() const {
    const milliseconds slowest = std::max({source, copy, compute});
    return kBatches * slowest + (source + copy + compute - slowest);
  }
};

/// Takes its time for each batch. Woken late, it sleeps less for the next one; called late, it does
/// not: what is measured is the pipeline, not the timer of a busy machine.
class Sleeper {
 public:
  explicit Sleeper(milliseconds time) : time_(time) {}

  void operator()() {
    end_ += Clock::now() - returned_ + time_;
    std::this_thread::sleep_until(end_);
    returned_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  milliseconds time_;
  Clock::time_point returned_ = Clock::now(), end_ = returned_;
};

void start_machine(const Stages& stages) {
  const std::chrono::duration<double> copy = stages.copy;
  emulation::reset({.machine = {.host_to_device = kBatchSize / copy.count()}});
}

void run_pipeline(const Stages& stages) {
  Sleeper fill(stages.source), compute(stages.compute);
  const Stream stream;
  const auto layout = Layout<Bytes>{kBatchSize}.field(&Bytes::value, {});
  const Sampler sampler{{.samples = kBatches * kBatchSize, .batch_size = kBatchSize}};
  Prefetcher<Bytes> prefetcher{
      layout, sampler, [&](const Ticket&, Bytes&) { fill(); }, {.workers = 1}};
  while (const auto batch = prefetcher.next(stream.get()))
    for_each(stream.get(), 1, [&](std::int64_t) { compute(); });
  stream.synchronize();
}

void overlap(benchmark::State& state, const Stages& stages) {
  start_machine(stages);
  std::chrono::duration<double> measured{0};
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    run_pipeline(stages);
    measured += std::chrono::steady_clock::now() - begin;
  }
  state.counters["of_ideal"] =
      measured / (static_cast<double>(state.iterations()) * stages.ideal());
}

BENCHMARK_CAPTURE(overlap, slow_source, {.source = 20ms, .copy = 5ms, .compute = 5ms})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(overlap, slow_copy, {.source = 5ms, .copy = 20ms, .compute = 5ms})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(overlap, slow_compute, {.source = 5ms, .copy = 5ms, .compute = 20ms})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
