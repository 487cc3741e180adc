// SPDX-License-Identifier: Apache-2.0
#pragma once

// Joins the timelines of several ranks into one on one time axis, for viewing.
//
// Ranks of one machine have the same clock, so their times are exact. Between machines the axis is
// that of the wall clocks, whose difference depends on their synchronisation (NTP: some
// milliseconds, PTP: microseconds). The order of events on two machines within that difference is
// not known.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Whether the times of both have the same clock: the host names are equal, and so, within a
/// second, are the offsets to the wall clock.
bool same_clock(const Origin& a, const Origin& b);

struct Joined {
  /// Its tracks and devices are renumbered; Track::rank is the rank of each.
  Timeline timeline;
  // These have an entry for each part.
  std::vector<Time> shifts;                        ///< added to the times of the part
  std::vector<std::vector<std::uint32_t>> tracks;  ///< the new number of each track of the part
};

/// Joins the parts in their order. The origin is that of the first part, without process and rank.
/// Throws std::runtime_error if there are more events or devices than a timeline can have.
Joined join(std::span<const Timeline> parts);

}  // namespace penstock::trace::detail
