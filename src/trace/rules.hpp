// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rules of find(); each rule looks for one kind of problem in a timeline.

#include <penstock/trace/findings.hpp>
#include <penstock/version.hpp>

#include <limits>
#include <optional>
#include <string>

#include "activity.hpp"
#include "steps.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// A share of the time that justifies a change.
inline constexpr double kWorthwhile = 0.02;

struct Subject {
  const Timeline& timeline;
  const Activity& activity;
  const Steps& steps;
  const RuleOptions& options;

  /// Returns the share of the measured time. Threads together may cost more than that, so it is
  /// limited to 1.
  double share(Time cost) const;
  /// Returns the mean loss per device.
  Time per_device(Time lost) const;
  /// Whether the event was submitted within a step that counts. If that is not known, its begin
  /// decides.
  bool counts(const Event& event) const;
};

/// Sums the cost of the events of one rule, and finds the worst.
class Tally {
 public:
  void add(const Event& event, Time cost) {
    ++count;
    // One call may have submitted many operations, and counts for each of them.
    if (__builtin_add_overflow(total, cost, &total)) total = std::numeric_limits<Time>::max();
    if (worst == nullptr || cost > longest) {
      worst = &event;
      longest = cost;
    }
  }

  std::uint64_t count = 0;
  Time total = 0, longest = 0;
  const Event* worst = nullptr;

  Finding finding(const Subject& subject, Rule rule, std::string evidence,
                  std::string remedy) const;
};

using Found = std::optional<Finding>;

// rules_copies.cpp
Found find_pageable_copies(const Subject& subject);
Found find_synchronous_copies(const Subject& subject);
Found find_synchronous_fills(const Subject& subject);
Found find_tiny_copies(const Subject& subject);
Found find_not_overlapped(const Subject& subject);

// rules_calls.cpp
Found find_blocking_calls(const Subject& subject);
Found find_allocations(const Subject& subject);

// rules_device.cpp
Found find_gaps(const Subject& subject);
Found find_launch_bound(const Subject& subject);
Found find_slow_first_batch(const Subject& subject);

}  // namespace penstock::trace::detail
