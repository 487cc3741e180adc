// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device and page-locked arrays for tests, freed at the end of their scope. Allocate before a gate
// closes and free after it opens: cudaFree waits for the device.

#include <cstddef>
#include <vector>

#include "catch.hpp"

namespace penstock::test {

/// `size` values of page-locked host memory, each `value`.
template <class T>
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t size, T value = T{}, unsigned flags = cudaHostAllocDefault)
      : size_(size) {
    REQUIRE_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&data_), bytes(), flags));
    set(value);
  }
  ~PinnedMemory() { CHECK_CUDA(cudaFreeHost(data_)); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  T* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  T& operator[](std::size_t i) const noexcept { return data_[i]; }
  void set(T value) const noexcept {
    for (std::size_t i = 0; i < size_; ++i) data_[i] = value;
  }
  /// Is every value `value`?
  bool all(T value) const noexcept {
    for (std::size_t i = 0; i < size_; ++i)
      if (data_[i] != value) return false;
    return true;
  }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

/// `size` values of memory of the current device. Every byte is zero, and the device is idle, when
/// the constructor returns.
template <class T>
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t size) : size_(size) {
    REQUIRE_CUDA(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()));
    REQUIRE_CUDA(cudaMemset(data_, 0, bytes()));
    REQUIRE_CUDA(cudaDeviceSynchronize());
  }
  ~DeviceMemory() { CHECK_CUDA(cudaFree(data_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  T* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  /// The values, by a copy that waits for the whole device.
  std::vector<T> read() const {
    std::vector<T> values(size_);
    REQUIRE_CUDA(cudaDeviceSynchronize());
    REQUIRE_CUDA(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

/// Copies `values` to all of the memory, and waits until they are there: cudaMemcpy may return
/// before what it took from pageable memory, or from the device, has arrived, and non-blocking
/// streams do not wait for it.
template <class T>
void copy_and_wait(const DeviceMemory<T>& to, const void* values) {
  REQUIRE_CUDA(cudaMemcpy(to.data(), values, to.bytes(), cudaMemcpyDefault));
  REQUIRE_CUDA(cudaDeviceSynchronize());
}

/// Queues a fill of every byte. Does not block.
template <class T>
void fill_async(const DeviceMemory<T>& memory, unsigned char value, cudaStream_t stream) {
  REQUIRE_CUDA(cudaMemsetAsync(memory.data(), value, memory.bytes(), stream));
}

/// Queue a copy of everything, between sizes that are equal. Do not block.
template <class T>
void copy_async(const DeviceMemory<T>& to, const PinnedMemory<T>& from, cudaStream_t stream) {
  REQUIRE(to.bytes() == from.bytes());
  REQUIRE_CUDA(cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyHostToDevice, stream));
}
template <class T>
void copy_async(const PinnedMemory<T>& to, const DeviceMemory<T>& from, cudaStream_t stream) {
  REQUIRE(to.bytes() == from.bytes());
  REQUIRE_CUDA(cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyDeviceToHost, stream));
}

}  // namespace penstock::test
