// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every operation needs beside its arguments: how numbers lie in memory, how wide the device
// is, and memory to work in.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <string>
#include <vector>

#include "../ops.hpp"

namespace resnet::cudnn {

/// Device memory that operations share: each may use all of it, since they run one after the other
/// in stream order. It only grows; what it was before stays allocated, because a captured graph may
/// still write there.
class Workspace {
 public:
  /// Enough for every operation but convolutions, which ask for more.
  static constexpr std::size_t first_bytes = std::size_t{32} << 20;

  Workspace() { reserve(first_bytes); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() {
    for (void* block : blocks_) cudaFree(block);
  }

  /// Allocates, and may synchronise, unless there is as much already. At least twice what there
  /// was: all blocks together are then at most twice the last.
  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    bytes = std::max(bytes, 2 * bytes_);
    blocks_.reserve(blocks_.size() + 1);
    void* block = nullptr;
    penstock::detail::check(cudaMalloc(&block, bytes), "cudaMalloc", bytes);
    blocks_.push_back(block);
    bytes_ = bytes;
  }

  void* data() const noexcept { return blocks_.back(); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::vector<void*> blocks_;
  std::size_t bytes_ = 0;  ///< of the last block
};

struct Context {
  Precision precision = Precision::fp32;
  Format format = Format::nchw;
  Fusion fusion = Fusion::none;
  int multiprocessors = 1;
  Workspace workspace;

  /// The first bytes of the workspace, for an operation that knows that they are enough.
  template <class T>
  T* scratch(std::size_t count) const {
    if (count * sizeof(T) > workspace.bytes())
      throw UnsupportedOperation("an operation needs " + std::to_string(count * sizeof(T)) +
                                 " bytes to work in, more than there are");
    return static_cast<T*>(workspace.data());
  }
};

/// Of the current device.
inline int multiprocessors() {
  int count = 0;
  const int device = penstock::current_device();
  penstock::detail::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                          "cudaDeviceGetAttribute", device);
  return count;
}

/// Of a kernel's launch. Does not synchronise: errors of the kernel's run come up later.
inline void check_launch(const char* kernel) {
  penstock::detail::check(cudaGetLastError(), kernel);
}

}  // namespace resnet::cudnn
