// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arena: one piece of device memory for many arrays. A function places them, once to count their
// bytes and once, behind allocate(), for good:
//
//   Arena arena;
//   const auto place = [&] { weights = arena.take<float>(n); moments = arena.take<float>(n); };
//   place();
//   arena.allocate();
//   place();

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../common/check.hpp"

namespace gpt {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    if (memory_ != nullptr) cudaFree(memory_);
  }

  /// `count` elements, at a multiple of 256 bytes. Before allocate() it is null.
  template <class T>
  T* take(std::int64_t count) {
    constexpr std::size_t kMultiple = 256;
    const std::size_t begin = taken_;
    taken_ += (static_cast<std::size_t>(count) * sizeof(T) + kMultiple - 1) / kMultiple * kMultiple;
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + begin);
  }
  /// Allocates what was taken so far, all zeros. Throws penstock::CudaError.
  void allocate() {
    void* memory = nullptr;
    examples::check(cudaMalloc(&memory, taken_), "cudaMalloc");
    memory_ = static_cast<std::byte*>(memory);
    examples::check(cudaMemset(memory, 0, taken_), "cudaMemset");
    examples::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    taken_ = 0;
  }
  std::size_t bytes() const { return taken_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t taken_ = 0;
};

}  // namespace gpt
