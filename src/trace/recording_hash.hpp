// SPDX-License-Identifier: Apache-2.0
#pragma once

// The hash at the end of a recording, of all that is before it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <penstock/detail/mix.hpp>

namespace penstock::trace::detail {

/// Of bytes in order, wherever they are cut.
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
    mix();  // what is left, and how much that is
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
