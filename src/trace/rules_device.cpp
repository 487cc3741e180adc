// SPDX-License-Identifier: Apache-2.0
//
// Rules about idle devices.

#include <algorithm>
#include <limits>
#include <map>

#include "gaps.hpp"
#include "kernel_names.hpp"
#include "labels.hpp"
#include "rules.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

std::string remedy_for(Cause cause) {
  switch (cause) {
    case Cause::input:
      return "Load batches ahead with a Prefetcher; where there is one, the verdict of its stats() "
             "says what limits it.";
    case Cause::blocking_call:
      return "Do not wait for the device before its next work is submitted: take results with "
             "Readback, order streams by events.";
    case Cause::allocation:
      return "Allocate before the loop: a DeviceArena for the device, a PinnedPool for the host.";
    case Cause::pageable_copy:
      return "Copy from pinned memory, of a PinnedPool or a Prefetcher: that does not wait for the "
             "device.";
    case Cause::submission:
      return "Submit the step as one graph: StepGraph.";
    case Cause::program:
    case Cause::unknown:
      break;
  }
  return "Submit the device's work before this code runs, or move the code to another thread.";
}

std::string told(const CpuActivity& cpu) {
  if (cpu.cause == Cause::unknown) return "";
  if (cpu.name.empty()) return ", while the CPU ran code outside of calls and ranges";
  return ", while the CPU was in " + cpu.name + " (" + std::string(to_string(cpu.cause)) + ")";
}

}  // namespace

Found find_gaps(const Subject& subject) {
  const double part = static_cast<double>(subject.steps.typical()) * subject.options.gap;
  // A limit that exceeds the range of Time, or is not a number, is longer than any gap.
  const Time shortest =
      std::max(subject.options.shortest_gap,
               part < 0x1p62 ? static_cast<Time>(part) : std::numeric_limits<Time>::max());
  const std::vector<DeviceGap> gaps =
      gaps_of(subject.activity, subject.steps, std::max<Time>(1, shortest));
  if (gaps.empty()) return {};
  const DeviceGap& worst = gaps.front();
  const CpuActivity cpu = cpu_during(subject.activity, worst);
  Time total = 0;
  for (const DeviceGap& gap : gaps) total += gap.idle.length();
  return Finding{
      .rule = Rule::gap,
      .count = gaps.size(),
      .cost = subject.per_device(total),
      .share = subject.share(subject.per_device(total)),
      .begin = worst.idle.begin,
      .end = worst.idle.end,
      .track = worst.next->track,
      .evidence = "Device " + std::to_string(worst.device) + " did nothing for " +
                  in_time(worst.idle.length()) + " before " +
                  shortened(readable_within_bounds(label(subject.timeline, *worst.next)), 60) +
                  " on " + title(subject.timeline.track(*worst.next)) + told(cpu) + "; " +
                  counted(gaps.size(), "gap", "gaps") + " of at least " + in_time(shortest) +
                  " took " + in_time(total) + " in all.",
      .remedy = remedy_for(cpu.cause)};
}

// ---- Launch-bound stretches ---------------------------------------------------------------------

namespace {

/// The time from the end of a launch to the begin of its kernel on an idle device.
constexpr Time kLaunchLatency = 20'000;
/// Launches that are farther apart belong to no stretch, because the CPU does something else
/// between them.
constexpr Time kLaunchInterval = 100'000;
/// The smallest number of kernels of a stretch that is reported.
constexpr std::uint64_t kStretch = 10;

/// Consecutive kernels of one device that each were late: the device waited for every one of them.
struct Stretch {
  std::uint64_t kernels = 0;
  Time idle = 0, launches = 0, computes = 0;
  const Event* first = nullptr;
  const Event* last = nullptr;
};

class StretchFinder {
 public:
  explicit StretchFinder(const Subject& subject) : subject_(subject) {}

  /// Call it in the order of the begins.
  void add(const Event& kernel) {
    Device& device = devices_[subject_.timeline.track(kernel).device];
    const Event* call = subject_.activity.submitter(kernel);
    if (call != nullptr && subject_.counts(kernel) && starved(device, kernel, *call)) {
      Stretch& stretch = device.stretch;
      if (stretch.kernels++ == 0) stretch.first = &kernel;
      stretch.last = &kernel;
      stretch.idle += kernel.begin - device.busy_until;
      stretch.launches += call->begin - device.call->begin;
      stretch.computes += kernel.duration();
    } else {
      close(device);
    }
    device.call = call;
    device.busy_until = std::max(device.busy_until, kernel.end);
  }

  /// Adds work between the kernels.
  void occupy(const Event& event) {
    Device& device = devices_[subject_.timeline.track(event).device];
    device.busy_until = std::max(device.busy_until, event.end);
  }

  /// Returns the stretches that are long enough.
  const std::vector<Stretch>& finish() {
    for (auto& [index, device] : devices_) close(device);
    return stretches_;
  }

 private:
  struct Device {
    Time busy_until = 0;
    const Event* call = nullptr;  ///< the call that launched the previous kernel
    Stretch stretch;
  };

  /// Whether the device was idle when the launch ended. The previous kernel had ended, so it was
  /// shorter than the time between the two launches.
  static bool starved(const Device& device, const Event& kernel, const Event& call) {
    return device.call != nullptr && device.busy_until <= call.end &&
           kernel.begin > device.busy_until && kernel.begin - call.end <= kLaunchLatency &&
           call.begin > device.call->begin &&  // the two are not of one graph
           call.begin - device.call->begin <= kLaunchInterval;
  }

  void close(Device& device) {
    if (device.stretch.kernels >= kStretch) stretches_.push_back(device.stretch);
    device.stretch = {};
  }

  const Subject& subject_;
  std::map<int, Device> devices_;
  std::vector<Stretch> stretches_;
};

}  // namespace

Found find_launch_bound(const Subject& subject) {
  StretchFinder finder(subject);
  for (const Event& event : subject.timeline.events) {
    if (subject.activity.computes(event))
      finder.add(event);
    else if (event.kind == Kind::fill)
      finder.occupy(event);
  }
  const std::vector<Stretch>& stretches = finder.finish();
  Stretch sum, worst;
  for (const Stretch& stretch : stretches) {
    sum.kernels += stretch.kernels;
    sum.idle += stretch.idle;
    sum.launches += stretch.launches;
    sum.computes += stretch.computes;
    if (stretch.idle > worst.idle) worst = stretch;
  }
  const Time cost = subject.per_device(sum.idle);
  if (stretches.empty() || subject.share(cost) < kWorthwhile) return {};
  const auto kernels = static_cast<Time>(sum.kernels);
  return Finding{
      .rule = Rule::launch_bound,
      .count = stretches.size(),
      .cost = cost,
      .share = subject.share(cost),
      .begin = worst.first->begin,
      .end = worst.last->end,
      .track = worst.first->track,
      .evidence = counted(sum.kernels, "kernel", "kernels") + " of " +
                  in_time(sum.computes / kernels) + " on average were launched one every " +
                  in_time(sum.launches / kernels) + ", and the device waited " + in_time(sum.idle) +
                  " for them; the worst stretch has " + std::to_string(worst.kernels) + ", from " +
                  shortened(readable_within_bounds(label(subject.timeline, *worst.first)), 60) +
                  " on " + title(subject.timeline.track(*worst.first)) + ".",
      .remedy = "Capture the step once and replay it with StepGraph, or fuse small kernels."};
}

// ---- The first step -----------------------------------------------------------------------------

Found find_slow_first_batch(const Subject& subject) {
  constexpr std::size_t kSteps = 3;  // from this many steps on there is a usual time
  const Steps& steps = subject.steps;
  if (steps.all().size() <= kSteps) return {};
  const Step& first = steps.all().front();
  const Time taken = first.taken();
  // A host that runs ahead takes less time for a step than the device, so the total time of the
  // steps counts.
  const auto counted = static_cast<Time>(std::max<std::uint64_t>(1, steps.counted()));
  const Time usual = std::max(steps.typical(), steps.measured().length() / counted);
  const Time cost = taken - usual;
  if (cost < subject.options.shortest_gap ||
      static_cast<double>(taken) <= subject.options.slow_first * static_cast<double>(usual))
    return {};
  return Finding{.rule = Rule::slow_first_batch,
                 .count = 1,
                 .cost = cost,
                 .share = subject.share(cost),
                 .begin = first.begin,
                 .end = first.begin + taken,
                 .track = first.track,
                 .evidence = "The first \"" + steps.name() + "\" took " + in_time(taken) +
                             ", usual is " + in_time(usual) + ", on " +
                             title(subject.timeline.tracks[first.track]) + ".",
                 .remedy =
                     "Make the Prefetcher before the model is set up, so that its first "
                     "batches are there; load kernels and choose algorithms in a warm-up."};
}

}  // namespace penstock::trace::detail
