// SPDX-License-Identifier: Apache-2.0
#pragma once

// Activity: which call submitted which event to which stream, and which events are work of a
// device.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include "intervals.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// The work of one device within a window of time.
struct DeviceWork {
  int device = 0;
  Intervals busy;     ///< time with any work
  Intervals compute;  ///< time with kernels or graphs
  Intervals copy;     ///< time with copies from or to the device
};

/// Refers to the timeline, which must outlive it and must not change.
class Activity {
 public:
  /// O(n log n).
  explicit Activity(const Timeline& timeline);

  const Timeline& timeline() const { return timeline_; }

  /// Returns the call that put this event on its stream, or nullptr if it is not known. O(log n).
  const Event* submitter(const Event& event) const;

  /// Whether the event is a kernel or a graph. Over the emulated runtime, host functions count too,
  /// because they stand for kernels there. On a real device, a host function does not occupy the
  /// device.
  bool computes(const Event& event) const;
  /// Whether the event occupies the device: it computes, copies or fills.
  bool works(const Event& event) const;
  /// Whether the event is a copy over the bus: from, to or between devices.
  static bool transfers(const Event& event);

  /// Returns the devices with events in the timeline, in ascending order.
  const std::vector<int>& devices() const { return devices_; }
  /// Returns the work of each of devices(), clipped to the window. O(n log n).
  std::vector<DeviceWork> work_within(const Interval& window) const;

 private:
  const Timeline& timeline_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> calls_;  // (correlation, index), sorted
  std::vector<int> devices_;
};

}  // namespace penstock::trace::detail
