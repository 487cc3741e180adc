// SPDX-License-Identifier: Apache-2.0
#pragma once

// Gaps: the times within the measured time in which a device did nothing, and what the CPU did
// then.

#include <penstock/trace/report.hpp>
#include <penstock/version.hpp>

#include <string>
#include <vector>

#include "activity.hpp"
#include "intervals.hpp"
#include "steps.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

struct DeviceGap {
  int device = 0;
  Interval idle;
  const Event* next = nullptr;  ///< the work that ended the gap
};

/// Returns the gaps of at least `shortest`, longest first. O(n log n). Without steps, the time
/// before the first work of a device is not a gap.
std::vector<DeviceGap> gaps_of(const Activity& activity, const Steps& steps, Time shortest);

struct CpuActivity {
  std::string name;  ///< name of a call or a range; empty: neither, or the thread is not known
  Cause cause = Cause::unknown;
};

/// Returns what the thread that submitted gap.next did for the largest share of the gap. O(n).
CpuActivity cpu_during(const Activity& activity, const DeviceGap& gap);

}  // namespace penstock::trace::detail
