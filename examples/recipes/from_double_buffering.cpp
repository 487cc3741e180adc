// SPDX-License-Identifier: Apache-2.0

// docs/recipes/from-double-buffering.md: the same loop twice. By hand: two pinned buffers, two
// device buffers, two streams, four events. Then as a pipeline. Exit code 0: both compute the
// same.

#include <array>
#include <cstdint>
#include <iostream>
#include <penstock/penstock.hpp>

namespace {

struct Numbers {
  penstock::Tensor<std::int64_t, 1> values;  // sample
};

constexpr std::int64_t kBatch = 1'000, kBatches = 50;
constexpr std::size_t kBytes = kBatch * sizeof(std::int64_t);

/// Stands for a kernel: adds all values of a batch to *sum.
struct Add {
  const std::int64_t* values;
  std::int64_t* sum;

  __host__ __device__ void operator()(std::int64_t) const {
    for (std::int64_t i = 0; i < kBatch; ++i) *sum += values[i];
  }
};

/// Stands for reading and decoding.
void fill(std::int64_t batch, std::int64_t* values) {
  for (std::int64_t i = 0; i < kBatch; ++i) values[i] = (batch * kBatch + i) % 1'237;
}

void check(cudaError_t status) {
  if (status != cudaSuccess) throw penstock::CudaError(status, cudaGetErrorString(status));
}

void by_hand(std::int64_t* sum, cudaStream_t compute) {
  const penstock::Stream copies;
  std::array<penstock::Event, 2> copied, consumed;
  std::array<void*, 2> host{}, device{};
  for (std::size_t i = 0; i < 2; ++i) {
    check(cudaHostAlloc(&host[i], kBytes, cudaHostAllocDefault));
    check(cudaMalloc(&device[i], kBytes));
  }
  for (std::int64_t batch = 0; batch < kBatches; ++batch) {
    const auto i = static_cast<std::size_t>(batch % 2);
    copied[i].synchronize();  // the host waits: is pinned buffer i free?
    fill(batch, static_cast<std::int64_t*>(host[i]));
    consumed[i].make_wait(copies.get());  // the copy waits: is device buffer i free?
    check(cudaMemcpyAsync(device[i], host[i], kBytes, cudaMemcpyHostToDevice, copies.get()));
    copied[i].record(copies.get());
    copied[i].make_wait(compute);  // the kernel waits: is the batch there?
    penstock::for_each(compute, 1, Add{static_cast<const std::int64_t*>(device[i]), sum});
    consumed[i].record(compute);
  }
  check(cudaStreamSynchronize(compute));  // the buffers may be freed now
  for (std::size_t i = 0; i < 2; ++i) {
    check(cudaFreeHost(host[i]));
    check(cudaFree(device[i]));
  }
}

void with_penstock(std::int64_t* sum, cudaStream_t compute) {
  penstock::Prefetcher<Numbers> prefetcher{
      penstock::Layout<Numbers>{kBatch}.field(&Numbers::values, {}),
      {.samples = kBatch * kBatches},
      [](const penstock::Ticket& ticket, Numbers& batch) {
        fill(static_cast<std::int64_t>(ticket.batch), batch.values.data_handle());
      },
      {.workers = 2}};
  while (const auto batch = prefetcher.next(compute))
    penstock::for_each(compute, 1, Add{batch->values.data_handle(), sum});
}

std::int64_t run(void (*loop)(std::int64_t* sum, cudaStream_t compute)) {
  const penstock::Stream compute;
  penstock::DeviceArena arena{1, sizeof(std::int64_t)};
  const penstock::DeviceSlot slot = arena.acquire(compute.get());
  auto* const sum = reinterpret_cast<std::int64_t*>(slot.data());
  check(cudaMemsetAsync(sum, 0, sizeof *sum, compute.get()));
  loop(sum, compute.get());
  std::int64_t result = 0;
  penstock::Readback<std::int64_t> line{1};
  line.push(sum, compute.get(), [&](std::int64_t value) { result = value; });
  line.drain();
  return result;
}

}  // namespace

int main() {
  const std::int64_t hand = run(by_hand), pipeline = run(with_penstock);
  if (hand == 0 || hand != pipeline) {
    std::cerr << "by hand: " << hand << ", as a pipeline: " << pipeline << '\n';
    return 1;
  }
  std::cout << "both loops add up to " << hand << '\n';
  return 0;
}
