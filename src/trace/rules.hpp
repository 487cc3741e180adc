// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rules behind find(): each looks at a timeline for one thing.

#include <penstock/trace/findings.hpp>

#include <limits>
#include <optional>
#include <string>

#include "activity.hpp"
#include "steps.hpp"

namespace penstock::trace::detail {

/// A part of the time that is worth a change.
inline constexpr double kWorthwhile = 0.02;

struct Subject {
  const Timeline& timeline;
  const Activity& activity;
  const Steps& steps;
  const RuleOptions& options;

  /// Of the measured time. Threads may cost more than that together: at most 1.
  double share(Time cost) const;
  /// Of what the devices lost, the mean.
  Time per_device(Time lost) const;
  /// Submitted (or begun, where that is not known) within a step that counts.
  bool counts(const Event& event) const;
};

/// Puts together what events of one rule cost, and which was the worst.
class Tally {
 public:
  void add(const Event& event, Time cost) {
    ++count;
    // One call may have put much on streams, and counts for each.
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
