// SPDX-License-Identifier: Apache-2.0
#include "intervals.hpp"

#include <algorithm>
#include <numeric>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

Intervals united(std::vector<Interval> intervals) {
  const auto by_begin = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  // Events are ordered by begin, so mostly there is nothing to sort.
  if (!std::is_sorted(intervals.begin(), intervals.end(), by_begin))
    std::sort(intervals.begin(), intervals.end(), by_begin);
  std::size_t kept = 0;  // the union is computed in place, because it is never longer
  for (const Interval interval : intervals) {
    if (interval.length() <= 0) continue;
    if (kept > 0 && interval.begin <= intervals[kept - 1].end)
      intervals[kept - 1].end = std::max(intervals[kept - 1].end, interval.end);
    else
      intervals[kept++] = interval;
  }
  intervals.resize(kept);
  return intervals;
}

Intervals intersection(const Intervals& a, const Intervals& b) {
  Intervals both;
  for (auto first = a.begin(), second = b.begin(); first != a.end() && second != b.end();) {
    const Interval common{std::max(first->begin, second->begin), std::min(first->end, second->end)};
    if (common.length() > 0) both.push_back(common);
    if (first->end < second->end)
      ++first;
    else
      ++second;
  }
  return both;
}

Intervals difference(const Intervals& a, const Intervals& b) {
  Intervals rest;
  auto cut = b.begin();
  for (Interval interval : a) {
    while (cut != b.end() && cut->end <= interval.begin) ++cut;
    for (auto next = cut; next != b.end() && next->begin < interval.end; ++next) {
      if (next->begin > interval.begin) rest.push_back({interval.begin, next->begin});
      interval.begin = next->end;
      cut = next;
    }
    if (interval.length() > 0) rest.push_back(interval);
  }
  return rest;
}

Time length(const Intervals& intervals) {
  return std::accumulate(intervals.begin(), intervals.end(), Time{0},
                         [](Time sum, const Interval& one) { return sum + one.length(); });
}

bool contains(const Intervals& intervals, Time at) {
  const auto after =
      std::upper_bound(intervals.begin(), intervals.end(), at,
                       [](Time time, const Interval& one) { return time < one.begin; });
  return after != intervals.begin() && std::prev(after)->contains(at);
}

}  // namespace penstock::trace::detail
