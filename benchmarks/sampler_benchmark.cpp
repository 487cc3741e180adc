// SPDX-License-Identifier: Apache-2.0

// What it costs to put samples into a random order: Sampler, which computes the order of each
// batch, against std::shuffle of a stored list. A run is the order of 10^7 samples. At 10^12 the
// list would take 8 TB, so the peer stays at 10^7 there. And what a Mixture of 100 data sets costs,
// whose samples are not shuffled or are, against one Sampler of as many samples.

#include <penstock/mixture.hpp>
#include <penstock/sampler.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "side_by_side.hpp"

namespace {

constexpr std::uint64_t kSamples = 10'000'000;
constexpr std::int64_t kBatch = 256;

void report(benchmark::State& state) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kSamples));
  state.counters["time/sample"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(kSamples),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// The first 10^7 places of an order, batch by batch, as workers ask for them.
template <class AnySampler>
void take(benchmark::State& state, const AnySampler& sampler) {
  std::vector<std::uint64_t> batch;
  std::uint64_t epoch = 0;
  for (auto _ : state) {
    for (std::uint64_t b = 0; b < kSamples / kBatch; ++b) {
      sampler.samples(epoch, b, batch);
      benchmark::DoNotOptimize(batch.data());
      benchmark::ClobberMemory();
    }
    ++epoch;
  }
  report(state);
}

void ours(benchmark::State& state, std::uint64_t size) {
  take(state, penstock::Sampler({.samples = size, .batch_size = kBatch, .shuffle = true}));
}

void one(benchmark::State& state, bool shuffle) {
  take(state, penstock::Sampler({.samples = kSamples, .batch_size = kBatch, .shuffle = shuffle}));
}

/// Weights from 1 to 100.
void mixed(benchmark::State& state, bool shuffle) {
  std::vector<penstock::MixedDataSet> data_sets;
  for (int i = 1; i <= 100; ++i)
    data_sets.push_back({.data = {.samples = kSamples / 100, .shuffle = shuffle},
                         .weight = static_cast<double>(i)});
  take(state, penstock::Mixture(data_sets, {.samples = kSamples, .batch_size = kBatch}));
}

void standard(benchmark::State& state) {
  std::vector<std::uint64_t> order(kSamples);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  std::mt19937_64 random(7);
  for (auto _ : state) {
    std::shuffle(order.begin(), order.end(), random);
    benchmark::DoNotOptimize(order.data());
    benchmark::ClobberMemory();
  }
  report(state);
}

void add(const std::string& name, std::uint64_t size) {
  benchmark::RegisterBenchmark((name + "/ours").c_str(), ours, size)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark((name + "/std::shuffle").c_str(), standard)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  add("order_of_1e7", kSamples);
  add("order_of_1e12", 1'000'000'000'000);
  for (const bool shuffle : {false, true}) {
    const std::string name = shuffle ? "mixture_of_100/shuffled/" : "mixture_of_100/in_order/";
    benchmark::RegisterBenchmark((name + "ours").c_str(), mixed, shuffle)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((name + "one Sampler").c_str(), one, shuffle)
        ->Unit(benchmark::kMillisecond);
  }
  return penstock::benchmarks::run_side_by_side(argc, argv);
}
