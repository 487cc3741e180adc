// SPDX-License-Identifier: Apache-2.0
#pragma once

// Steps: which ranges of a timeline are its steps, and which time is measured.
//
// The first step of a thread is apart (warm-up: lazy loading, an empty pipe), unless it is all
// there is, or told to count. The measured time is of the device: from where it has done the first
// step's work to where it has done the last one's, since the host may run ahead by many steps.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "activity.hpp"
#include "intervals.hpp"

namespace penstock::trace::detail {

struct Step {
  Time begin = 0, end = 0;  ///< on its thread
  Time done = 0;            ///< the device has done what was submitted in it; at least `end`
  Time period = 0;          ///< until the next step of its thread begins; 0: there is none
  std::uint32_t track = 0;
  bool counts = true;  ///< not apart

  /// What it took if it is the first: nothing was queued before it.
  Time taken() const { return std::max(period, done - begin); }
};

class Steps {
 public:
  /// `name`: of the range; empty: "step", "request", or from one "next" of penstock to the
  /// following, whichever there is first. Of ranges within one of the same name the outermost
  /// counts.
  Steps(const Activity& activity, std::string_view name, bool first_step_counts);

  /// Of the range; empty: there are no steps, and all of the timeline is measured as one.
  const std::string& name() const { return name_; }
  bool marked() const { return !steps_.empty(); }
  /// By begin.
  const std::vector<Step>& all() const { return steps_; }
  std::uint64_t counted() const;

  const Interval& measured() const { return measured_; }
  /// What the host did from here on belongs to measured(): it is ahead of the device.
  Time host_begin() const { return host_begin_; }

  /// Within a step that counts, on any thread. Without steps: always.
  bool contains(Time at) const;
  /// On that thread.
  bool contains(Time at, std::uint32_t track) const;

  /// Median of the periods, of steps that count; without steps the measured time.
  Time typical() const;
  /// Sorted.
  std::vector<Time> periods() const;

 private:
  void find(const Timeline& timeline, std::string_view name);
  void collect(const Timeline& timeline, std::string_view name, bool starts_only);
  void link(bool first_step_counts);
  void find_ends(const Activity& activity);
  void measure();

  std::string name_;
  std::vector<Step> steps_;
  std::map<std::uint32_t, std::vector<std::size_t>> by_track_;  // indices into steps_
  Interval measured_;
  Time host_begin_ = 0;
  Intervals counted_;
  std::map<std::uint32_t, Intervals> counted_on_;
};

/// The smallest element that at least `part` of the elements do not exceed; 0 of none.
Time quantile(const std::vector<Time>& sorted, double part);

}  // namespace penstock::trace::detail
