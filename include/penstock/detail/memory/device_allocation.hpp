// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceAllocation: device memory, of cudaMalloc or of an upstream.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/upstream.hpp>

namespace penstock::detail {

class DeviceAllocation {
 public:
  DeviceAllocation() = default;

  /// On the current device, 512-byte aligned. Throws CudaError, or MemoryError for an upstream.
  DeviceAllocation(std::size_t bytes, const Upstream& upstream) {
    const CaptureModeGuard guard;
    if (upstream) {
      constexpr std::size_t kMore = kAlignment - upstream_alignment;
      const Free free{upstream.resource(), bytes + kMore, current_device()};
      memory_ = {take_from(*free.upstream, free.bytes, MemoryKind::device), free};
    } else {
      void* memory = nullptr;
      check(cudaMalloc(&memory, bytes), "cudaMalloc", bytes);
      memory_ = {static_cast<std::byte*>(memory), Free{}};
    }
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(memory_.get()) % kAlignment;
    data_ = memory_.get() + (kAlignment - beyond) % kAlignment;
  }

  std::byte* data() const noexcept { return data_; }

  /// Frees it. `idle`: no work of the device uses it any more. cudaFree waits for such work itself;
  /// an upstream would give the memory to others, so it never gets it back then.
  void free(bool idle) noexcept {
    if (idle || memory_.get_deleter().upstream == nullptr)
      memory_.reset();
    else
      static_cast<void>(memory_.release());
  }

 private:
  static constexpr std::size_t kAlignment = 512;  // as cudaMalloc's

  struct Free {
    void operator()(std::byte* memory) const noexcept {
      if (upstream == nullptr) {
        cudaFree(memory);
        return;
      }
      try {
        const DeviceGuard guard(device);
        return_to(*upstream, memory, bytes);
      } catch (const CudaError&) {  // Without its device there is no memory to give back.
      }
    }

    std::shared_ptr<AnyUpstream> upstream;
    std::size_t bytes;
    int device;
  };

  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_ = nullptr;
};

}  // namespace penstock::detail
