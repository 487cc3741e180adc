// SPDX-License-Identifier: Apache-2.0
#include "rank_times.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include "activity.hpp"
#include "gaps.hpp"
#include "intervals.hpp"
#include "kernel_names.hpp"
#include "labels.hpp"
#include "steps.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

// The cause of a gap is searched in the whole timeline, so only this many gaps get one.
constexpr std::size_t kGapsWithCause = 200;
constexpr double kStandsOut = 0.02;

Part part_of(Cause cause) {
  switch (cause) {
    case Cause::input:
      return Part::input;
    case Cause::blocking_call:
      return Part::blocking_call;
    case Cause::allocation:
      return Part::allocation;
    case Cause::pageable_copy:
      return Part::pageable_copy;
    case Cause::submission:
      return Part::submission;
    case Cause::program:
      return Part::program;
    case Cause::unknown:
      break;
  }
  return Part::unknown;
}

/// The time of one device within the measured time, each moment counted once.
class DeviceParts {
 public:
  DeviceParts(const Activity& activity, const Steps& steps, RankTimes& rank)
      : activity_(activity), steps_(steps), rank_(rank) {}

  /// Measures the busiest device; the times are divided by `count`, the number of steps.
  void take(double count) {
    count_ = count;
    const std::vector<DeviceWork> work = activity_.work_within(steps_.measured());
    if (work.empty()) {
      add(Part::unknown, steps_.measured().length());
      return;
    }
    const auto busiest = std::max_element(
        work.begin(), work.end(),
        [](const DeviceWork& a, const DeviceWork& b) { return length(a.busy) < length(b.busy); });
    take_work(*busiest);
    take_gaps(busiest->device, steps_.measured().length() - length(busiest->busy));
  }

 private:
  void add(Part part, Time time) {
    rank_.parts[static_cast<std::size_t>(part)] += static_cast<double>(time) / count_;
  }

  void take_work(const DeviceWork& work) {
    const Timeline& timeline = activity_.timeline();
    const Interval& measured = steps_.measured();
    std::vector<Interval> kernels, communication;
    struct Named {
      const Event* any = nullptr;
      bool communicates = false;
      Time total = 0;
    };
    std::map<std::uint32_t, Named> names;
    for (const Event& event : timeline.events) {
      const bool counts = activity_.computes(event) || event.kind == Kind::fill;
      if (!counts || timeline.track(event).device != work.device) continue;
      const Interval part{std::max(event.begin, measured.begin), std::min(event.end, measured.end)};
      if (part.length() <= 0) continue;
      const auto [found, is_new] = names.try_emplace(event.name);
      Named& name = found->second;
      if (is_new) name = {&event, communicates(timeline.name(event))};
      (name.communicates ? communication : kernels).push_back(part);
      name.total += part.length();
    }
    for (const auto& [number, name] : names)
      if (!name.communicates)
        rank_.kernels[readable_within_bounds(label(timeline, *name.any))] +=
            static_cast<double>(name.total) / count_;
    const Intervals compute = united(std::move(kernels));
    const Intervals exposed = difference(united(std::move(communication)), compute);
    add(Part::kernels, length(compute));
    add(Part::communication, length(exposed));
    add(Part::copies, length(difference(difference(work.busy, compute), exposed)));
  }

  void take_gaps(int device, Time idle) {
    std::map<std::pair<Part, std::string>, Time> by_cpu;
    std::size_t left = kGapsWithCause;
    for (const DeviceGap& gap : gaps_of(activity_, steps_, 1)) {
      if (gap.device != device || left == 0) continue;
      --left;
      const CpuActivity cpu = cpu_during(activity_, gap);
      const Part part = communicates(cpu.name) ? Part::communication : part_of(cpu.cause);
      const Time time = std::min(gap.idle.length(), idle);
      idle -= time;
      add(part, time);
      by_cpu[{part, cpu.name}] += time;
    }
    add(Part::unknown, idle);
    std::map<Part, Time> longest;
    for (const auto& [key, time] : by_cpu) {
      if (time <= longest[key.first]) continue;
      longest[key.first] = time;
      rank_.cpu[static_cast<std::size_t>(key.first)] = key.second;
    }
  }

  const Activity& activity_;
  const Steps& steps_;
  RankTimes& rank_;
  double count_ = 1;
};

/// Returns the mean of `value` over all ranks except one.
template <class Value>
double mean_of_others(const std::vector<RankTimes>& ranks, std::size_t but, Value value) {
  double sum = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (i != but) sum += value(ranks[i]);
  return sum / static_cast<double>(ranks.size() - 1);
}

double at(const std::map<std::string, double>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? 0 : found->second;
}

using Values = std::map<std::string, double> RankTimes::*;

/// Returns "; its 'fill' takes 9.81 ms, 3.20 ms on the others", for the largest difference.
std::string largest_difference(const std::vector<RankTimes>& ranks, std::size_t index,
                               Values values) {
  std::string name;
  double largest = 0, its = 0, theirs = 0;
  for (const auto& [one, value] : ranks[index].*values) {
    const double others = mean_of_others(
        ranks, index, [&, &key = one](const RankTimes& rank) { return at(rank.*values, key); });
    if (value - others <= largest) continue;
    name = one;
    largest = value - others;
    its = value;
    theirs = others;
  }
  if (name.empty()) return "";
  return "; its '" + limited(on_one_line(name), 60) + "' takes " + in_time(static_cast<Time>(its)) +
         ", " + in_time(static_cast<Time>(theirs)) + " on the others";
}

std::string text_of(Part part) {
  switch (part) {
    case Part::kernels:
      return "its kernels take longer";
    case Part::copies:
      return "copies run with no kernel beside them";
    case Part::input:
      return "it waits for its batches: source-bound";
    case Part::blocking_call:
      return "its host waits for the device, which then waits for the host";
    case Part::allocation:
      return "its host allocates memory";
    case Part::pageable_copy:
      return "its host waits in copies of pageable memory";
    case Part::submission:
      return "its device waits for launches: launch-bound";
    case Part::program:
      return "its device waits for the program's own code";
    default:
      return "more time passes between its kernels";
  }
}

std::string reason_of(const std::vector<RankTimes>& ranks, const Slowest& slowest) {
  const RankTimes& rank = ranks[slowest.index];
  std::string text = text_of(slowest.part);
  const std::string& cpu = rank.cpu[static_cast<std::size_t>(slowest.part)];
  if (!cpu.empty()) text += " (in '" + limited(on_one_line(cpu), 60) + "')";
  if (slowest.part == Part::kernels)
    text += largest_difference(ranks, slowest.index, &RankTimes::kernels);
  if (slowest.part == Part::input)
    text += largest_difference(ranks, slowest.index, &RankTimes::inputs);
  return text;
}

}  // namespace

std::string_view to_string(Part part) {
  switch (part) {
    case Part::kernels:
      return "kernels";
    case Part::communication:
      return "communication";
    case Part::copies:
      return "copies alone";
    case Part::input:
      return to_string(Cause::input);
    case Part::blocking_call:
      return to_string(Cause::blocking_call);
    case Part::allocation:
      return to_string(Cause::allocation);
    case Part::pageable_copy:
      return to_string(Cause::pageable_copy);
    case Part::submission:
      return to_string(Cause::submission);
    case Part::program:
      return to_string(Cause::program);
    case Part::unknown:
      break;
  }
  return "short gaps";
}

bool communicates(std::string_view name) {
  std::string letters;
  for (const char character : name)
    if (std::isalnum(static_cast<unsigned char>(character)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
  return letters.find("nccl") != std::string::npos ||
         letters.find("allreduce") != std::string::npos;
}

RankTimes::RankTimes(const Timeline& timeline, const ReportOptions& options)
    : rank(timeline.origin.rank), report(timeline, options) {
  RuleOptions rules;
  rules.step = options.step;
  findings = find(timeline, rules);
  const Activity activity(timeline);
  const Steps steps(activity, options.step, options.first_step);
  const auto count = static_cast<double>(std::max<std::uint64_t>(1, report.steps));
  DeviceParts(activity, steps, *this).take(count);
  // A range in which a thread waits is not the slow one.
  for (const RangeTimes& range : report.ranges)
    if (range.name == "fill" || range.name == "load" || range.name == "decode")
      inputs[range.name] = std::max(inputs[range.name], static_cast<double>(range.mean));
}

double RankTimes::step() const {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

double RankTimes::own() const {
  return step() - (*this)[Part::communication];
}

Slowest slowest_of(const std::vector<RankTimes>& ranks) {
  Slowest slowest;
  const auto found =
      std::max_element(ranks.begin(), ranks.end(),
                       [](const RankTimes& a, const RankTimes& b) { return a.own() < b.own(); });
  slowest.index = static_cast<std::size_t>(found - ranks.begin());
  const double others =
      mean_of_others(ranks, slowest.index, [](const RankTimes& rank) { return rank.own(); });
  slowest.excess = found->own() - others;
  slowest.share = ratio(slowest.excess, others);
  slowest.stands_out = slowest.share >= kStandsOut;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto part = static_cast<Part>(i);
    if (part == Part::communication) continue;
    const double excess =
        (*found)[part] -
        mean_of_others(ranks, slowest.index, [&](const RankTimes& rank) { return rank[part]; });
    if (excess <= slowest.part_excess) continue;
    slowest.part = part;
    slowest.part_excess = excess;
  }
  slowest.reason = reason_of(ranks, slowest);
  return slowest;
}

}  // namespace penstock::trace::detail
