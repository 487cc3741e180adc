// SPDX-License-Identifier: Apache-2.0
#pragma once

// DeviceArray<T>: owned memory of the current device, all zeros at the start. Construction and
// destruction wait for the device. A moved-from array is empty.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "../../common/check.hpp"

namespace resnet {

template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::int64_t size) : DeviceArray() {  // so the destructor is there already
    size_ = static_cast<std::size_t>(size);
    if (size_ == 0) return;
    void* memory = nullptr;
    examples::check(cudaMalloc(&memory, bytes()), "cudaMalloc");
    data_ = static_cast<T*>(memory);
    examples::check(cudaMemset(memory, 0, bytes()), "cudaMemset");
    examples::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    DeviceArray taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) cudaFree(data_);
  }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return size_ * sizeof(T); }

  /// Waits for `stream`, and so for the copy. `values` is as long as this.
  void set(const std::vector<T>& values, cudaStream_t stream) {
    examples::check(cudaMemcpyAsync(data_, values.data(), bytes(), cudaMemcpyHostToDevice, stream),
                    "cudaMemcpyAsync");
    examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  /// Waits for `stream`.
  std::vector<T> get(cudaStream_t stream) const {
    std::vector<T> values(size_);
    examples::check(cudaMemcpyAsync(values.data(), data_, bytes(), cudaMemcpyDeviceToHost, stream),
                    "cudaMemcpyAsync");
    examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace resnet
