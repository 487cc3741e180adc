// SPDX-License-Identifier: Apache-2.0

// docs/recipes/several-gpus.md: one process with a pipeline and a thread for each device. Exit
// code 0: the devices together saw each sample once.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <penstock/penstock.hpp>
#include <thread>
#include <vector>

namespace {

struct Numbers {
  penstock::Tensor<std::int64_t, 1> values;  // sample
};

/// Adds all values of a batch to *sum.
struct Add {
  Numbers batch;
  std::int64_t* sum;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < batch.values.extent(0); ++i) *sum += batch.values(i);
  }
};

/// The sum of the samples that `device` gets.
std::int64_t run(int device, int devices, std::uint64_t samples) {
  const penstock::DeviceGuard guard(device);  // What this thread makes from here on is of `device`.
  const penstock::Stream stream;
  penstock::DeviceArena arena{1, sizeof(std::int64_t)};
  const penstock::DeviceSlot slot = arena.acquire(stream.get());
  auto* const sum = reinterpret_cast<std::int64_t*>(slot.data());
  cudaMemsetAsync(sum, 0, sizeof *sum, stream.get());

  const int cores = penstock::PrefetcherOptions{}.workers;  // the default: all but one
  penstock::Prefetcher<Numbers> prefetcher{
      penstock::Layout<Numbers>{100}.field(&Numbers::values, {}),
      {.samples = samples,
       .shuffle = true,
       .seed = 7,  // the same for all: their parts are of one order
       .rank = device,
       .world_size = devices},
      [](const penstock::Ticket& ticket, Numbers& batch) {
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.values(i) = static_cast<std::int64_t>(ticket.samples[i]);
      },
      {.workers = cores / devices}};  // 0: one
  while (const auto batch = prefetcher.next(stream.get()))
    penstock::for_each(stream.get(), 1, Add{*batch, sum});

  std::int64_t result = 0;
  penstock::Readback<std::int64_t> line{1};
  line.push(sum, stream.get(), [&](std::int64_t value) { result = value; });
  line.drain();
  return result;
}

}  // namespace

int main() {
  // Over penstock::emulated there are three devices; a GPU ignores it.
  setenv("PENSTOCK_EMULATION", "devices=3", 0);  // NOLINT(concurrency-mt-unsafe): one thread yet
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::cerr << "there is no device\n";
    return 1;
  }
  const std::int64_t samples = 1'000 * devices;  // else a few are repeated: see SamplerOptions
  std::vector<std::int64_t> sums(static_cast<std::size_t>(devices));
  std::vector<std::jthread> threads;
  for (int device = 0; device < devices; ++device)
    threads.emplace_back([&, device] {
      const auto at = static_cast<std::size_t>(device);
      sums[at] = run(device, devices, static_cast<std::uint64_t>(samples));
    });
  threads.clear();  // joins them

  std::int64_t total = 0;
  for (const std::int64_t sum : sums) total += sum;
  if (total != samples * (samples - 1) / 2) {
    std::cerr << "the sum is " << total << ", not " << samples * (samples - 1) / 2 << '\n';
    return 1;
  }
  std::cout << devices << " devices saw each of " << samples << " samples once\n";
  return 0;
}
