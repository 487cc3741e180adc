// SPDX-License-Identifier: Apache-2.0
//
// Rules about calls that do not belong in a loop.

#include <penstock/trace/call_traits.hpp>

#include <algorithm>
#include <map>

#include "rules.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// Counts calls by name within a step.
class CallTally : public Tally {
 public:
  void add(const Event& call) {
    Tally::add(call, call.duration());
    Tally& by_name = names_[call.name];
    by_name.add(call, call.duration());
  }

  /// Returns "cudaMalloc (12 times) and 2 others", for example, the most expensive first.
  std::string names(const Timeline& timeline) const {
    const auto dearest = std::max_element(
        names_.begin(), names_.end(),
        [](const auto& a, const auto& b) { return a.second.total < b.second.total; });
    std::string text(plain_name(timeline.names[dearest->first]));
    text += " (" + counted(dearest->second.count, "time", "times") + ")";
    if (names_.size() > 1) text += " and " + counted(names_.size() - 1, "other", "others");
    return text;
  }

 private:
  std::map<std::uint32_t, Tally> names_;
};

/// Calls traits_of only once for each name.
class TraitsByName {
 public:
  const CallTraits& of(const Timeline& timeline, const Event& call) {
    const auto [found, is_new] = traits_.try_emplace(call.name);
    if (is_new) found->second = traits_of(timeline.name(call));
    return found->second;
  }

 private:
  std::map<std::uint32_t, CallTraits> traits_;
};

std::string in_steps(const Subject& subject) {
  return subject.steps.marked() ? "within steps" : "(no range marks steps: set-up counts too)";
}

}  // namespace

Found find_blocking_calls(const Subject& subject) {
  const Timeline& timeline = subject.timeline;
  CallTally tally;
  TraitsByName traits_by_name;
  for (const Event& event : timeline.events) {
    if (event.kind != Kind::call) continue;
    const CallTraits& traits = traits_by_name.of(timeline, event);
    // Synchronous copies and frees block as well, but other rules find them.
    if (!traits.blocking || traits.launching || traits.allocating) continue;
    if (subject.steps.contains(event.begin, event.track)) tally.add(event);
  }
  if (tally.count == 0) return {};
  return tally.finding(subject, Rule::blocking_call,
                       "The host waited for the device in " + tally.names(timeline) + " " +
                           in_steps(subject) + " for " + in_time(tally.total) +
                           " in all, the longest " + in_time(tally.longest) + " on " +
                           title(timeline.track(*tally.worst)) + ".",
                       "Order streams by events, and take results with Readback, so that the host "
                       "submits the next step while the device works.");
}

Found find_allocations(const Subject& subject) {
  const Timeline& timeline = subject.timeline;
  CallTally tally;
  TraitsByName traits_by_name;
  for (const Event& event : timeline.events)
    if (event.kind == Kind::call && traits_by_name.of(timeline, event).allocating &&
        subject.steps.contains(event.begin))
      tally.add(event);
  if (tally.count == 0) return {};
  return tally.finding(
      subject, Rule::allocation,
      counted(tally.count, "call", "calls") + " allocated or freed memory " + in_steps(subject) +
          " for " + in_time(tally.total) + " in all: " + tally.names(timeline) + ", the longest " +
          in_time(tally.longest) + " on " + title(timeline.track(*tally.worst)) + ".",
      "Take device memory from a DeviceArena and pinned memory from a PinnedPool, made before the "
      "loop.");
}

}  // namespace penstock::trace::detail
