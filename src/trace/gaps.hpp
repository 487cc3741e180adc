// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gaps: when a device did nothing within the measured time, and what the CPU did meanwhile.

#include <penstock/trace/report.hpp>

#include <string>
#include <vector>

#include "activity.hpp"
#include "intervals.hpp"
#include "steps.hpp"

namespace penstock::trace::detail {

struct DeviceGap {
  int device = 0;
  Interval idle;
  const Event* next = nullptr;  ///< what ended it: a gap ends with work of the device
};

/// Gaps of at least `shortest`, longest first. O(n log n). Without steps the time before a device's
/// first work is none.
std::vector<DeviceGap> gaps_of(const Activity& activity, const Steps& steps, Time shortest);

struct CpuActivity {
  std::string name;  ///< of a call or a range; empty: neither, or the thread is not known
  Cause cause = Cause::unknown;
};

/// What the thread that submitted gap.next did during the gap, by the longest share of it. O(n).
CpuActivity cpu_during(const Activity& activity, const DeviceGap& gap);

}  // namespace penstock::trace::detail
