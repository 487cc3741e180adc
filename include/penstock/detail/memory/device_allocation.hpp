// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceAllocation: owns device memory from cudaMalloc or from an upstream.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/upstream.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class DeviceAllocation {
 public:
  DeviceAllocation() = default;

  /// Allocates on the current device, with an alignment of 512 bytes. Throws CudaError, or
  /// MemoryError for an upstream.
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

  /// Frees the memory. `idle`: no work of the device uses it any more. If it is not idle, cudaFree
  /// waits for that work; but an upstream could reuse the memory at once, so the memory is leaked.
  void free(bool idle) noexcept {
    if (idle || !from_upstream_)
      memory_.reset();
    else
      static_cast<void>(memory_.release());
  }

 private:
  static constexpr std::size_t kAlignment = 512;  // the alignment of cudaMalloc

  bool from_upstream_ = false;
  OwnedMemory memory_;
  std::byte* data_ = nullptr;
};

}  // namespace penstock::detail
