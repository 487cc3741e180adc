// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceAllocation: device memory, of cudaMalloc or of an upstream.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/upstream.hpp>

namespace penstock::detail {

class DeviceAllocation {
 public:
  DeviceAllocation() = default;

  /// On the current device, 512-byte aligned. Throws CudaError, or MemoryError for an upstream.
  DeviceAllocation(std::size_t bytes, const Upstream& upstream) : from_upstream_(upstream) {
    const CaptureModeGuard guard;
    if (upstream) {
      memory_ = take_from(upstream, bytes + kAlignment - upstream_alignment, MemoryKind::device);
    } else {
      void* memory = nullptr;
      check(cudaMalloc(&memory, bytes), "cudaMalloc", bytes);
      memory_ = {static_cast<std::byte*>(memory), [](std::byte* block) { cudaFree(block); }};
    }
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(memory_.get()) % kAlignment;
    data_ = memory_.get() + (kAlignment - beyond) % kAlignment;
  }

  std::byte* data() const noexcept { return data_; }

  /// Frees it. `idle`: no work of the device uses it any more. cudaFree waits for such work itself;
  /// an upstream would give the memory to others, so it never gets it back then.
  void free(bool idle) noexcept {
    if (idle || !from_upstream_)
      memory_.reset();
    else
      static_cast<void>(memory_.release());
  }

 private:
  static constexpr std::size_t kAlignment = 512;  // as cudaMalloc's

  bool from_upstream_ = false;
  OwnedMemory memory_;
  std::byte* data_ = nullptr;
};

}  // namespace penstock::detail
