// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemoryLevels: how much memory is in use on each device, as a backend sees it while a Session
// records. Memory is bounded: if there are too many levels, two neighbours are merged into the
// higher one.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <cstddef>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

class MemoryLevels {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 18;  // 6 MiB

  void add(const MemoryLevel& level) {
    if (levels_.size() == kMost) levels_ = thinned(std::move(levels_), kMost / 2);
    levels_.push_back(level);
  }
  /// Returns the levels in order. The level at `begin` begins there. A level equal to the device's
  /// present one is left out.
  std::vector<MemoryLevel> within(Time begin, Time end) const;

  /// Keeps at most `most` levels, or two for each device. It drops no peak: the highest of the
  /// merged levels is kept.
  static std::vector<MemoryLevel> thinned(std::vector<MemoryLevel> levels, std::size_t most);

 private:
  std::vector<MemoryLevel> levels_;
};

}  // namespace penstock::trace::detail
