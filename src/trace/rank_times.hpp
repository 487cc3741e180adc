// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankTimes: how each rank of a job spends its steps, and for which rank the others wait.
//
// Ranks that add up their gradients take their steps together, so every rank's steps are as long as
// those of the slowest rank. The slowest rank is found by its own time: the step without the time
// in which the device only communicated. The other ranks spend the difference waiting within the
// communication.

#include <penstock/trace/findings.hpp>
#include <penstock/trace/report.hpp>
#include <penstock/version.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Each moment of a step belongs to one part: the first one that applies.
enum class Part : std::uint8_t {
  kernels,        ///< kernels and fills that do not communicate
  communication,  ///< kernels that do; or an idle device while the host waits for other ranks
  copies,         ///< only copies run
  // Nothing runs, for the reason with the same name (Cause).
  input,
  blocking_call,
  allocation,
  pageable_copy,
  submission,
  program,
  unknown,  ///< unknown, or one of the shorter gaps
};
inline constexpr std::size_t kParts = 10;

/// Returns "kernels" or "waits for input", for example.
std::string_view to_string(Part part);

/// Mean nanoseconds of a step, or of the whole timeline if there are no steps.
struct RankTimes {
  int rank = 0;
  Report report;
  std::vector<Finding> findings;
  std::array<double, kParts> parts{};
  /// What the CPU did most in the time without work, by part.
  std::array<std::string, kParts> cpu;
  std::map<std::string, double> kernels;  ///< by name; those of Part::kernels
  std::map<std::string, double> inputs;   ///< by name: the mean of a range such as "fill"

  /// Measures the device with the most work.
  RankTimes(const Timeline& timeline, const ReportOptions& options);

  double step() const;
  double own() const;
  double operator[](Part part) const { return parts[static_cast<std::size_t>(part)]; }
};

/// Decides by the name: NCCL's kernels, and all kernels whose name contains all-reduce.
bool communicates(std::string_view name);

struct Slowest {
  std::size_t index = 0;      ///< index into the ranks
  double excess = 0;          ///< ns per step: its own time minus the mean of the others'
  double share = 0;           ///< relative to the mean of the others
  Part part = Part::kernels;  ///< the part that explains most of it
  double part_excess = 0;
  std::string reason;       ///< "waits for its batches (in 'get batch'): source-bound"
  bool stands_out = false;  ///< the excess is at least 2 %
};

/// Requires at least two ranks.
Slowest slowest_of(const std::vector<RankTimes>& ranks);

}  // namespace penstock::trace::detail
