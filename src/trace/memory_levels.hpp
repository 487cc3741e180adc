// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemoryLevels: how much memory is taken on each device, as a backend sees it while a Session
// records. Memory is bounded: where there are too many levels, two neighbours become one, with the
// higher of them.

#include <penstock/trace/timeline.hpp>

#include <cstddef>
#include <vector>

namespace penstock::trace::detail {

class MemoryLevels {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 18;  // 6 MiB

  void add(const MemoryLevel& level) {
    if (levels_.size() == kMost) levels_ = thinned(std::move(levels_), kMost / 2);
    levels_.push_back(level);
  }
  /// Sorted. The level at `begin` begins there; a level that is the device's already is left out.
  std::vector<MemoryLevel> within(Time begin, Time end) const;

  /// At most so many, or two for each device: of the levels that are left out, the highest is kept.
  static std::vector<MemoryLevel> thinned(std::vector<MemoryLevel> levels, std::size_t most);

 private:
  std::vector<MemoryLevel> levels_;
};

}  // namespace penstock::trace::detail
