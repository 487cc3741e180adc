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

  /// How many batches ago `stream` took its last one. 1: it took the last batch, or none of the
  /// last kTurns. 0: there was no batch yet.
  std::uint64_t turns(cudaStream_t stream) {
    const Known* const known = find(stream);
    const std::uint64_t ago = known != nullptr ? taken_ - known->last : kTurns + 1;
    return ago <= kTurns ? ago : std::min<std::uint64_t>(taken_, 1);
  }

  /// `stream` takes a batch. Returns the stream's number, in the order of first batches: from 0.
  /// A stream that has taken none of very many batches may get another number.
  int note(cudaStream_t stream) {
    Known* known = find(stream);
    if (known == nullptr) {
      known = std::min_element(known_.begin(), known_.end(), [](const Known& a, const Known& b) {
        return a.takes && b.takes ? a.last < b.last : a.takes < b.takes;
      });
      *known = {stream, true, taken_, streams_++};
    }
    known->last = taken_++;
    return known->number;
  }

 private:
  struct Known {
    cudaStream_t stream = nullptr;
    bool takes = false;
    std::uint64_t last = 0;  // the count of batches before its last one
    int number = 0;
  };

  Known* find(cudaStream_t stream) {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) {
      return one.takes && one.stream == stream;
    });
    return known == known_.end() ? nullptr : &*known;
  }

  std::array<Known, std::size_t{2 * kTurns}> known_{};
  std::uint64_t taken_ = 0;
  int streams_ = 0;
};

}  // namespace penstock::detail
