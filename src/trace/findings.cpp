// SPDX-License-Identifier: Apache-2.0
#include <penstock/trace/findings.hpp>

#include <algorithm>
#include <array>
#include <ostream>

#include "kernel_names.hpp"
#include "rules.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

namespace {

/// The limit in characters. The evidence quotes names, which may be as long as the recording.
constexpr std::size_t kLongestEvidence = 2000;

}  // namespace

namespace detail {

namespace {

struct RuleFacts {
  Rule rule;
  std::string_view text;
  Found (*find)(const Subject&);
};

constexpr std::array<RuleFacts, kRules> kFacts = {{
    {Rule::pageable_copy, "pageable-copy", find_pageable_copies},
    {Rule::synchronous_copy, "synchronous-copy", find_synchronous_copies},
    {Rule::synchronous_fill, "synchronous-fill", find_synchronous_fills},
    {Rule::blocking_call, "blocking-call", find_blocking_calls},
    {Rule::allocation, "allocation", find_allocations},
    {Rule::gap, "gap", find_gaps},
    {Rule::not_overlapped, "not-overlapped", find_not_overlapped},
    {Rule::tiny_copies, "tiny-copies", find_tiny_copies},
    {Rule::launch_bound, "launch-bound", find_launch_bound},
    {Rule::slow_first_batch, "slow-first-batch", find_slow_first_batch},
}};

}  // namespace

double Subject::share(Time cost) const {
  return std::min(1.0, ratio(cost, steps.measured().length()));
}

Time Subject::per_device(Time lost) const {
  return lost / static_cast<Time>(std::max<std::size_t>(1, activity.devices().size()));
}

bool Subject::counts(const Event& event) const {
  const Event* call = activity.submitter(event);
  return steps.contains(call == nullptr ? event.begin : call->begin);
}

Finding Tally::finding(const Subject& subject, Rule rule, std::string evidence,
                       std::string remedy) const {
  return {.rule = rule,
          .count = count,
          .cost = total,
          .share = subject.share(total),
          .begin = worst->begin,
          .end = worst->end,
          .track = worst->track,
          .evidence = std::move(evidence),
          .remedy = std::move(remedy)};
}

}  // namespace detail

std::string_view to_string(Rule rule) {
  for (const detail::RuleFacts& facts : detail::kFacts)
    if (facts.rule == rule) return facts.text;
  return "unknown";
}

std::optional<Rule> rule_of(std::string_view text) {
  for (const detail::RuleFacts& facts : detail::kFacts)
    if (facts.text == text) return facts.rule;
  return {};
}

std::vector<Finding> find(const Timeline& timeline, const RuleOptions& options) {
  const detail::Activity activity(timeline);
  const detail::Steps steps(activity, options.step, options.first_step);
  const detail::Subject subject{timeline, activity, steps, options};
  std::vector<Finding> findings;
  for (const detail::RuleFacts& facts : detail::kFacts)
    if (detail::Found found = facts.find(subject)) {
      found->evidence = detail::limited(detail::on_one_line(found->evidence), kLongestEvidence);
      findings.push_back(std::move(*found));
    }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.cost > b.cost; });
  return findings;
}

bool none_of(const std::vector<Finding>& findings, Rule rule) {
  return std::none_of(findings.begin(), findings.end(),
                      [&](const Finding& finding) { return finding.rule == rule; });
}

std::ostream& operator<<(std::ostream& out, const Finding& finding) {
  return out << to_string(finding.rule) << ": " << detail::counted(finding.count, "time", "times")
             << ", " << detail::in_time(finding.cost) << " (" << detail::in_percent(finding.share)
             << " of the measured time)\n  " << finding.evidence << "\n  " << finding.remedy;
}

}  // namespace penstock::trace
