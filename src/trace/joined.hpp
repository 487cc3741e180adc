// SPDX-License-Identifier: Apache-2.0
#pragma once

// The timelines of several ranks as one, on one time axis: to look at.
//
// Ranks of one machine have the same clock, and lie exactly. Between machines the axis is that of
// the wall clocks, which are as far apart as whatever sets them leaves them (NTP: some
// milliseconds, PTP: microseconds): what happens on two machines within that time has no known
// order.

#include <penstock/trace/timeline.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::trace::detail {

/// Whether times of both are of one clock: the host's name and, within a second, the wall clock's
/// distance are the same.
bool same_clock(const Origin& a, const Origin& b);

struct Joined {
  /// Its tracks and devices have numbers of their own; Track::rank says whose each is.
  Timeline timeline;
  // Of each part:
  std::vector<Time> shifts;                        ///< added to its times
  std::vector<std::vector<std::uint32_t>> tracks;  ///< of each of its tracks
};

/// In the order of the parts. Origin of the first one, without process and rank. Throws
/// std::runtime_error where there are more events or devices than a timeline can have.
Joined join(std::span<const Timeline> parts);

}  // namespace penstock::trace::detail
