// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sets of moments, such as the busy times of streams and their intersections.
//
//   const Intervals alone = difference(united(copies), united(kernels));
//   const Time lost = length(alone);

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// The moments from `begin` on, before `end`.
struct Interval {
  Time begin = 0, end = 0;
  Time length() const { return end - begin; }
  bool contains(Time at) const { return begin <= at && at < end; }
  bool operator==(const Interval&) const = default;
};

/// Ordered by begin. No interval is empty, and none touches the next.
using Intervals = std::vector<Interval>;

/// Returns the union of intervals in any order, which may be empty or overlap. O(n log n).
Intervals united(std::vector<Interval> intervals);

/// Each takes O(a + b).
Intervals intersection(const Intervals& a, const Intervals& b);
Intervals difference(const Intervals& a, const Intervals& b);

Time length(const Intervals& intervals);

/// O(log n).
bool contains(const Intervals& intervals, Time at);

}  // namespace penstock::trace::detail
