// SPDX-License-Identifier: Apache-2.0

// docs/recipes/testing-without-a-gpu.md: tests of a pipeline over the emulated runtime: every
// schedule, CUDA calls that fail, no call of the loop allocates or blocks, and a described
// machine. Exit code 0: all passed.

#include <chrono>
#include <cstdint>
#include <iostream>
#include <penstock/emulation.hpp>
#include <penstock/penstock.hpp>
#include <stdexcept>
#include <string>

namespace {

namespace emulation = penstock::emulation;
using emulation::Schedule;

struct Numbers {
  penstock::Tensor<std::int64_t, 2> values;  // sample x 1000
};

struct Add {
  Numbers batch;
  std::int64_t* sum;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.values.extent(0); ++i) *sum += batch.values(i, 999);
  }
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

struct Result {
  std::int64_t sum = 0;
  emulation::CallClasses calls;  // of the loop
};

/// The program that is tested: the sum of the numbers 0 to 199, on the device.
Result my_loop() {
  const penstock::Stream stream;
  penstock::DeviceArena arena{1, sizeof(std::int64_t)};
  const penstock::DeviceSlot slot = arena.acquire(stream.get());
  auto* const sum = reinterpret_cast<std::int64_t*>(slot.data());
  penstock::Readback<std::int64_t> line{1};
  Result result;
  require(cudaMemsetAsync(sum, 0, sizeof *sum, stream.get()) == cudaSuccess, "cudaMemsetAsync");
  penstock::Prefetcher<Numbers> prefetcher{
      penstock::Layout<Numbers>{10}.field(&Numbers::values, {1'000}),
      {.samples = 200, .shuffle = true},
      [](const penstock::Ticket& ticket, Numbers& batch) {
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.values(i, 999) = static_cast<std::int64_t>(ticket.samples[i]);
      },
      {.workers = 2}};
  emulation::reset_counters();
  while (const auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), 1, Add{*batch, sum});
  result.calls = emulation::call_classes();
  line.push(sum, stream.get(), [&](std::int64_t value) { result.sum = value; });
  line.drain();
  return result;
}

void check_schedules() {
  for (const auto schedule : {Schedule::eager, Schedule::lazy, Schedule::random})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      emulation::reset({.schedule = schedule, .seed = seed});
      const Result result = my_loop();
      require(result.sum == 199 * 100, "the sum is " + std::to_string(result.sum));
      require(result.calls.allocating + result.calls.creating == 0, "the loop allocates");
      require(result.calls.blocking == 0, "the loop blocks");
    }
}

/// Each call of `function` fails once: a CudaError or the right sum, and nothing is leaked.
int check_failures(const std::string& function) {
  for (int n = 1;; ++n) {
    emulation::reset();
    emulation::fail_call(function, cudaErrorInvalidValue, static_cast<std::uint64_t>(n));
    try {
      require(my_loop().sum == 199 * 100, function + " failed, and the sum is wrong");
    } catch (const penstock::CudaError&) {
    }
    const bool not_reached = emulation::clear_failures();  // my_loop() makes fewer than n calls
    require(emulation::live() == emulation::Live{}, function + " failed, and something leaks");
    if (not_reached) return n - 1;
  }
}

/// 20 copies of 80,000 bytes take 20 ms at 80 MB/s.
void check_machine() {
  emulation::reset({.machine = {.host_to_device = 80e6}});
  const auto begin = std::chrono::steady_clock::now();
  my_loop();
  require(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(20), "too fast");
}

}  // namespace

int main() try {
  check_schedules();
  int failures = 0;
  for (const char* function :
       {"cudaHostAlloc", "cudaMalloc", "cudaStreamCreateWithPriority", "cudaEventCreateWithFlags",
        "cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaLaunchHostFunc"})
    failures += check_failures(function);
  check_machine();
  std::cout << "9 schedules, " << failures << " failed calls, a slow bus: all as expected\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
