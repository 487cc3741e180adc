// SPDX-License-Identifier: Apache-2.0

// What the statistics cost for a batch. The first cases are the bookkeeping alone, on one thread;
// the counter `of_1ms_step` is that time as a part of a step of 1 ms, in percent. The last ones are
// the whole pipeline on empty batches, without and with device_times.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <penstock/detail/observe/device_samples.hpp>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/timeline.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/prefetcher.hpp>

namespace {

using namespace penstock;

/// Sets the counter when its life, that of the loop, ends: what the loop has queued is not waited
/// for.
class PartOfStep {
 public:
  explicit PartOfStep(benchmark::State& state) : state_(state) {}
  ~PartOfStep() {
    const std::chrono::duration<double, std::milli> time = Clock::now() - begin_;
    state_.counters["of_1ms_step"] = 100 * time.count() / static_cast<double>(state_.iterations());
  }
  PartOfStep(const PartOfStep&) = delete;
  PartOfStep& operator=(const PartOfStep&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  benchmark::State& state_;
  const Clock::time_point begin_ = Clock::now();
};

/// What a worker notes of itself, beside the records.
void worker(benchmark::State& state) {
  detail::WorkerTrace trace;
  std::uint64_t number = 0;
  const PartOfStep part(state);
  for (auto _ : state) {
    ++number;
    trace.work_on(number, static_cast<detail::Ticks>(number));
    trace.count_work(1);
    trace.count_batch(3072);
    trace.rest();
  }
  benchmark::DoNotOptimize(trace.busy());
}

/// The stamps of a batch, and its place in the timeline.
void records(benchmark::State& state) {
  detail::Timeline timeline(8);
  std::uint64_t number = 0;
  detail::Ticks now = detail::ticks();
  const PartOfStep part(state);
  for (auto _ : state) {
    detail::BatchTimes times{.wanted = now, .opened = now};
    times.filled = detail::ticks();
    times.work = static_cast<std::uint64_t>(times.filled - times.opened);
    times.staged = detail::ticks();
    now = detail::ticks();
    times.asked = detail::ticks();
    times.taken = std::max(times.asked, times.staged);
    times.released = detail::ticks();
    timeline.add(number, number, times);
    ++number;
  }
  benchmark::DoNotOptimize(timeline.sums());
}

/// The event that a consumer waits for, which is no part of the statistics.
void copied_event(benchmark::State& state) {
  const Stream stream;
  Event copied;
  for (auto _ : state) copied.record(stream.get());
  stream.synchronize();
}

/// The device's side: that event, and what is recorded and read of the copy and of the consumer.
void samples(benchmark::State& state, bool device_times) {
  const Stream copies, consumer;
  Event copied;
  detail::Timeline timeline(8);
  detail::DeviceSamples samples(timeline, detail::DeviceSamples::Kind::copies, 8, device_times);
  std::uint64_t number = 0;
  {
    const PartOfStep part(state);
    for (auto _ : state) {
      const detail::Ticks now = detail::ticks();
      detail::DeviceSamples::Copy copy = samples.want(copies.get(), now);
      samples.begin(copy);
      samples.arrive(copy);
      copied.record(copies.get());
      samples.hand_in(std::move(copy), number, now);
      samples.ask(consumer.get(), number);
      samples.find(consumer.get());
      samples.take(consumer.get(), number++);
      samples.collect_now_and_then(now);
    }
  }
  consumer.synchronize();
  copies.synchronize();
}

struct Tiny {
  Tensor<std::uint8_t, 1> value;
};

Prefetcher<Tiny> make_prefetcher(bool device_times) {
  return {Layout<Tiny>{1}.field(&Tiny::value, {}),
          Sampler{{.samples = 1'000'000, .batch_size = 1}},
          [](const Ticket&, Tiny&) {},
          {.workers = 1,
           .host_depth = 16,
           .epochs = std::numeric_limits<std::uint32_t>::max(),
           .device_times = device_times}};
}

void next_and_release(benchmark::State& state, bool device_times) {
  const Stream stream;
  auto prefetcher = make_prefetcher(device_times);
  for (int i = 0; i < 100; ++i) prefetcher.next(stream.get()).release();
  for (auto _ : state) {
    const auto batch = prefetcher.next(stream.get());
    benchmark::DoNotOptimize(batch->value.data_handle());
  }
  stream.synchronize();
}

/// A snapshot, as a watch takes now and then.
void snapshot(benchmark::State& state, bool device_times) {
  const Stream stream;
  auto prefetcher = make_prefetcher(device_times);
  for (int i = 0; i < 100; ++i) prefetcher.next(stream.get()).release();
  for (auto _ : state) benchmark::DoNotOptimize(prefetcher.stats());
  stream.synchronize();
}

BENCHMARK(worker);
BENCHMARK(records);
BENCHMARK(copied_event)->UseRealTime();
BENCHMARK_CAPTURE(samples, sampled, false)->UseRealTime();
BENCHMARK_CAPTURE(samples, device_times, true)->UseRealTime();
BENCHMARK_CAPTURE(next_and_release, sampled, false)->UseRealTime();
BENCHMARK_CAPTURE(next_and_release, device_times, true)->UseRealTime();
BENCHMARK_CAPTURE(snapshot, sampled, false)->UseRealTime();
BENCHMARK_CAPTURE(snapshot, device_times, true)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
