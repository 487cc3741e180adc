// SPDX-License-Identifier: Apache-2.0
#pragma once

// Findings: what in a timeline keeps a GPU waiting, each with its evidence and a remedy. For people
// after a run, for CI (`penstock-trace --fail-on`), and for a program's own tests:
//
//   REQUIRE(none_of(find(timeline), Rule::synchronous_copy));

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "timeline.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

/// What is looked for in a timeline.
enum class Rule : std::uint8_t {
  pageable_copy,     ///< an asynchronous copy of pageable memory
  synchronous_copy,  ///< a copy that the host waited for
  synchronous_fill,  ///< a memset that the host waited for
  blocking_call,     ///< a host-blocking call within a step
  allocation,        ///< memory allocated or freed within a step
  gap,               ///< the device did nothing for longer than a part of a step
  not_overlapped,    ///< copies while no kernel runs
  tiny_copies,       ///< many copies that take less than their launch
  launch_bound,      ///< a stretch of kernels that end before the next one is there
  slow_first_batch,  ///< the first step takes many times the median
};
/// Number of rules.
inline constexpr int kRules = 10;

/// As `--fail-on` spells it: "pageable-copy".
std::string_view to_string(Rule rule);
/// The rule that `text` spells; nullopt if none does.
std::optional<Rule> rule_of(std::string_view text);

/// Something that keeps a GPU waiting.
struct Finding {
  Rule rule = Rule::gap;    ///< which rule found it
  std::uint64_t count = 0;  ///< how often
  Time cost = 0;            ///< nanoseconds, as far as they can be told; of devices the mean
  double share = 0;         ///< part of the measured time, at most 1
  Time begin = 0, end = 0;  ///< of the worst case
  std::uint32_t track = 0;  ///< track of the worst case, in Timeline::tracks
  std::string evidence;     ///< one sentence with numbers
  std::string remedy;       ///< one sentence: what to change
};

/// From where on something is a finding.
struct RuleOptions {
  std::string step = {};       ///< as in ReportOptions
  double gap = 0.02;           ///< a gap is a finding from this part of a step on
  Time shortest_gap = 10'000;  ///< nanoseconds; shorter gaps do not count, whatever their share
  double slow_first = 5;       ///< a first step of more than so many medians is slow
  std::uint64_t tiny_bytes = 64 * 1024;  ///< copies of fewer bytes are tiny
  bool first_step = false;  ///< the first step counts as any other; else only in slow_first_batch
};

/// The dearest first; at most one of each rule. O(n log n). What begins outside of steps does not
/// count, nor do blocking calls on threads that run no steps. Without steps all of the timeline
/// counts as one, set-up included; slow_first_batch is then never found.
std::vector<Finding> find(const Timeline& timeline, const RuleOptions& options = {});

/// Whether none of the findings is of this rule.
bool none_of(const std::vector<Finding>& findings, Rule rule);

/// For people: three lines.
std::ostream& operator<<(std::ostream& out, const Finding& finding);

/// For programs: a JSON array of objects with the fields of Finding, times in nanoseconds.
void write_json(const std::vector<Finding>& findings, std::ostream& out);

}  // namespace penstock::trace
