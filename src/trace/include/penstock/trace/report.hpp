// SPDX-License-Identifier: Apache-2.0
#pragma once

// Report: a Timeline in figures: what a step takes and where, how busy the device was, its longest
// gaps with what the CPU did in them, what copies reached.
//
//   const Report report(timeline);
//   std::cout << report << '\n';

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "timeline.hpp"

namespace penstock::trace {

struct ReportOptions {
  /// The range that is one step. Empty: the range "step" or "request" if there are any, else the
  /// consumer's "next" of penstock (from one to the following).
  std::string step;
  double samples_per_step = 0;  ///< for samples/s; 0: unknown
  /// The machine's own best of each direction, bytes a second; 0: the best copy of at least 1 MiB
  /// that the timeline has.
  double host_to_device = 0, device_to_host = 0;
  std::size_t gaps = 10;
};

/// Times of one kind of range, over all steps. Nanoseconds.
struct RangeTimes {
  std::string name, domain;
  std::uint64_t count = 0;
  Time total = 0, mean = 0, median = 0, p99 = 0, longest = 0;
  /// Of what was submitted within the ranges: time on the device (union of its intervals).
  Time device = 0;
};

struct KernelTimes {
  std::string name;
  std::uint64_t count = 0;
  Time total = 0, mean = 0, longest = 0;
};

struct CopyTimes {
  Direction direction = Direction::none;
  bool pageable = false, synchronous = false;
  std::uint64_t count = 0, bytes = 0;
  Time total = 0;
  double bandwidth = 0, best = 0;  ///< bytes a second: mean while copying; of the machine
};

struct CallTimes {
  std::string name;
  std::uint64_t count = 0;
  Time total = 0, longest = 0;
};

/// Time in which a device did nothing.
struct Gap {
  int device = 0;
  Time begin = 0, end = 0;
  /// What the CPU was doing: the innermost call or range of the thread that submitted what ended
  /// the gap, by the longest share of it: "cudaStreamSynchronize", "get batch".
  std::string cpu;
  std::string next;  ///< what ended the gap: a kernel's name, "copy host to device"
};

struct DeviceTimes {
  int device = 0;
  std::string name;
  Time busy = 0;     ///< anything running: union
  Time compute = 0;  ///< kernels: union
  Time copy = 0;     ///< copies: union
  Time overlap = 0;  ///< of copies with kernels
  double idle = 0;   ///< 0 ... 1 of the measured time
};

class Report {
 public:
  /// O(n log n) of the events. The measured time is from the first step's begin to the last one's
  /// end, or all of the timeline where there are no steps.
  explicit Report(const Timeline& timeline, const ReportOptions& options = {});

  Origin origin;
  Time begin = 0, end = 0;  ///< the measured time
  std::uint64_t steps = 0;
  std::string step_name;
  double samples_per_second = 0;
  Time step_mean = 0, step_median = 0, step_p99 = 0;
  std::vector<RangeTimes> ranges;    ///< by total, longest first
  std::vector<KernelTimes> kernels;  ///< the same
  std::vector<CopyTimes> copies;
  std::vector<CallTimes> calls;
  std::vector<DeviceTimes> devices;
  std::vector<Gap> gaps;  ///< longest first
  std::uint64_t dropped = 0;
};

/// For people: at most 100 lines of at most 110 columns.
std::ostream& operator<<(std::ostream& out, const Report& report);

}  // namespace penstock::trace
