// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lane: the stream, the engine and the memory with which HardwareDecoder decodes one chunk of a
// batch.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <penstock/images/jpeg_engine.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::images {

/// Both memories begin with the geometry of the chunk's rows and the space for the images that the
/// CPU decodes. Then follow pixels in device memory, and files in staging memory.
struct Lane {
  /// Allocates on the current device. Throws CudaError. The engine may be added later.
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

  /// The stream has the highest priority, because its short kernels must not wait for the
  /// consumer's. CUDA clamps the value.
  Stream stream{std::numeric_limits<int>::min()};
  Event ready;                                                 ///< decoded, on `stream`
  Event free{cudaEventDisableTiming | cudaEventBlockingSync};  ///< the kernel has read the chunk
  std::unique_ptr<std::byte, FreeDevice> device;
  std::unique_ptr<std::byte, FreePinned> staging;
  // It is destroyed first, because it may free memory in the stream's order.
  std::unique_ptr<JpegEngine> engine;
};

}  // namespace penstock::images
