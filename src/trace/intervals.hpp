// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sets of moments: what streams were busy with, what two of them were busy with at once.
//
//   const Intervals alone = difference(united(copies), united(kernels));
//   const Time lost = length(alone);

#include <penstock/trace/timeline.hpp>

#include <vector>

namespace penstock::trace::detail {

/// From `begin` on, up to but without `end`.
struct Interval {
  Time begin = 0, end = 0;
  Time length() const { return end - begin; }
  bool contains(Time at) const { return begin <= at && at < end; }
  bool operator==(const Interval&) const = default;
};

/// By begin; none is empty, none touches the next.
using Intervals = std::vector<Interval>;

/// Of intervals in any order, also empty ones and ones that overlap. O(n log n).
Intervals united(std::vector<Interval> intervals);

/// O(a + b) each.
Intervals intersection(const Intervals& a, const Intervals& b);
Intervals difference(const Intervals& a, const Intervals& b);

Time length(const Intervals& intervals);

/// O(log n).
bool contains(const Intervals& intervals, Time at);

}  // namespace penstock::trace::detail
