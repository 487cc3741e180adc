// SPDX-License-Identifier: Apache-2.0
#pragma once

// Managed memory for tests, and what the runtime tells of its pages.

#include <cstddef>
#include <cstdint>

#include "catch.hpp"

namespace penstock::test {

inline constexpr cudaMemLocation kDevice0{cudaMemLocationTypeDevice, 0};
inline constexpr cudaMemLocation kHost{cudaMemLocationTypeHost, 0};

/// Whether host and device may use managed memory at the same time: advice and prefetches need it.
inline bool managed_memory_is_concurrent() {
  int supported = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrConcurrentManagedAccess, 0));
  return supported != 0;
}

/// Every system's page size divides it.
inline constexpr std::size_t kPageBytes = std::size_t{64} << 10;

/// Managed memory in pages of this size.
class ManagedPages {
 public:
  explicit ManagedPages(std::size_t pages) : bytes_(pages * kPageBytes) {
    void* data = nullptr;
    REQUIRE_CUDA(cudaMallocManaged(&data, bytes_, cudaMemAttachGlobal));
    data_ = static_cast<std::uint8_t*>(data);
  }
  ~ManagedPages() { CHECK_CUDA(cudaFree(data_)); }
  ManagedPages(const ManagedPages&) = delete;
  ManagedPages& operator=(const ManagedPages&) = delete;

  std::uint8_t* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  std::uint8_t* page(std::size_t number) const noexcept { return data_ + number * kPageBytes; }

 private:
  std::size_t bytes_;
  std::uint8_t* data_ = nullptr;
};

/// An attribute that is one number.
inline int range_attribute(cudaMemRangeAttribute attribute, const void* data, std::size_t bytes) {
  int value = 77;
  REQUIRE_CUDA(cudaMemRangeGetAttribute(&value, sizeof(value), attribute, data, bytes));
  return value;
}

}  // namespace penstock::test
