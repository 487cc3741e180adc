// SPDX-License-Identifier: Apache-2.0

// What it is worth that all workers fill one batch together (per_sample), against a worker for each
// batch. The sources sleep, so that 16 workers show on few cores, or spin.
//
//   first_batch     16 workers, batches of 256 samples of 1 ms: until the first one is there
//   steady          the same, all batches: parts of the ideal rate, which is workers / time of a sample
//   slow_sample     one sample in 2,000 takes 40 ms, 4 batches ahead: of the ideal rate of the mean
//   microsecond     1 worker, samples of 1 us (spinning): the time of all, against their sum alone
//   pinned_blocks   16 workers, 512 images of 224 x 224 x 3 bytes: pinned memory that is in use

#include <benchmark/benchmark.h>
#include <penstock/batch_producer.hpp>
#include <penstock/prefetcher.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

namespace {

using namespace penstock;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Images {
  Tensor<std::uint8_t, 2> pixels;
};

constexpr std::int64_t kBatchSize = 256;
constexpr int kWorkers = 16;

Layout<Images> layout() {
  return Layout<Images>{kBatchSize}.field(&Images::pixels, {64});
}

/// Sleeps until `end`: the time asked for, however late the sample before it was.
struct Sleeps {
  std::chrono::nanoseconds often, seldom;

  std::chrono::nanoseconds of(std::uint64_t index) const {
    return index % 2000 == 1000 ? seldom : often;
  }
  void write(std::uint64_t index, Images& batch, std::int64_t row) const {
    batch.pixels(row, 0) = static_cast<std::uint8_t>(index);
    std::this_thread::sleep_for(of(index));
  }
  void operator()(const Sample& sample, Images& batch) const {
    write(sample.index, batch, sample.row);
  }
  void operator()(const Ticket& ticket, Images& batch) const {
    for (std::size_t i = 0; i < ticket.samples.size(); ++i)
      write(ticket.samples[i], batch, static_cast<std::int64_t>(i));
  }
};

/// What a worker with nothing to do between its sleeps needs for one sample: sleeps are longer than
/// asked for.
double seconds_of_a_sample(std::chrono::nanoseconds asked) {
  constexpr int kSamples = 200;
  const auto begin = Clock::now();
  for (int i = 0; i < kSamples; ++i) std::this_thread::sleep_for(asked);
  return std::chrono::duration<double>(Clock::now() - begin).count() / kSamples;
}

struct Run {
  double first = 0, all = 0;  // seconds
};

template <class Source>
Run run(Source source, std::uint64_t batches, std::size_t depth, int workers = kWorkers) {
  PinnedPool pool;
  pool.reserve(depth + 1, BatchProducer<Images>::block_bytes(layout()));
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  BatchProducer<Images> producer{
      layout(),
      Sampler{{.samples = batches * kBatchSize, .batch_size = kBatchSize}},
      source,
      pool,
      {.workers = workers, .depth = depth}};
  Run result;
  for (std::uint64_t i = 0; producer.next(); ++i)
    if (i == 0) result.first = seconds();
  result.all = seconds();
  return result;
}

/// `rate` of one worker's ideal, in samples.
void report(benchmark::State& state, const Run& result, std::uint64_t batches,
            double seconds_of_one) {
  const auto samples = static_cast<double>(batches * kBatchSize);
  state.counters["first_ms"] = result.first * 1e3;
  state.counters["of_ideal"] = samples * seconds_of_one / kWorkers / result.all;
}

template <class Source>
void sleeping(benchmark::State& state, Source source, Sleeps sleeps, std::uint64_t batches,
              std::size_t depth) {
  const double often = seconds_of_a_sample(sleeps.often);
  const double one =
      often + std::chrono::duration<double>(sleeps.seldom - sleeps.often).count() / 2000;
  for (auto _ : state) report(state, run(source, batches, depth), batches, one);
}

void microsecond(benchmark::State& state) {
  const auto spin = [](const Sample& sample, Images& batch) {
    batch.pixels(sample.row, 0) = 1;
    for (const auto end = Clock::now() + 1us; Clock::now() < end;) {
    }
  };
  constexpr std::uint64_t kBatches = 2000;  // So that the start of the worker does not count.
  for (auto _ : state) {
    std::uint8_t bytes[64];
    Images images{Tensor<std::uint8_t, 2>(bytes, 1, 64)};
    const auto begin = Clock::now();
    for (std::uint64_t i = 0; i < kBatches * kBatchSize; ++i) spin({.index = i, .row = 0}, images);
    const double alone = std::chrono::duration<double>(Clock::now() - begin).count();
    const double shared = run(per_sample(spin), kBatches, 4, 1).all;
    state.counters["over_the_sum"] = shared / alone - 1;
  }
}

void pinned_blocks(benchmark::State& state) {
  struct Photos {
    Tensor<std::uint8_t, 4> pixels;
  };
  const auto photos = Layout<Photos>{512}.field(&Photos::pixels, {224, 224, 3});
  for (auto _ : state) {
    Prefetcher<Photos> prefetcher{photos,
                                  Sampler{{.samples = 2048, .batch_size = 512}},
                                  per_sample([](const Sample&, Photos&) {}),
                                  {.workers = kWorkers}};
    state.counters["blocks"] =
        static_cast<double>(prefetcher.stats().host_bytes) / static_cast<double>(photos.bytes());
  }
}

void add(const std::string& name, Sleeps sleeps, std::uint64_t batches, std::size_t shared_depth,
         std::size_t own_depth) {
  const auto once = [](benchmark::internal::Benchmark* benchmark) {
    benchmark->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();
  };
  once(benchmark::RegisterBenchmark((name + "/per_sample").c_str(), [=](benchmark::State& state) {
    sleeping(state, per_sample(sleeps), sleeps, batches, shared_depth);
  }));
  once(benchmark::RegisterBenchmark(
      (name + "/a worker for a batch").c_str(),
      [=](benchmark::State& state) { sleeping(state, sleeps, sleeps, batches, own_depth); }));
}

}  // namespace

int main(int argc, char** argv) {
  add("steady", {1ms, 1ms}, 64, 4, kWorkers + 2);
  add("slow_sample", {1ms, 40ms}, 64, 4, 4);
  benchmark::RegisterBenchmark("microsecond", microsecond)->Iterations(1);
  benchmark::RegisterBenchmark("pinned_blocks", pinned_blocks)->Iterations(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
