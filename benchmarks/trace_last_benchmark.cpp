// SPDX-License-Identifier: Apache-2.0

// What it costs to keep the last moments of a run (SessionOptions::last) in place of all of it, for
// one thread: a range of markers.hpp, a call; no session, one that keeps all, one that keeps the
// last second. And what a dump costs: the time of Session::recent, and the longest time that a
// range took on a thread that records, while dumps are made one after the other and while none is.

#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <penstock/markers.hpp>
#include <penstock/trace/session.hpp>
#include <thread>

namespace {

using penstock::trace::Session;
using penstock::trace::SessionOptions;
using Clock = std::chrono::steady_clock;

constexpr int kNone = 0, kWhole = 1;  // else the last second

std::unique_ptr<Session> session_for(benchmark::State& state) {
  if (state.range(0) == kNone) return nullptr;
  SessionOptions options;
  if (state.range(0) != kWhole) options.last = std::chrono::seconds(1);
  return std::make_unique<Session>(options);
}

void one_range(std::uint64_t number) {
  const penstock::ScopedRange range(penstock::markers::fill, number);
}

void range(benchmark::State& state) {
  const auto session = session_for(state);
  std::uint64_t number = 0;
  for (auto _ : state) one_range(++number);
}

void call(benchmark::State& state) {
  const auto session = session_for(state);
  for (auto _ : state) benchmark::DoNotOptimize(cudaStreamQuery(cudaStreamLegacy));
}

/// Of so many events.
void recent(benchmark::State& state) {
  SessionOptions options;
  options.last = std::chrono::hours(1);
  Session session(options);
  const auto events = static_cast<std::uint64_t>(state.range(0));
  for (std::uint64_t i = 0; i < events; ++i) one_range(i);
  for (auto _ : state) benchmark::DoNotOptimize(session.recent().events.size());
}

/// A range each 100 microseconds, beside `state.range(0)` events and dumps (1) or none (0).
void longest_range(benchmark::State& state) {
  SessionOptions options;
  options.last = std::chrono::hours(1);
  Session session(options);
  const auto events = static_cast<std::uint64_t>(state.range(0));
  for (std::uint64_t i = 0; i < events; ++i) one_range(i);
  std::atomic<bool> ends{false};
  std::thread dumps([&] {
    while (!ends)
      if (state.range(1) != 0)
        benchmark::DoNotOptimize(session.recent().events.size());
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  Clock::duration longest{0};
  for (auto _ : state) {
    const Clock::time_point begin = Clock::now();
    one_range(0);
    longest = std::max(longest, Clock::now() - begin);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ends = true;
  dumps.join();
  state.counters["longest_us"] = std::chrono::duration<double, std::micro>(longest).count();
}

BENCHMARK(range)->Arg(kNone)->Arg(kWhole)->Arg(2)->Iterations(100'000)->Repetitions(7);
BENCHMARK(call)->Arg(kNone)->Arg(kWhole)->Arg(2)->Iterations(100'000)->Repetitions(7);
BENCHMARK(recent)->Arg(10'000)->Arg(1'000'000)->Unit(benchmark::kMillisecond)->Iterations(5);
BENCHMARK(longest_range)
    ->Args({100'000, 0})
    ->Args({100'000, 1})
    ->Iterations(10'000)
    ->Repetitions(3);

}  // namespace

BENCHMARK_MAIN();
