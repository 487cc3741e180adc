// SPDX-License-Identifier: Apache-2.0
#pragma once

// Staging: page-locked memory that is written by the host, and device memory that it is copied to.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI::video {

struct FreePinned {
  void operator()(std::byte* memory) const noexcept { cudaFreeHost(memory); }
};
struct FreeDevice {
  void operator()(std::byte* memory) const noexcept { cudaFree(memory); }
};
using PinnedMemory = std::unique_ptr<std::byte, FreePinned>;

/// Throws CudaError, which says what to change.
inline PinnedMemory pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  penstock::detail::check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc",
                          bytes);
  return PinnedMemory(static_cast<std::byte*>(memory));
}

/// Both memories have the same size and the same contents, once they are copied.
struct Staging {
  /// Allocates on the current device. Throws CudaError.
  explicit Staging(std::size_t bytes) try : host(pinned_memory(bytes)) {
    void* memory = nullptr;
    penstock::detail::check(cudaMalloc(&memory, bytes), "cudaMalloc", bytes);
    device.reset(static_cast<std::byte*>(memory));
  } catch (const CudaError& error) {
    if (error.code() != cudaErrorMemoryAllocation) throw;
    throw CudaError(error.code(), "ClipReader: each worker takes twice " + std::to_string(bytes) +
                                      " bytes of the device and of page-locked memory: lower "
                                      "staging_bytes. " +
                                      error.what());
  }

  PinnedMemory host;
  std::unique_ptr<std::byte, FreeDevice> device;
  Event free{cudaEventDisableTiming | cudaEventBlockingSync};  ///< both memories have been read
};

}  // namespace penstock::video
