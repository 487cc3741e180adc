// SPDX-License-Identifier: Apache-2.0
#pragma once

// StreamTurns: how many batches ago a stream took its last one. Where several streams take batches
// in turn, each of them has its own work and its own waits.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace penstock::detail {

/// By one thread at a time.
class StreamTurns {
 public:
  static constexpr std::uint64_t kMost = 8;

  /// 1: `stream` took the last batch, or none of the last kMost. 0: there was no batch yet.
  std::uint64_t since(cudaStream_t stream) const {
    for (std::uint64_t ago = 1; ago <= count_; ++ago)
      if (streams_[ago - 1] == stream) return ago;
    return std::min<std::uint64_t>(count_, 1);
  }
  void note(cudaStream_t stream) {
    std::move_backward(streams_.begin(), streams_.end() - 1, streams_.end());
    streams_.front() = stream;
    count_ = std::min(count_ + 1, kMost);
  }

 private:
  std::array<cudaStream_t, kMost> streams_{};  // of the last batches, the latest first
  std::uint64_t count_ = 0;
};

}  // namespace penstock::detail
