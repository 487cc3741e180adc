// SPDX-License-Identifier: Apache-2.0

// cccl: the fields of a lease in Thrust's algorithms, on the consumer's stream. Sensors record
// windows of sound; the program sums up the energy of each sensor's windows, batch by batch, and
// allocates nothing on the way. The same file is compiled as C++ over the emulated runtime and, by
// way of cccl.cu, as CUDA C++. Exit codes: 0 done, 1 a check failed or an exception.

#include "in_order.hpp"  // first: it chooses Thrust's system

#include <cuda_runtime_api.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/execution_policy.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory_resource>
#include <penstock/penstock.hpp>
#include <vector>

#include "../common/check.hpp"

#ifdef __CUDACC__
#define CCCL_HOST_DEVICE __host__ __device__
#else
#define CCCL_HOST_DEVICE
#endif

namespace cccl_example {

constexpr std::uint64_t kWindows = 20'000;
constexpr std::int64_t kBatch = 256, kLength = 128;  // windows, values of a window
constexpr std::int32_t kSensors = 16;

struct Windows {
  penstock::Tensor<std::int16_t, 2> sound;   // window x kLength
  penstock::Tensor<std::int32_t, 1> sensor;  // window
};

/// Stands for a recording.
void record(std::uint64_t number, std::int16_t* sound, std::int32_t& sensor) {
  std::uint64_t state = number * 0x9E3779B97F4A7C15u + 1;
  for (std::int64_t i = 0; i < kLength; ++i) {
    state = state * 6364136223846793005u + 1;
    sound[i] = static_cast<std::int16_t>(state >> 48);
  }
  sensor = static_cast<std::int32_t>(state >> 40) & (kSensors - 1);
}

/// Of a window. A lease's field is a cuda::std::mdspan: it goes into a functor by value.
struct Energy {
  penstock::Tensor<std::int16_t, 2> sound;

  CCCL_HOST_DEVICE std::int64_t operator()(std::int64_t window) const {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < sound.extent(1); ++i) {
      const std::int64_t value = sound(window, i);
      sum += value * value;
    }
    return sum;
  }
};

/// Adds the energies of a sensor's windows, which lie one behind the other.
struct AddUp {
  const std::int32_t *sensors, *sensors_end;  // sorted
  const std::int64_t* energies;
  std::int64_t* totals;

  CCCL_HOST_DEVICE void operator()(std::int32_t sensor) const {
    const auto range = thrust::equal_range(thrust::seq, sensors, sensors_end, sensor);
    for (const std::int32_t* at = range.first; at != range.second; ++at)
      totals[sensor] += energies[at - sensors];
  }
};

/// Memory of the steps, allocated once.
struct Workspace {
  penstock::DeviceArena arena{3, kBatch * sizeof(std::int64_t)};
  penstock::DeviceSlot sensors, energies, totals;
  penstock::DeviceArena scratch{2, std::size_t{1} << 20};
  penstock::DeviceArenaResource temporary{scratch};

  explicit Workspace(cudaStream_t stream)
      : sensors(arena.acquire(stream)),
        energies(arena.acquire(stream)),
        totals(arena.acquire(stream)) {
    examples::check(cudaMemsetAsync(totals.data(), 0, kSensors * sizeof(std::int64_t), stream),
                    "cudaMemsetAsync");
  }
};

void add_batch(const Windows& batch, Workspace& workspace, cudaStream_t stream) {
  const std::int64_t windows = batch.sensor.extent(0);
  auto* const sensors = reinterpret_cast<std::int32_t*>(workspace.sensors.data());
  auto* const energies = reinterpret_cast<std::int64_t*>(workspace.energies.data());
  auto* const totals = reinterpret_cast<std::int64_t*>(workspace.totals.data());
  examples::in_order(stream, workspace.temporary, [=](const auto& policy) {
    const std::int32_t* const first = batch.sensor.data_handle();
    thrust::copy(policy, first, first + windows, sensors);
    const thrust::counting_iterator<std::int64_t> window(0);
    thrust::transform(policy, window, window + windows, energies, Energy{batch.sound});
    thrust::sort_by_key(policy, sensors, sensors + windows, energies);
    const thrust::counting_iterator<std::int32_t> sensor(0);
    thrust::for_each(policy, sensor, sensor + kSensors,
                     AddUp{sensors, sensors + windows, energies, totals});
  });
}

/// The same on the host.
std::vector<std::int64_t> expected() {
  std::vector<std::int64_t> totals(kSensors);
  std::vector<std::int16_t> sound(kLength);
  for (std::uint64_t number = 0; number < kWindows; ++number) {
    std::int32_t sensor = 0;
    record(number, sound.data(), sensor);
    const Energy energy{penstock::Tensor<std::int16_t, 2>(sound.data(), 1, kLength)};
    totals[static_cast<std::size_t>(sensor)] += energy(0);
  }
  return totals;
}

int run() {
  const auto layout = penstock::Layout<Windows>{kBatch}
                          .field(&Windows::sound, {kLength})
                          .field(&Windows::sensor, {});
  const auto fill = [](const penstock::Ticket& ticket, Windows& batch) {  // on the workers
    for (std::size_t i = 0; i < ticket.samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      record(ticket.samples[i], &batch.sound(row, 0), batch.sensor(row));
    }
  };
  penstock::Prefetcher<Windows> prefetcher{
      layout, {.samples = kWindows, .shuffle = true, .seed = 1}, fill, {.workers = 2}};

  penstock::Stream stream;
  Workspace workspace(stream.get());
  while (const auto batch = prefetcher.next(stream.get()))
    add_batch(*batch, workspace, stream.get());

  // A container of the standard library, in page-locked memory.
  penstock::PinnedPool pool;
  penstock::PinnedPoolResource pinned(pool, stream.get());
  std::pmr::vector<std::int64_t> totals(kSensors, &pinned);
  examples::check(
      cudaMemcpyAsync(totals.data(), workspace.totals.data(), kSensors * sizeof(std::int64_t),
                      cudaMemcpyDeviceToHost, stream.get()),
      "cudaMemcpyAsync");
  stream.synchronize();

  const std::vector<std::int64_t> right = expected();
  int wrong = 0;
  for (std::size_t sensor = 0; sensor < kSensors; ++sensor)
    wrong += totals[sensor] != right[sensor] ? 1 : 0;
  std::printf("%llu windows, %d sensors, %d wrong\n", static_cast<unsigned long long>(kWindows),
              kSensors, wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace cccl_example

int main() try { return cccl_example::run(); } catch (const std::exception& error) {
  std::fprintf(stderr, "cccl: %s\n", error.what());
  return 1;
}
