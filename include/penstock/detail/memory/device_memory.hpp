// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceAllocation: device memory, of cudaMalloc or of an upstream.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/upstream.hpp>

namespace penstock::detail {

class DeviceAllocation {
 public:
  DeviceAllocation() = default;

  /// On the current device. Throws CudaError, or MemoryError for an upstream.
  DeviceAllocation(std::size_t bytes, const Upstream& upstream) {
    const CaptureModeGuard guard;
    const Free free{upstream.resource(), bytes, current_device()};
    if (upstream) {
      data_ = {take_from(*free.upstream, bytes, MemoryKind::device), free};
      return;
    }
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc", bytes);
    data_ = {static_cast<std::byte*>(memory), free};
  }

  std::byte* data() const noexcept { return data_.get(); }

  /// Frees it. `idle`: no work of the device uses it any more. cudaFree waits for such work itself;
  /// an upstream would give the memory to others, so it never gets it back then.
  void free(bool idle) noexcept {
    if (idle || data_.get_deleter().upstream == nullptr)
      data_.reset();
    else
      static_cast<void>(data_.release());
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept {
      if (upstream == nullptr) {
        cudaFree(memory);
        return;
      }
      try {
        const DeviceGuard guard(device);
        return_to(*upstream, memory, bytes, MemoryKind::device);
      } catch (const CudaError&) {  // Without its device there is no memory to give back.
      }
    }

    std::shared_ptr<AnyUpstream> upstream;
    std::size_t bytes;
    int device;
  };

  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace penstock::detail
