// SPDX-License-Identifier: Apache-2.0
#include "steps.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

Steps::Steps(const Activity& activity, std::string_view name, bool first_step_counts)
    : measured_{activity.timeline().begin, activity.timeline().end},
      host_begin_(activity.timeline().begin) {
  find(activity.timeline(), name);
  if (steps_.empty()) return;
  std::sort(steps_.begin(), steps_.end(),
            [](const Step& a, const Step& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i < steps_.size(); ++i) by_track_[steps_[i].track].push_back(i);
  link(first_step_counts);
  find_ends(activity);
  measure();
}

void Steps::find(const Timeline& timeline, std::string_view name) {
  if (!name.empty()) return collect(timeline, name, false);
  collect(timeline, "step", false);
  if (steps_.empty()) collect(timeline, "request", false);
  if (steps_.empty()) collect(timeline, "next", true);
}

/// `starts_only`: the ranges (of penstock's domain) do not enclose a step but mark its begin. The
/// last one marks the end of the last step.
void Steps::collect(const Timeline& timeline, std::string_view name, bool starts_only) {
  std::map<std::uint32_t, Step> open;  // by track
  for (const Event& event : timeline.events) {
    if (event.kind != Kind::range || timeline.name(event) != name) continue;
    if (starts_only && timeline.domain(event) != "penstock") continue;
    const auto [at, is_new] = open.try_emplace(event.track);
    Step& last = at->second;
    // The range lies within the last one.
    if (!is_new && event.begin < last.end && event.end <= last.end) continue;
    if (starts_only && !is_new) {
      last.end = event.begin;
      steps_.push_back(last);
    }
    last = {.begin = event.begin, .end = event.end, .track = event.track};
    if (!starts_only) steps_.push_back(last);
  }
  if (!steps_.empty()) name_ = name;
}

void Steps::link(bool first_step_counts) {
  bool any_follows = false;
  for (const auto& [track, indices] : by_track_) {
    for (std::size_t i = 0; i + 1 < indices.size(); ++i)
      steps_[indices[i]].period = steps_[indices[i + 1]].begin - steps_[indices[i]].begin;
    any_follows = any_follows || indices.size() > 1;
  }
  if (first_step_counts || !any_follows) return;
  for (const auto& [track, indices] : by_track_) steps_[indices.front()].counts = false;
}

void Steps::find_ends(const Activity& activity) {
  for (Step& step : steps_) step.done = step.end;
  for (const Event& event : activity.timeline().events) {
    if (!activity.works(event)) continue;
    const Event* call = activity.submitter(event);
    const auto track = call == nullptr ? by_track_.end() : by_track_.find(call->track);
    if (track == by_track_.end()) continue;
    const std::vector<std::size_t>& indices = track->second;
    const auto after =
        std::upper_bound(indices.begin(), indices.end(), call->begin,
                         [&](Time at, std::size_t i) { return at < steps_[i].begin; });
    if (after == indices.begin()) continue;
    Step& step = steps_[*std::prev(after)];
    if (call->begin < step.end) step.done = std::max(step.done, event.end);
  }
}

void Steps::measure() {
  const Step& first = steps_.front();
  measured_.begin = first.begin;
  host_begin_ = first.begin;
  if (!first.counts) {
    const auto counts = [](const Step& step) { return step.counts; };
    host_begin_ = std::find_if(steps_.begin(), steps_.end(), counts)->begin;
    measured_.begin = std::max(host_begin_, first.done);
  }
  measured_.end = measured_.begin;
  std::map<std::uint32_t, std::vector<Interval>> intervals;
  std::vector<Interval> all;
  for (const Step& step : steps_) {
    measured_.end = std::max(measured_.end, step.done);
    if (!step.counts) continue;
    intervals[step.track].push_back({step.begin, step.end});
    all.push_back({step.begin, step.end});
  }
  counted_ = united(std::move(all));
  for (auto& [track, of_track] : intervals) counted_on_[track] = united(std::move(of_track));
}

std::uint64_t Steps::counted() const {
  return static_cast<std::uint64_t>(
      std::count_if(steps_.begin(), steps_.end(), [](const Step& step) { return step.counts; }));
}

bool Steps::contains(Time at) const {
  return !marked() || detail::contains(counted_, at);
}

bool Steps::contains(Time at, std::uint32_t track) const {
  if (!marked()) return true;
  const auto found = counted_on_.find(track);
  return found != counted_on_.end() && detail::contains(found->second, at);
}

std::vector<Time> Steps::periods() const {
  std::vector<Time> periods;
  for (const Step& step : steps_)
    if (step.counts && step.period > 0) periods.push_back(step.period);
  // The last step of a thread has no next one. Without other steps, its own duration is its period.
  if (periods.empty())
    for (const Step& step : steps_)
      if (step.counts) periods.push_back(step.done - step.begin);
  std::sort(periods.begin(), periods.end());
  return periods;
}

Time Steps::typical() const {
  return marked() ? quantile(periods(), 0.5) : measured_.length();
}

Time quantile(const std::vector<Time>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace penstock::trace::detail
