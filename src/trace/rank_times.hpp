// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankTimes: what the ranks of a job did with their steps, and which of them the others wait for.
//
// Ranks that add up their gradients take their steps together: all steps are as long as those of
// the slowest rank. What tells it is its own time, which is the step without the time in which the
// device did nothing but communicate; the others spend theirs waiting within the communication.

#include <penstock/trace/findings.hpp>
#include <penstock/trace/report.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace penstock::trace::detail {

/// Each moment of a step is of one of them: of the first one that is true of it.
enum class Part : std::uint8_t {
  kernels,        ///< kernels and fills run that do not communicate
  communication,  ///< kernels that do; or nothing, while the host waits for other ranks
  copies,         ///< copies alone
  // Nothing runs, for the reason of the same name (Cause):
  input,
  blocking_call,
  allocation,
  pageable_copy,
  submission,
  program,
  unknown,  ///< or in one of the shorter gaps
};
inline constexpr std::size_t kParts = 10;

/// "kernels", "waits for input" ...
std::string_view to_string(Part part);

/// Nanoseconds of a step, on the mean; of all the timeline where there are no steps.
struct RankTimes {
  int rank = 0;
  Report report;
  std::vector<Finding> findings;
  std::array<double, kParts> parts{};
  /// Of the time without work, what the CPU did then: the most of it. By part.
  std::array<std::string, kParts> cpu;
  std::map<std::string, double> kernels;  ///< by name, those of Part::kernels
  std::map<std::string, double> inputs;   ///< a range's mean, by name: "fill" and its like

  /// Of a device that does the most.
  RankTimes(const Timeline& timeline, const ReportOptions& options);

  double step() const;
  double own() const;
  double operator[](Part part) const { return parts[static_cast<std::size_t>(part)]; }
};

/// By name: NCCL's kernels, and whatever is called an all-reduce.
bool communicates(std::string_view name);

struct Slowest {
  std::size_t index = 0;      ///< into the ranks
  double excess = 0;          ///< ns a step: its own time, less the mean of the others'
  double share = 0;           ///< of the mean of the others'
  Part part = Part::kernels;  ///< what explains the most of it
  double part_excess = 0;
  std::string reason;       ///< "waits for its batches (in 'get batch'): source-bound"
  bool stands_out = false;  ///< by 2 % or more
};

/// Of two ranks or more.
Slowest slowest_of(const std::vector<RankTimes>& ranks);

}  // namespace penstock::trace::detail
