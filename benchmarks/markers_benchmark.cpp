// SPDX-License-Identifier: Apache-2.0

// What a range costs: an empty loop, ScopedRange with a name of its own and with one of run time,
// NVTX's own scoped_range with a text and with a registered one. Without a tool, as in production;
// under nsys or penstock-trace, with it: the label says which.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <penstock/markers.hpp>

#if __has_include(<nvtx3/nvtx3.hpp>)  // since CUDA 12.9
#include <nvtx3/nvtx3.hpp>
#define HAS_NVTX_CPP
#endif

namespace {

struct Work {
  static constexpr const char* message = "work";
  static constexpr penstock::MarkerCategory category = penstock::markers::category::forward;
};

void say_whether_there_is_a_tool(benchmark::State& state) {
  state.SetLabel(std::getenv("NVTX_INJECTION64_PATH") == nullptr ? "no tool" : "with a tool");
}

/// The loop alone, with a number as a range has one.
void empty_loop(benchmark::State& state) {
  std::uint64_t number = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(++number);
    benchmark::ClobberMemory();
  }
  say_whether_there_is_a_tool(state);
}

void scoped_range(benchmark::State& state) {
  std::uint64_t number = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(++number);
    const penstock::ScopedRange range(Work{}, number);
    benchmark::ClobberMemory();
  }
  say_whether_there_is_a_tool(state);
}

void range_name(benchmark::State& state) {
  const penstock::RangeName name("epoch 3", penstock::markers::category::loop);
  std::uint64_t number = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(++number);
    const penstock::ScopedRange range(name, number);
    benchmark::ClobberMemory();
  }
  say_whether_there_is_a_tool(state);
}

#ifdef HAS_NVTX_CPP
struct Domain {
  static constexpr const char* name = "nvtx";
};
struct RegisteredWork {
  static constexpr const char* message = "work";
};

void nvtx_text(benchmark::State& state) {
  std::uint64_t number = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(++number);
    const nvtx3::scoped_range range("work");
    benchmark::ClobberMemory();
  }
  say_whether_there_is_a_tool(state);
}

/// What ScopedRange says, said with NVTX's own classes.
void nvtx_registered(benchmark::State& state) {
  std::uint64_t number = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(++number);
    const nvtx3::scoped_range_in<Domain> range(
        nvtx3::registered_string_in<Domain>::get<RegisteredWork>(), nvtx3::payload{number},
        nvtx3::color{0xff59a14f});
    benchmark::ClobberMemory();
  }
  say_whether_there_is_a_tool(state);
}
BENCHMARK(nvtx_text);
BENCHMARK(nvtx_registered);
#endif

BENCHMARK(empty_loop);
BENCHMARK(scoped_range);
BENCHMARK(range_name);

}  // namespace

BENCHMARK_MAIN();
