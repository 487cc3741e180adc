// SPDX-License-Identifier: Apache-2.0
#pragma once

// Latencies: how long things took, any number of them in fixed memory, for percentiles that are at
// most 0.8 % too high (a histogram whose bins are a 128th of their power of two wide). Count, sum
// and the longest are exact.
//
//   Latencies latencies;
//   latencies.add(now - begin);
//   latencies.percentile(99.9);         // by the nearest rank: at least 99.9 % took no longer

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

namespace resnet {

/// One thread at a time.
class Latencies {
 public:
  using Duration = std::chrono::nanoseconds;

  Latencies() : bins_(bins) {}

  /// Less than nothing counts as nothing.
  void add(Duration took) {
    const auto value = static_cast<std::uint64_t>(std::max<Duration::rep>(took.count(), 0));
    ++bins_[bin_of(value)];
    ++count_;
    sum_ += static_cast<double>(value);
    longest_ = std::max(longest_, value);
  }

  /// `percent`: 0 to 100. 0 when there are none.
  Duration percentile(double percent) const {
    const auto rank =
        static_cast<std::uint64_t>(std::ceil(percent / 100 * static_cast<double>(count_) - 1e-9));
    std::uint64_t passed = 0;
    for (std::size_t bin = 0; bin < bins; ++bin) {
      passed += bins_[bin];
      if (passed >= std::max<std::uint64_t>(rank, 1))
        return Duration(std::min(last_of(bin), longest_));
    }
    return Duration(0);
  }

  std::uint64_t count() const { return count_; }
  Duration longest() const { return Duration(longest_); }
  Duration mean() const {
    return Duration(count_ == 0 ? 0 : std::llround(sum_ / static_cast<double>(count_)));
  }

 private:
  static constexpr int digits = 7;  // bits that count behind the first
  static constexpr std::size_t row = std::size_t{1} << digits;
  static constexpr std::size_t bins = (64 - digits + 1) * row;

  /// Values below 128 have a bin each; above, each power of two has 128.
  static std::size_t bin_of(std::uint64_t value) {
    if (value < row) return value;
    const int shift = static_cast<int>(std::bit_width(value)) - digits - 1;
    return (static_cast<std::size_t>(shift) + 1) * row + ((value >> shift) - row);
  }
  /// The largest value of a bin.
  static std::uint64_t last_of(std::size_t bin) {
    if (bin < row) return bin;
    const std::size_t shift = bin / row - 1;
    return ((row + bin % row + 1) << shift) - 1;
  }

  std::vector<std::uint64_t> bins_;
  std::uint64_t count_ = 0, longest_ = 0;
  double sum_ = 0;
};

}  // namespace resnet
