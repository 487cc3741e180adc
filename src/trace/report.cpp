// SPDX-License-Identifier: Apache-2.0
#include <penstock/trace/call_traits.hpp>
#include <penstock/trace/report.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "activity.hpp"
#include "gaps.hpp"
#include "intervals.hpp"
#include "kernel_names.hpp"
#include "labels.hpp"
#include "steps.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

namespace {

using namespace detail;

template <class Times>
void sort_by_total(std::vector<Times>& times) {
  std::stable_sort(times.begin(), times.end(),
                   [](const Times& a, const Times& b) { return a.total > b.total; });
}

/// Count, total and longest time, of events or of other sums.
struct Sum {
  std::uint64_t count = 0;
  Time total = 0, longest = 0;

  void add(Time duration) { add({1, duration, duration}); }
  void add(const Sum& other) {
    count += other.count;
    total += other.total;
    longest = std::max(longest, other.longest);
  }
  Time mean() const { return count == 0 ? 0 : total / static_cast<Time>(count); }
};

// ---- Ranges -------------------------------------------------------------------------------------

/// Finds the device's work by the call that submitted it.
class Submissions {
 public:
  explicit Submissions(const Activity& activity) : events_(activity.timeline().events) {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (!activity.works(events_[i])) continue;
      if (const Event* call = activity.submitter(events_[i]))
        work_.emplace_back(index(*call), static_cast<std::uint32_t>(i));
    }
    std::sort(work_.begin(), work_.end());
  }

  /// Calls `visit` with the index of each event that `call` put on a stream.
  template <class Visit>
  void for_each(const Event& call, Visit visit) const {
    const std::uint32_t wanted = index(call);
    for (auto at = std::lower_bound(work_.begin(), work_.end(), std::pair{wanted, 0U});
         at != work_.end() && at->first == wanted; ++at)
      visit(at->second);
  }

 private:
  std::uint32_t index(const Event& event) const {
    return static_cast<std::uint32_t>(&event - events_.data());
  }
  const std::vector<Event>& events_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> work_;  // (call, event), sorted
};

/// Ranges of one name and domain. Names of requests count without the path and what follows it.
struct RangeGroup {
  std::vector<Time> durations;
  std::vector<std::uint32_t> work;  ///< events on devices that were submitted within these ranges
  bool too_deep = false;            ///< some of that work is not known
  bool of_requests = false;
};

/// The number of open groups around a call to which its work is attributed. Without a limit, a
/// malicious recording could make time and memory quadratic.
constexpr std::size_t kDeepest = 64;

struct OpenRange {
  Time end;
  RangeGroup* group;
};

/// "GET" of "GET /train/0001.jpg 0-131071".
std::string_view without_path(std::string_view request) {
  return request.substr(0, request.find(" /"));
}

/// A group is open until its last range ends, even if several of its ranges overlap.
void open_in(std::vector<OpenRange>& around, RangeGroup& group, Time end) {
  const auto found = std::find_if(around.begin(), around.end(),
                                  [&](const OpenRange& range) { return range.group == &group; });
  if (found != around.end())
    found->end = std::max(found->end, end);
  else if (around.size() < kDeepest)
    around.push_back({end, &group});
  else
    group.too_deep = true;
}

/// The limit in characters. A domain is repeated for each of its ranges.
constexpr std::size_t kLongestDomain = 200;

using RangeGroups = std::map<std::pair<std::uint32_t, std::uint32_t>, RangeGroup>;

/// Returns how much of the range lies within the window, or a negative number if it lies outside.
Time part_within(const Event& range, const Interval& window) {
  if (range.begin >= window.end) return -1;
  // A range without length can lie within; a range that ends where the window begins cannot.
  if (range.end <= window.begin && range.begin < window.begin) return -1;
  return std::min(range.end, window.end) - std::max(range.begin, window.begin);
}

RangeGroups group_ranges(const Activity& activity, const Interval& window) {
  const Timeline& timeline = activity.timeline();
  const Submissions submissions(activity);
  RangeGroups groups;
  std::vector<std::vector<OpenRange>> open(timeline.tracks.size());  // by thread
  std::map<std::string_view, std::uint32_t> requests;  // the number of the first such name
  for (const Event& event : timeline.events) {
    if (on_device(event.kind)) continue;
    std::vector<OpenRange>& around = open[event.track];
    std::erase_if(around, [&](const OpenRange& range) { return range.end <= event.begin; });
    if (event.kind == Kind::range) {
      const Time part = part_within(event, window);
      if (part < 0) continue;
      const bool is_request = timeline.track(event).kind == Track::Kind::lane;
      const std::uint32_t name =
          is_request
              ? requests.try_emplace(without_path(timeline.name(event)), event.name).first->second
              : event.name;
      RangeGroup& group = groups[{name, event.domain}];
      group.of_requests = is_request;
      group.durations.push_back(part);
      open_in(around, group, event.end);
    } else if (!around.empty() && event.correlation != 0) {
      submissions.for_each(event, [&](std::uint32_t work) {
        for (const OpenRange& range : around) range.group->work.push_back(work);
      });
    }
  }
  return groups;
}

Time device_time(const Timeline& timeline, const RangeGroup& group, const Interval& measured) {
  if (group.too_deep) return 0;
  std::vector<Interval> intervals;
  intervals.reserve(group.work.size());
  for (const std::uint32_t i : group.work)
    intervals.push_back({timeline.events[i].begin, timeline.events[i].end});
  return length(intersection(united(std::move(intervals)), {measured}));
}

std::vector<RangeTimes> range_times(const Activity& activity, const Steps& steps) {
  const Timeline& timeline = activity.timeline();
  const Interval host{steps.host_begin(), steps.measured().end};
  std::vector<RangeTimes> all;
  for (auto& [key, group] : group_ranges(activity, host)) {
    std::sort(group.durations.begin(), group.durations.end());
    Sum sum;
    for (const Time duration : group.durations) sum.add(duration);
    const std::string& name = timeline.names[key.first];
    all.push_back({.name = group.of_requests ? std::string(without_path(name)) : name,
                   .domain = limited(timeline.names[key.second], kLongestDomain),
                   .count = sum.count,
                   .total = sum.total,
                   .mean = sum.mean(),
                   .median = quantile(group.durations, 0.5),
                   .p99 = quantile(group.durations, 0.99),
                   .longest = sum.longest,
                   .device = device_time(timeline, group, steps.measured())});
  }
  sort_by_total(all);
  return all;
}

// ---- Kernels, copies, calls ---------------------------------------------------------------------

/// Groups the events that `wanted` accepts by their readable names; several names may become the
/// same.
template <class Wanted, class NameOf>
std::map<std::string, Sum> sums_by_name(const Timeline& timeline, Wanted wanted, NameOf name_of) {
  std::map<std::pair<std::uint32_t, Kind>, std::pair<const Event*, Sum>> sums;
  for (const Event& event : timeline.events) {
    if (!wanted(event)) continue;
    auto& [any, sum] = sums[{event.name, event.kind}];
    any = &event;
    sum.add(event.duration());
  }
  std::map<std::string, Sum> by_name;
  for (const auto& [key, one] : sums) by_name[name_of(*one.first)].add(one.second);
  return by_name;
}

std::vector<KernelTimes> kernel_times(const Activity& activity, const Interval& measured) {
  const Timeline& timeline = activity.timeline();
  std::vector<KernelTimes> all;
  for (const auto& [name, sum] : sums_by_name(
           timeline,
           [&](const Event& event) {
             return activity.computes(event) && measured.contains(event.begin);
           },
           [&](const Event& event) { return readable_within_bounds(label(timeline, event)); }))
    all.push_back({name, sum.count, sum.total, sum.mean(), sum.longest});
  sort_by_total(all);
  return all;
}

/// Finds the times in which threads of penstock poll for copies: a worker in "wait for memory", or
/// the thread of a Readback outside of its ranges.
class PollingTimes {
 public:
  explicit PollingTimes(const Timeline& timeline) : timeline_(timeline) {
    std::map<std::uint32_t, std::vector<Interval>> waits, others;
    for (const Event& event : timeline.events)
      if (event.kind == Kind::range && timeline.domain(event) == "penstock")
        (timeline.name(event) == "wait for memory" ? waits : others)[event.track].push_back(
            {event.begin, event.end});
    for (auto& [track, spans] : waits) waits_[track] = united(std::move(spans));
    for (std::uint32_t track = 0; track < timeline.tracks.size(); ++track)
      if (timeline.tracks[track].name == "penstock readback" &&
          timeline.tracks[track].kind == Track::Kind::thread)
        callbacks_[track] = united(std::move(others[track]));
  }

  bool has(const Event& call) const {
    return is_polling_time(call) && is_poll(plain_name(timeline_.name(call)));
  }

 private:
  static bool is_poll(std::string_view name) {
    return name == "cudaEventQuery" || name == "cudaThreadExchangeStreamCaptureMode";
  }
  bool is_polling_time(const Event& call) const {
    if (const auto found = waits_.find(call.track); found != waits_.end())
      return contains(found->second, call.begin);
    const auto found = callbacks_.find(call.track);
    return found != callbacks_.end() && !contains(found->second, call.begin);
  }

  const Timeline& timeline_;
  std::map<std::uint32_t, Intervals> waits_, callbacks_;  // by track
};

std::vector<CallTimes> call_times(const Timeline& timeline, const Interval& host) {
  const PollingTimes polls(timeline);
  std::vector<CallTimes> all;
  for (const bool polling : {false, true})
    for (const auto& [name, sum] : sums_by_name(
             timeline,
             [&](const Event& event) {
               return event.kind == Kind::call && host.contains(event.begin) &&
                      polls.has(event) == polling;
             },
             [&](const Event& event) { return std::string(plain_name(timeline.name(event))); }))
      all.push_back({name, sum.count, sum.total, sum.longest, polling});
  sort_by_total(all);
  return all;
}

double seconds(Time time) {
  return static_cast<double>(time) / 1e9;
}

/// Returns bytes per second by direction: the value in the options, else the best of all large
/// copies.
std::map<Direction, double> best_rates(const Timeline& timeline, const ReportOptions& options) {
  constexpr std::uint64_t kLarge = 1 << 20;
  std::map<Direction, double> best;
  for (const Event& event : timeline.events)
    if (event.kind == Kind::copy && event.value >= kLarge) {
      double& rate = best[event.direction];
      rate = std::max(rate, ratio(static_cast<double>(event.value), seconds(event.duration())));
    }
  if (options.host_to_device > 0) best[Direction::host_to_device] = options.host_to_device;
  if (options.device_to_host > 0) best[Direction::device_to_host] = options.device_to_host;
  return best;
}

std::vector<CopyTimes> copy_times(const Timeline& timeline, const Interval& measured,
                                  const ReportOptions& options) {
  std::map<std::tuple<Direction, bool, bool>, CopyTimes> kinds;
  for (const Event& event : timeline.events) {
    if (event.kind != Kind::copy || !measured.contains(event.begin)) continue;
    CopyTimes& copies =
        kinds[{event.direction, event.has(Flag::pageable), event.has(Flag::synchronous)}];
    ++copies.count;
    copies.bytes += event.value;
    copies.total += event.duration();
  }
  std::map<Direction, double> best = best_rates(timeline, options);
  std::vector<CopyTimes> all;
  for (auto& [kind, copies] : kinds) {
    std::tie(copies.direction, copies.pageable, copies.synchronous) = kind;
    copies.bandwidth = ratio(static_cast<double>(copies.bytes), seconds(copies.total));
    copies.best = best[copies.direction];
    all.push_back(copies);
  }
  sort_by_total(all);
  return all;
}

// ---- Devices ------------------------------------------------------------------------------------

/// The mean of the samples of a device; -1: there are none.
double video_engines(const std::vector<EngineUse>& samples, int device, const Interval& measured) {
  double sum = 0;
  int count = 0;
  for (const EngineUse& use : samples) {
    if (use.device != device || !measured.contains(use.time)) continue;
    sum += use.percent / 100.0;
    ++count;
  }
  return count == 0 ? -1 : sum / count;
}

std::vector<DeviceTimes> device_times(const Activity& activity, const Interval& measured) {
  std::vector<DeviceTimes> all;
  for (const DeviceWork& work : activity.work_within(measured)) {
    const Time busy = length(work.busy);
    all.push_back(
        {.device = work.device,
         .name = work.device == 0 ? activity.timeline().origin.device : "",
         .busy = busy,
         .compute = length(work.compute),
         .copy = length(work.copy),
         .overlap = length(intersection(work.copy, work.compute)),
         .idle = ratio(measured.length() - busy, measured.length()),
         .video_engines = video_engines(activity.timeline().engine_use, work.device, measured)});
  }
  return all;
}

std::vector<DeviceMemory> device_memory(const Timeline& timeline, const Interval& measured) {
  std::map<int, DeviceMemory> all;
  for (const MemoryLevel& level : timeline.memory) {
    const auto [found, is_first] = all.try_emplace(level.device);
    DeviceMemory& memory = found->second;
    if (is_first) memory = {level.device, level.bytes, level.bytes, level.bytes, level.begin, 0};
    if (level.bytes != memory.end && measured.contains(level.begin)) ++memory.changes;
    if (level.bytes > memory.peak) {
      memory.peak = level.bytes;
      memory.peak_at = level.begin;
    }
    memory.end = level.bytes;
  }
  std::vector<DeviceMemory> result;
  for (const auto& [device, memory] : all) result.push_back(memory);
  return result;
}

std::vector<Gap> longest_gaps(const Activity& activity, const Steps& steps, std::size_t count) {
  std::vector<Gap> all;
  for (const DeviceGap& gap : gaps_of(activity, steps, 1)) {
    if (all.size() == count) break;
    const CpuActivity cpu = cpu_during(activity, gap);
    all.push_back({.device = gap.device,
                   .begin = gap.idle.begin,
                   .end = gap.idle.end,
                   .cpu = cpu.name,
                   .cause = cpu.cause,
                   .next = readable_within_bounds(label(activity.timeline(), *gap.next))});
  }
  return all;
}

}  // namespace

std::string_view to_string(Cause cause) {
  switch (cause) {
    case Cause::unknown:
      return "";
    case Cause::input:
      return "waits for input";
    case Cause::blocking_call:
      return "waits for the device";
    case Cause::allocation:
      return "allocates memory";
    case Cause::pageable_copy:
      return "stages pageable memory";
    case Cause::submission:
      return "submits work";
    case Cause::program:
      return "the program's own code";
  }
  return "";
}

Report::Report(const Timeline& timeline, const ReportOptions& options)
    : origin(timeline.origin), dropped(timeline.dropped) {
  const Activity activity(timeline);
  const Steps found(activity, options.step, options.first_step);
  const Interval& measured = found.measured();
  begin = measured.begin;
  end = measured.end;
  if (found.marked()) {
    steps = found.counted();
    step_name = found.name();
    const Step& first = found.all().front();
    if (!first.counts) first_step = first.taken();
    step_mean = measured.length() / static_cast<Time>(steps);
    const std::vector<Time> periods = found.periods();
    step_median = quantile(periods, 0.5);
    step_p99 = quantile(periods, 0.99);
    samples_per_second =
        ratio(static_cast<double>(steps) * options.samples_per_step, seconds(measured.length()));
  }
  ranges = range_times(activity, found);
  kernels = kernel_times(activity, measured);
  copies = copy_times(timeline, measured, options);
  calls = call_times(timeline, {found.host_begin(), measured.end});
  devices = device_times(activity, measured);
  memory = device_memory(timeline, measured);
  gaps = longest_gaps(activity, found, options.gaps);
}

}  // namespace penstock::trace
