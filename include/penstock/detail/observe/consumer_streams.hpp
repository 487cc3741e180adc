// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumerStreams: which streams take the batches. If several streams take them in turn, each has
// its own work and its own waits.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Not thread-safe.
class ConsumerStreams {
 public:
  /// A stream that took none of the last kTurns batches does not count as one that takes turns.
  static constexpr std::uint64_t kTurns = 8;
  /// The number of streams that have numbers. A further stream gets the oldest number.
  static constexpr std::size_t kMaxNumbers = 16;

  /// Returns how many batches ago `stream` took its last one. 1: it took the last batch, or none of
  /// the last kTurns. 0: no batch was taken yet.
  std::uint64_t turns(cudaStream_t stream) const {
    const std::uint64_t known = std::min(taken_, kTurns);
    for (std::uint64_t ago = 1; ago <= known; ++ago)
      if (recent_.at((taken_ - ago) % kTurns) == stream) return ago;
    return std::min<std::uint64_t>(taken_, 1);
  }

  /// Records that `stream` takes a batch. Returns the stream's number, below kMaxNumbers. Streams
  /// are numbered in the order of their first batches.
  int note(cudaStream_t stream) {
    recent_.at(taken_++ % kTurns) = stream;
    const auto first = numbered_.begin(), last = first + std::min(streams_, kMaxNumbers);
    const auto known = std::find(first, last, stream);
    if (known != last) return static_cast<int>(known - first);
    const std::size_t number = streams_++ % kMaxNumbers;
    numbered_.at(number) = stream;
    return static_cast<int>(number);
  }

 private:
  std::array<cudaStream_t, kTurns> recent_{};  // The stream of batch k is at k % kTurns.
  std::array<cudaStream_t, kMaxNumbers> numbered_{};
  std::uint64_t taken_ = 0;  // number of batches
  std::size_t streams_ = 0;  // how many have got a number
};

}  // namespace penstock::detail
