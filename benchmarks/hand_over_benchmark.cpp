// SPDX-License-Identifier: Apache-2.0

// What it costs to hand a batch from the workers to the consumer, in order: batches of a few bytes
// that nobody fills, by BatchProducer and by oneTBB's parallel_pipeline. Both make the same tickets
// and call the same source, with the same number of threads and the same bound on batches. A time
// is that of one run over all batches, divided by them; starting and ending the run included.

#include <penstock/batch_producer.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

#include "peers/tbb_pipeline.hpp"
#include "side_by_side.hpp"

namespace {

using namespace penstock;

struct Tiny {
  Tensor<std::uint8_t, 1> value;
};

constexpr std::uint64_t kBatches = 200'000;
constexpr std::size_t kDepth = 16;

Layout<Tiny> layout() {
  return Layout<Tiny>{1}.field(&Tiny::value, {});
}

Sampler sampler() {
  return Sampler{{.samples = kBatches, .batch_size = 1}};
}

void nothing(const Ticket&, Tiny&) {}

void ours(benchmark::State& state, int workers) {
  PinnedPool pool;
  pool.reserve(kDepth + 1,
               BatchProducer<Tiny>::block_bytes(layout()));  // One is with the consumer.
  for (auto _ : state) {
    BatchProducer<Tiny> producer{
        layout(), sampler(), nothing, pool, {.workers = workers, .depth = kDepth}};
    while (const auto batch = producer.next())
      benchmark::DoNotOptimize((*batch)->value.data_handle());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatches));
}

void one_tbb(benchmark::State& state, int workers) {
  penstock::benchmarks::TbbPipeline<Tiny> pipeline{layout(), sampler(), nothing, workers, kDepth};
  for (auto _ : state)
    pipeline.run([](const Tiny& batch, const Ticket&) {
      benchmark::DoNotOptimize(batch.value.data_handle());
    });
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatches));
}

}  // namespace

int main(int argc, char** argv) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (int workers = 1; workers <= std::clamp(cores, 2, 16); workers *= 2) {
    const std::string name = "hand_over/" + std::to_string(workers) + " workers/";
    const auto add = [&](const char* who, auto run) {
      benchmark::RegisterBenchmark((name + who).c_str(), run, workers)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    };
    add("ours", ours);
    add("oneTBB", one_tbb);
  }
  return penstock::benchmarks::run_side_by_side(argc, argv);
}
