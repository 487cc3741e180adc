// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumerStreams: which streams take the batches. Where several streams take them in turn, each
// has its own work and its own waits.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock::detail {

/// One thread at a time may use it.
class ConsumerStreams {
 public:
  /// Streams that took none of so many batches are not taking them in turn.
  static constexpr std::uint64_t kTurns = 8;
  /// Streams that have numbers; beyond them, the oldest number is given away.
  static constexpr std::size_t kMost = 16;

  /// How many batches ago `stream` took its last one. 1: it took the last batch, or none of the
  /// last kTurns. 0: there was no batch yet.
  std::uint64_t turns(cudaStream_t stream) const {
    const std::uint64_t known = std::min(taken_, kTurns);
    for (std::uint64_t ago = 1; ago <= known; ++ago)
      if (recent_.at((taken_ - ago) % kTurns) == stream) return ago;
    return std::min<std::uint64_t>(taken_, 1);
  }

  /// `stream` takes a batch. Returns the stream's number, below kMost, in the order of first
  /// batches.
  int note(cudaStream_t stream) {
    recent_.at(taken_++ % kTurns) = stream;
    const auto first = numbered_.begin(), last = first + std::min(streams_, kMost);
    const auto known = std::find(first, last, stream);
    if (known != last) return static_cast<int>(known - first);
    const std::size_t number = streams_++ % kMost;
    numbered_.at(number) = stream;
    return static_cast<int>(number);
  }

 private:
  std::array<cudaStream_t, kTurns> recent_{};  // of batch k at k % kTurns
  std::array<cudaStream_t, kMost> numbered_{};
  std::uint64_t taken_ = 0;  // batches
  std::size_t streams_ = 0;  // that have been numbered
};

}  // namespace penstock::detail
