// SPDX-License-Identifier: Apache-2.0
#pragma once

// Steps: decides which ranges of a timeline are its steps, and which time is measured.
//
// The first step of a thread is separate (warm-up: lazy loading, an empty pipeline), unless it is
// the only step or the options include it. The measured time is that of the device: from the end of
// its work for the first step to the end of its work for the last one, because the host may be many
// steps ahead.

#include <algorithm>
#include <cstdint>
#include <map>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "activity.hpp"
#include "intervals.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

struct Step {
  Time begin = 0, end = 0;  ///< on its thread
  Time done = 0;    ///< when the device has done the work that was submitted in it; at least `end`
  Time period = 0;  ///< time until the next step of its thread begins; 0: there is none
  std::uint32_t track = 0;
  bool counts = true;  ///< false: it is separate

  /// Its duration if it is the first step: nothing was queued before it.
  Time taken() const { return std::max(period, done - begin); }
};

class Steps {
 public:
  /// `name` is that of the range. If it is empty, it is the first of these that exists: "step",
  /// "request", or from one "next" of penstock to the following. Of nested ranges of the same name,
  /// only the outermost counts.
  Steps(const Activity& activity, std::string_view name, bool first_step_counts);

  /// The name of the range; empty: there are no steps, and the whole timeline is measured as one.
  const std::string& name() const { return name_; }
  bool marked() const { return !steps_.empty(); }
  /// Returns the steps ordered by begin.
  const std::vector<Step>& all() const { return steps_; }
  std::uint64_t counted() const;

  const Interval& measured() const { return measured_; }
  /// The actions of the host from here on belong to measured(), because it is ahead of the device.
  Time host_begin() const { return host_begin_; }

  /// Whether the moment lies within a step that counts, on any thread. Without steps it always
  /// does.
  bool contains(Time at) const;
  /// The same for one thread.
  bool contains(Time at, std::uint32_t track) const;

  /// Returns the median period of the steps that count; without steps, the measured time.
  Time typical() const;
  /// Returns the periods in order.
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

/// Returns the smallest element that is not exceeded by at least `part` of the elements; 0 if there
/// is none.
Time quantile(const std::vector<Time>& sorted, double part);

}  // namespace penstock::trace::detail
