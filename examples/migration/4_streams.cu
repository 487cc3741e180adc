// SPDX-License-Identifier: Apache-2.0

// Step 4: page-locked memory and two streams. While the device works on one image, the host loads
// the next one. An image has a slot; before the host fills a slot again, it waits for its stream.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <nvtx3/nvtx3.hpp>

#include "images.hpp"
#include "kernels.cuh"

namespace {

using namespace migration;

/// Uninitialised page-locked memory. cudaFreeHost frees it.
template <class T>
T* pinned_array(int count) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, static_cast<std::size_t>(count) * sizeof(T)));
  return static_cast<T*>(memory);
}

struct Slot {
  std::uint8_t *pixels, *device_pixels, *device_blurred;
  std::uint16_t* device_rows;
  std::uint32_t *counts, *device_counts;
  cudaStream_t stream;
};

Slot make_slot(Shape shape) {
  Slot slot{};
  slot.pixels = pinned_array<std::uint8_t>(shape.values());
  slot.counts = pinned_array<std::uint32_t>(kBins);
  slot.device_pixels = device_array<std::uint8_t>(shape.values());
  slot.device_rows = device_array<std::uint16_t>(shape.values());
  slot.device_blurred = device_array<std::uint8_t>(shape.values());
  slot.device_counts = device_array<std::uint32_t>(kBins);
  check(cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking));
  return slot;
}

void destroy(const Slot& slot) {
  check(cudaStreamDestroy(slot.stream));
  for (void* const memory : {static_cast<void*>(slot.pixels), static_cast<void*>(slot.counts)})
    check(cudaFreeHost(memory));
  for (void* const memory :
       {static_cast<void*>(slot.device_pixels), static_cast<void*>(slot.device_rows),
        static_cast<void*>(slot.device_blurred), static_cast<void*>(slot.device_counts)})
    check(cudaFree(memory));
}

void process(const penstock::FileFolder& files, Results& results) {
  Loader load(files);
  const Shape shape = load.shape();
  const auto values = static_cast<std::size_t>(shape.values());
  const std::array slots{make_slot(shape), make_slot(shape)};

  // Two rounds more than there are images: they take the last results.
  for (std::uint64_t i = 0; i < results.images() + slots.size(); ++i) {
    const nvtx3::scoped_range step{"step"};
    const Slot& slot = slots[i % slots.size()];
    if (i >= slots.size()) {
      check(cudaStreamSynchronize(slot.stream));
      results.add(i - slots.size(), slot.counts);
    }
    if (i >= results.images()) continue;
    load(i, slot.pixels, shape);

    check(cudaMemcpyAsync(slot.device_pixels, slot.pixels, values, cudaMemcpyHostToDevice,
                          slot.stream));
    blur_rows<<<kBlocks, kThreads, 0, slot.stream>>>(slot.device_pixels, slot.device_rows, shape);
    blur_columns<<<kBlocks, kThreads, 0, slot.stream>>>(slot.device_rows, slot.device_blurred,
                                                        shape);
    check(cudaMemsetAsync(slot.device_counts, 0, kBins * sizeof(std::uint32_t), slot.stream));
    count_values<<<kBlocks, kThreads, 0, slot.stream>>>(slot.device_blurred, slot.device_counts,
                                                        shape);
    check(cudaGetLastError());
    check(cudaMemcpyAsync(slot.counts, slot.device_counts, kBins * sizeof(std::uint32_t),
                          cudaMemcpyDeviceToHost, slot.stream));
  }
  for (const Slot& slot : slots) destroy(slot);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, process);
}
