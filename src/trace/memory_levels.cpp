// SPDX-License-Identifier: Apache-2.0
#include "memory_levels.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

void sort_by_begin(std::vector<MemoryLevel>& levels) {
  std::stable_sort(levels.begin(), levels.end(),
                   [](const MemoryLevel& a, const MemoryLevel& b) { return a.begin < b.begin; });
}

/// Merges pairs of levels of one device, which are in order.
std::vector<MemoryLevel> half_of(const std::vector<MemoryLevel>& levels) {
  std::vector<MemoryLevel> half;
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (i % 2 == 0 || i + 1 == levels.size())  // the last one stays, because it holds from then on
      half.push_back(levels[i]);
    else
      half.back().bytes = std::max(half.back().bytes, levels[i].bytes);
  return half;
}

}  // namespace

std::vector<MemoryLevel> MemoryLevels::within(Time begin, Time end) const {
  std::vector<MemoryLevel> sorted = levels_;
  sort_by_begin(sorted);
  std::map<int, MemoryLevel> before;
  std::vector<MemoryLevel> result;
  for (const MemoryLevel& level : sorted)
    if (level.begin <= begin) before[level.device] = {begin, level.bytes, level.device};
  for (const auto& [device, level] : before) result.push_back(level);
  for (const MemoryLevel& level : sorted) {
    if (level.begin <= begin || level.begin > end) continue;
    const auto [last, is_first] = before.try_emplace(level.device, level);
    if (!is_first && last->second.bytes == level.bytes) continue;
    last->second = level;
    result.push_back(level);
  }
  return result;
}

std::vector<MemoryLevel> MemoryLevels::thinned(std::vector<MemoryLevel> levels, std::size_t most) {
  sort_by_begin(levels);
  std::map<int, std::vector<MemoryLevel>> devices;
  for (const MemoryLevel& level : levels) devices[level.device].push_back(level);
  for (auto& [device, its] : devices)
    while (its.size() > std::max<std::size_t>(2, most / devices.size())) its = half_of(its);
  levels.clear();
  for (const auto& [device, its] : devices) levels.insert(levels.end(), its.begin(), its.end());
  sort_by_begin(levels);
  return levels;
}

}  // namespace penstock::trace::detail
