// SPDX-License-Identifier: Apache-2.0
#pragma once

// The hash at the end of a recording, over all bytes before it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <penstock/detail/mix.hpp>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// The hash depends on the order of the bytes, not on how they are split.
class RecordingHash {
 public:
  void add(const char* data, std::size_t bytes) {
    while (bytes > 0) {
      const std::size_t part = std::min(bytes, sizeof word_ - filled_);
      std::memcpy(reinterpret_cast<char*>(&word_) + filled_, data, part);
      filled_ += part;
      data += part;
      bytes -= part;
      if (filled_ == sizeof word_) mix();
    }
  }
  std::uint64_t value() {
    mix();  // adds the remaining bytes and their number
    return hash_;
  }

 private:
  void mix() {
    hash_ = penstock::detail::mix64(hash_ ^ word_) + filled_;
    word_ = 0;
    filled_ = 0;
  }

  std::uint64_t hash_ = 0, word_ = 0;
  std::size_t filled_ = 0;
};

}  // namespace penstock::trace::detail
