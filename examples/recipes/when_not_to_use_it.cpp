// SPDX-License-Identifier: Apache-2.0

// docs/recipes/when-not-to-use-it.md: is the input a bottleneck at all? Two short runs without any
// pipeline tell: how long loading takes, and how long a step takes. Exit code 0: the answer for an
// input that takes long, and that for one that does not, are right.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <penstock/penstock.hpp>
#include <thread>
#include <vector>

namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

/// Times of one batch.
struct Times {
  Milliseconds load, step;

  /// The most that any input pipeline can gain: all of the load is hidden behind the step.
  double possible_gain() const { return (load + step) / step; }
  /// Workers that load as fast as the device computes.
  double enough_workers() const { return std::ceil(load / step); }
};

template <class F>
Milliseconds time_of(int times, F&& f) {
  f();  // Warm-up: files come into memory, kernels onto the device.
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) f();
  return (std::chrono::steady_clock::now() - begin) / times;
}

/// Stands for a training step: so many rounds on each value.
struct Step {
  std::uint32_t* values;
  std::int64_t rounds;

  __host__ __device__ void operator()(std::int64_t i) const {
    std::uint32_t value = values[i];
    for (std::int64_t round = 0; round < rounds; ++round) value = value * 1'664'525u + 12'345u;
    values[i] = value;
  }
};

Times measure(std::chrono::milliseconds load_takes, std::int64_t rounds) {
  constexpr std::int64_t kValues = 32;
  std::vector<std::uint32_t> host(kValues);
  const penstock::Stream stream;
  penstock::DeviceArena arena{1, kValues * sizeof(std::uint32_t)};
  const penstock::DeviceSlot slot = arena.acquire(stream.get());
  const auto load = [&] {
    std::this_thread::sleep_for(load_takes);  // your reading and decoding
    std::fill(host.begin(), host.end(), 1u);
  };
  const auto step = [&] {  // your copy and kernels
    cudaMemcpyAsync(slot.data(), host.data(), kValues * sizeof(std::uint32_t),
                    cudaMemcpyHostToDevice, stream.get());
    penstock::for_each(stream.get(), kValues,
                       Step{reinterpret_cast<std::uint32_t*>(slot.data()), rounds});
    stream.synchronize();
  };
  return {.load = time_of(10, load),   // one thread, no device
          .step = time_of(10, step)};  // the same batch again and again: no load
}

bool worth_it(const Times& times) {
  std::printf("load %.2f ms, step %.2f ms a batch: ", times.load.count(), times.step.count());
  if (times.possible_gain() < 1.1) {
    std::puts("no pipeline gains 10 %, so leave the loop as it is");
    return false;
  }
  std::printf("up to %.1f times faster with %.0f workers\n", times.possible_gain(),
              times.enough_workers());
  return true;
}

}  // namespace

int main() {
  using std::chrono::milliseconds;
  const bool slow_input = worth_it(measure(milliseconds(10), 100'000));
  const bool slow_step = worth_it(measure(milliseconds(0), 1'000'000));
  if (!slow_input || slow_step) {
    std::fprintf(stderr, "the answers are wrong\n");
    return 1;
  }
  return 0;
}
