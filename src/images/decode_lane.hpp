// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lane: what HardwareDecoder needs to decode one chunk of a batch: a stream, an engine, memory.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <penstock/images/jpeg_engine.hpp>
#include <string>

namespace penstock::images {

/// Both memories begin with the geometry of the chunk's rows and the rooms of the images that the
/// CPU decodes; then come pixels on the device, and files in staging.
struct Lane {
  /// Allocates on the current device. Throws CudaError. The engine comes later, or not at all.
  Lane(std::size_t device_bytes, std::size_t staging_bytes) try {
    void* memory = nullptr;
    penstock::detail::check(cudaMalloc(&memory, device_bytes), "cudaMalloc", device_bytes);
    device.reset(static_cast<std::byte*>(memory));
    penstock::detail::check(cudaHostAlloc(&memory, staging_bytes, cudaHostAllocDefault),
                            "cudaHostAlloc", staging_bytes);
    staging.reset(static_cast<std::byte*>(memory));
  } catch (const CudaError& error) {
    if (error.code() != cudaErrorMemoryAllocation) throw;
    throw CudaError(error.code(), "HardwareDecoder: each lane takes " +
                                      std::to_string(device_bytes) + " bytes of the device and " +
                                      std::to_string(staging_bytes) +
                                      " of page-locked memory: lower device_bytes or "
                                      "staging_bytes. " +
                                      error.what());
  }

  struct FreeDevice {
    void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
  };
  struct FreePinned {
    void operator()(std::byte* memory) const noexcept { cudaFreeHost(memory); }
  };

  /// The most urgent one: its short kernels must not wait for the consumer's. CUDA clamps it.
  Stream stream{std::numeric_limits<int>::min()};
  Event ready;                                                 ///< decoded, on `stream`
  Event free{cudaEventDisableTiming | cudaEventBlockingSync};  ///< the kernel has read it
  std::unique_ptr<std::byte, FreeDevice> device;
  std::unique_ptr<std::byte, FreePinned> staging;
  std::unique_ptr<JpegEngine> engine;  // The first to go: it may free memory in the stream's order.
};

}  // namespace penstock::images
