// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchPace: how fast batches are begun, and by that, when a later one will be.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Not for several threads at a time.
class BatchPace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// What was begun so far does not count any more.
  void restart() noexcept { count_ = 0; }

  /// Batch `number` has been begun. One that is told behind a later one is left out.
  void begun(std::uint64_t number, Time now) noexcept {
    if (count_ > 0 && number <= back(0).number) return;
    marks_[count_++ % marks_.size()] = {number, now};
  }

  /// When batch `number` will be begun. The epoch of the clock: that is not known yet.
  Time due(std::uint64_t number) const noexcept {
    if (count_ <= kHalf) return {};
    Time::duration period = between(0, kHalf);
    // A pause, between two epochs, say, is in one half, and the other one tells the pace.
    if (count_ > 2 * kHalf) period = std::min(period, between(kHalf, 2 * kHalf));
    const auto batches = static_cast<std::int64_t>(number - back(0).number);
    return back(0).time + period * std::clamp<std::int64_t>(batches, 0, kMostBatches);
  }

 private:
  struct Mark {
    std::uint64_t number;
    Time time;
  };
  static constexpr std::size_t kHalf = 16;
  static constexpr std::int64_t kMostBatches = 1 << 20;  // against an overflow

  /// The mark that came `i` marks before the last one.
  const Mark& back(std::size_t i) const noexcept {
    return marks_[(count_ - 1 - i) % marks_.size()];
  }
  /// The mean time of a batch.
  Time::duration between(std::size_t later, std::size_t earlier) const noexcept {
    const Mark &end = back(later), &begin = back(earlier);
    return (end.time - begin.time) / static_cast<std::int64_t>(end.number - begin.number);
  }

  std::uint64_t count_ = 0;
  std::array<Mark, 2 * kHalf + 1> marks_;  // a ring
};

}  // namespace penstock::detail
