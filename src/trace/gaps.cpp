// SPDX-License-Identifier: Apache-2.0
#include "gaps.hpp"

#include <penstock/trace/call_traits.hpp>

#include <algorithm>
#include <map>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// Adds up how long each call or range of one thread was the innermost one.
class InnermostTimes {
 public:
  explicit InnermostTimes(Time begin) : at_(begin) {}

  /// Call it in the order of the begins, the longer event first.
  void open(const Event& event) {
    advance(event.begin);
    open_.push_back(&event);
  }

  void advance(Time to) {
    while (at_ < to) {
      while (!open_.empty() && open_.back()->end <= at_) open_.pop_back();
      const Event* innermost = open_.empty() ? nullptr : open_.back();
      const Time until = innermost == nullptr ? to : std::min(to, innermost->end);
      // All events of the same name and kind share one entry.
      Share& share = shares_[innermost == nullptr ? std::pair{Kind::call, 0U}
                                                  : std::pair{innermost->kind, innermost->name}];
      share.event = innermost;
      share.time += until - at_;
      at_ = until;
    }
  }

  /// Returns nullptr if there was neither a call nor a range.
  const Event* longest() const {
    const auto found = std::max_element(
        shares_.begin(), shares_.end(),
        [](const auto& a, const auto& b) { return a.second.time < b.second.time; });
    return found == shares_.end() ? nullptr : found->second.event;
  }

 private:
  struct Share {
    const Event* event = nullptr;
    Time time = 0;
  };
  Time at_;
  std::vector<const Event*> open_;
  std::map<std::pair<Kind, std::uint32_t>, Share> shares_;
};

/// Whether the range loads a batch or waits for one: the ranges of penstock and of the examples.
bool is_input(std::string_view range) {
  constexpr std::string_view kInput[] = {"next", "fill", "get batch", "load"};
  return std::find(std::begin(kInput), std::end(kInput), range) != std::end(kInput);
}

bool copies_pageable_memory(const Timeline& timeline, const Event& call) {
  return std::any_of(timeline.events.begin(), timeline.events.end(), [&](const Event& event) {
    return event.kind == Kind::copy && event.correlation == call.correlation &&
           event.has(Flag::pageable);
  });
}

Cause cause_of(const Timeline& timeline, const Event& event) {
  if (event.kind == Kind::range)
    return is_input(timeline.name(event)) ? Cause::input : Cause::program;
  const CallTraits traits = traits_of(timeline.name(event));
  if (traits.allocating) return Cause::allocation;
  if (traits.blocking) return Cause::blocking_call;
  if (!traits.launching) return Cause::program;
  return copies_pageable_memory(timeline, event) ? Cause::pageable_copy : Cause::submission;
}

}  // namespace

std::vector<DeviceGap> gaps_of(const Activity& activity, const Steps& steps, Time shortest) {
  const Timeline& timeline = activity.timeline();
  const Interval& measured = steps.measured();
  std::map<int, Time> busy_until;  // by device
  if (steps.marked())
    for (const int device : activity.devices()) busy_until[device] = measured.begin;

  std::vector<DeviceGap> gaps;
  for (const Event& event : timeline.events) {
    if (!activity.works(event) || event.begin > measured.end) continue;
    const int device = timeline.track(event).device;
    Time& until = busy_until.try_emplace(device, event.begin).first->second;
    const Interval idle{until, event.begin};
    if (idle.length() > 0 && idle.length() >= shortest) gaps.push_back({device, idle, &event});
    until = std::max(until, event.end);
  }
  std::stable_sort(gaps.begin(), gaps.end(), [](const DeviceGap& a, const DeviceGap& b) {
    return a.idle.length() > b.idle.length();
  });
  return gaps;
}

CpuActivity cpu_during(const Activity& activity, const DeviceGap& gap) {
  const Event* call = activity.submitter(*gap.next);
  if (call == nullptr) return {};
  const Timeline& timeline = activity.timeline();
  InnermostTimes times(gap.idle.begin);
  for (const Event& event : timeline.events) {
    if (event.begin >= gap.idle.end) break;
    if (event.track == call->track && event.end > gap.idle.begin) times.open(event);
  }
  times.advance(gap.idle.end);
  const Event* longest = times.longest();
  if (longest == nullptr) return {"", Cause::program};
  const std::string& name = timeline.name(*longest);
  return {longest->kind == Kind::call ? std::string(plain_name(name)) : name,
          cause_of(timeline, *longest)};
}

}  // namespace penstock::trace::detail
