// SPDX-License-Identifier: Apache-2.0
//
// Rules about copies and fills.

#include <algorithm>
#include <map>

#include "labels.hpp"
#include "rules.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

std::string where(const Subject& subject, const Event& event) {
  return title(subject.timeline.track(event));
}

/// Returns how long the host waited: as long as the call took.
Time waited(const Subject& subject, const Event& event) {
  const Event* call = subject.activity.submitter(event);
  return call == nullptr ? event.duration() : call->duration();
}

/// Finds the calls that are copies, as opposed to graphs with copies in them. Each name is examined
/// once.
class CopyCalls {
 public:
  explicit CopyCalls(const Timeline& timeline) : timeline_(timeline) {}

  bool contains(const Event& call) {
    const auto [found, is_new] = known_.try_emplace(call.name);
    if (is_new) {
      const std::string& name = timeline_.name(call);
      found->second =
          name.find("Memcpy") != std::string::npos || name.find("memcpy") != std::string::npos;
    }
    return found->second;
  }

 private:
  const Timeline& timeline_;
  std::map<std::uint32_t, bool> known_;  // by name
};

/// More tiny copies per step than this are too many.
constexpr std::uint64_t kTinyCopies = 10;

}  // namespace

Found find_pageable_copies(const Subject& subject) {
  Tally tally;
  std::uint64_t bytes = 0;
  for (const Event& event : subject.timeline.events) {
    if (event.kind != Kind::copy || !event.has(Flag::pageable) || event.has(Flag::synchronous) ||
        !subject.counts(event))
      continue;
    tally.add(event, event.duration());
    bytes += event.value;
  }
  if (tally.count == 0) return {};
  const double rate = ratio(static_cast<double>(bytes), static_cast<double>(tally.total) / 1e9);
  return tally.finding(
      subject, Rule::pageable_copy,
      counted(tally.count, "asynchronous copy", "asynchronous copies") +
          " of pageable memory moved " + in_bytes(bytes) + " at " + in_rate(rate) + " in " +
          in_time(tally.total) + ", the longest " + in_time(tally.longest) + " (" +
          std::string(label(tally.worst->direction)) + ") on " + where(subject, *tally.worst) + ".",
      "Take the host's memory from a PinnedPool, or let a Prefetcher fill its own: such a copy is "
      "staged, and blocks the thread that asked for it.");
}

Found find_synchronous_copies(const Subject& subject) {
  Tally tally;
  std::uint64_t bytes = 0;
  for (const Event& event : subject.timeline.events) {
    if (event.kind != Kind::copy || !event.has(Flag::synchronous) || !subject.counts(event))
      continue;
    tally.add(event, waited(subject, event));
    bytes += event.value;
  }
  if (tally.count == 0) return {};
  return tally.finding(
      subject, Rule::synchronous_copy,
      "The host waited " + in_time(tally.total) + " for " +
          counted(tally.count, "synchronous copy", "synchronous copies") + " of " +
          in_bytes(bytes) + " in all, the longest " + in_time(tally.longest) + " (" +
          std::string(label(tally.worst->direction)) + ") on " + where(subject, *tally.worst) + ".",
      "Copy with cudaMemcpyAsync on a stream of its own: a Prefetcher does it for input, Readback "
      "for results.");
}

Found find_synchronous_fills(const Subject& subject) {
  Tally tally;
  for (const Event& event : subject.timeline.events)
    if (event.kind == Kind::fill && event.has(Flag::synchronous) && subject.counts(event))
      tally.add(event, waited(subject, event));
  if (tally.count == 0) return {};
  return tally.finding(subject, Rule::synchronous_fill,
                       "The host waited " + in_time(tally.total) + " for " +
                           counted(tally.count, "memset", "memsets") + ", the longest " +
                           in_time(tally.longest) + " for " + in_bytes(tally.worst->value) +
                           " on " + where(subject, *tally.worst) + ".",
                       "Use cudaMemsetAsync on the stream that reads the memory.");
}

Found find_tiny_copies(const Subject& subject) {
  Tally tally;
  std::uint64_t bytes = 0;
  CopyCalls copy_calls(subject.timeline);
  for (const Event& event : subject.timeline.events) {
    if (!Activity::transfers(event) || event.value >= subject.options.tiny_bytes) continue;
    const Event* call = subject.activity.submitter(event);
    if (call == nullptr || !copy_calls.contains(*call)) continue;
    if (event.duration() >= call->duration() || !subject.counts(event)) continue;
    tally.add(event, call->duration());
    bytes += event.value;
  }
  const std::uint64_t steps = std::max<std::uint64_t>(1, subject.steps.counted());
  if (tally.count <= kTinyCopies * steps) return {};
  // Without marked steps no number of copies is too many by itself, so their cost decides.
  if (!subject.steps.marked() && subject.share(tally.total) < kWorthwhile) return {};
  return tally.finding(
      subject, Rule::tiny_copies,
      counted(tally.count, "copy", "copies") + " of " + in_bytes(bytes / tally.count) +
          " on average (" + std::to_string(tally.count / steps) +
          " a step) took less than their launches, which took " + in_time(tally.total) +
          " in all; many are on " + where(subject, *tally.worst) + ".",
      "Put the fields of a batch into one Layout, which is one block and one copy.");
}

namespace {

/// The copies of one device that run without a kernel.
struct Alone {
  Intervals copies;
  Time lost = 0;  ///< the time that overlapping them could save
  Time all = 0;   ///< the time of all copies
  int device = 0;
};

Alone alone_on(const DeviceWork& work) {
  Alone alone;
  alone.device = work.device;
  if (work.compute.empty()) return alone;
  // Copies before the first kernel fill the pipeline; copies after the last one are for later
  // steps.
  const Interval rest{work.compute.front().begin, work.compute.back().end};
  const Intervals later = intersection(work.copy, {rest});
  alone.all = length(later);
  alone.copies = difference(later, work.compute);
  // If the bus is the limit, copies run alone although all kernels overlap copies. Overlapping can
  // only save the time in which each of the two runs alone.
  alone.lost = std::min(length(alone.copies), length(difference(work.compute, later)));
  return alone;
}

}  // namespace

Found find_not_overlapped(const Subject& subject) {
  Alone worst;
  Time lost = 0;
  std::uint64_t count = 0;
  const Interval& measured = subject.steps.measured();
  for (const DeviceWork& work : subject.activity.work_within(measured)) {
    Alone alone = alone_on(work);
    if (subject.share(alone.lost) < kWorthwhile) continue;
    lost += alone.lost;
    count += alone.copies.size();
    if (alone.lost > worst.lost) worst = std::move(alone);
  }
  if (count == 0) return {};
  const Interval longest = *std::max_element(
      worst.copies.begin(), worst.copies.end(),
      [](const Interval& a, const Interval& b) { return a.length() < b.length(); });
  const auto& events = subject.timeline.events;
  const auto copy = std::find_if(events.begin(), events.end(), [&](const Event& event) {
    return Activity::transfers(event) && event.begin <= longest.begin &&
           longest.begin < event.end && subject.timeline.track(event).device == worst.device;
  });
  const Time alone = length(worst.copies);
  return Finding{
      .rule = Rule::not_overlapped,
      .count = count,
      .cost = subject.per_device(lost),
      .share = subject.share(subject.per_device(lost)),
      .begin = longest.begin,
      .end = longest.end,
      .track = copy == events.end() ? 0 : copy->track,
      .evidence = "Copies ran for " + in_time(alone) + " (" + in_percent(ratio(alone, worst.all)) +
                  " of their time) with no kernel beside them on device " +
                  std::to_string(worst.device) + ", " + in_time(worst.lost) +
                  " of which kernels could have covered; the longest for " +
                  in_time(longest.length()) +
                  (copy == events.end() ? "." : " on " + where(subject, *copy) + "."),
      .remedy =
          "Copy the next batch while kernels run, on a stream of its own and from pinned "
          "memory: a Prefetcher with device_depth of 2 or more does it."};
}

}  // namespace penstock::trace::detail
