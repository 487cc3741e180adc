// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/stats.hpp>
#include <vector>

namespace examples {

/// The median time of the last copies of a prefetcher; 0: none was measured. The first copies of a
/// run are slower, beside workers that page-lock their memory.
inline std::chrono::nanoseconds copy_time(const penstock::Stats& stats) {
  std::vector<std::int64_t> times;
  for (const auto& batch : stats.recent->batches)
    if (batch.device.copy >= 0) times.push_back(batch.device.copy);
  if (times.empty()) return std::chrono::nanoseconds(0);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return std::chrono::nanoseconds(*middle);
}

}  // namespace examples
