// SPDX-License-Identifier: Apache-2.0
#pragma once

// Activity: which call put what on which stream, and what counts as work of a device.

#include <penstock/trace/timeline.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include "intervals.hpp"

namespace penstock::trace::detail {

/// What one device did within a window of time.
struct DeviceWork {
  int device = 0;
  Intervals busy;     ///< anything
  Intervals compute;  ///< kernels, graphs
  Intervals copy;     ///< copies that leave or reach the device
};

/// Refers to the timeline, which must outlive it and stay as it is.
class Activity {
 public:
  /// O(n log n).
  explicit Activity(const Timeline& timeline);

  const Timeline& timeline() const { return timeline_; }

  /// The call that put this event on its stream; nullptr: not known. O(log n).
  const Event* submitter(const Event& event) const;

  /// Kernels and graphs; over the emulated runtime host functions too, which stand for kernels
  /// there. On a real device a host function occupies nothing.
  bool computes(const Event& event) const;
  /// Occupies the device: computes, copies, fills.
  bool works(const Event& event) const;
  /// A copy over the bus: from, to or between devices.
  static bool transfers(const Event& event);

  /// Devices that did anything in the timeline, ascending.
  const std::vector<int>& devices() const { return devices_; }
  /// For each of devices(), clipped to the window. O(n log n).
  std::vector<DeviceWork> work_within(const Interval& window) const;

 private:
  const Timeline& timeline_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> calls_;  // correlation, index; sorted
  std::vector<int> devices_;
};

}  // namespace penstock::trace::detail
