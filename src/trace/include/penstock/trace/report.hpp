// SPDX-License-Identifier: Apache-2.0
#pragma once

// Report: a Timeline in figures: what a step takes and where, how busy the device was, its longest
// gaps with what the CPU did in them, what copies reached.
//
//   const Report report(timeline);
//   std::cout << report << '\n';

#include <cstdint>
#include <iosfwd>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "timeline.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

/// What a Report measures.
struct ReportOptions {
  /// The range that is one step. Empty: the range "step" or "request" if there are any, else the
  /// consumer's "next" of penstock (from one to the following).
  std::string step = {};
  double samples_per_step = 0;  ///< for Report::samples_per_second; 0: unknown
  /// The machine's own best of each direction, bytes a second; 0: the best copy of at least 1 MiB
  /// that the timeline has.
  double host_to_device = 0, device_to_host = 0;
  std::size_t gaps = 10;  ///< number of gaps that are listed
  /// The first step counts as any other; else it is apart (Report::first_step).
  bool first_step = false;
};

/// Times of one kind of range, over all threads. Nanoseconds; of a range that begins before the
/// measured time or ends after it, the part within.
struct RangeTimes {
  std::string name, domain;  ///< of the range, and of its NVTX domain: "" is the default one
  std::uint64_t count = 0;   ///< number of ranges
  Time total = 0, mean = 0, median = 0, p99 = 0, longest = 0;  ///< of the times from begin to end
  /// Of what was submitted within the ranges, on their threads: time on the device (union of its
  /// intervals). 0 where ranges of 64 other names were open around one of them: not known.
  Time device = 0;
};

/// Times of one kernel, over all streams. Nanoseconds.
struct KernelTimes {
  std::string name;                       ///< name of the kernel, demangled, without parameters
  std::uint64_t count = 0;                ///< number of launches
  Time total = 0, mean = 0, longest = 0;  ///< time on the device
};

/// Times of copies of one direction and kind. Nanoseconds.
struct CopyTimes {
  Direction direction = Direction::none;       ///< from where to where the copies go
  bool pageable = false, synchronous = false;  ///< see Flag
  std::uint64_t count = 0, bytes = 0;          ///< number of copies, and what they copied together
  Time total = 0;                              ///< sum of their times
  double bandwidth = 0, best = 0;  ///< bytes a second: mean while copying; of the machine
};

/// Of all threads. What a call costs is told by traits_of(name).
struct CallTimes {
  std::string name;             ///< name of the function, without the suffix of a version
  std::uint64_t count = 0;      ///< number of calls
  Time total = 0, longest = 0;  ///< nanoseconds on the host
  /// They are penstock's own, which asks whether a copy is done while a thread of it waits for that
  /// ("wait for memory", a result that is read back). They cost the program nothing.
  bool polling = false;
};

/// Why the CPU was late with the work that ended a gap.
enum class Cause : std::uint8_t {
  unknown,        ///< which thread submitted it is not known
  input,          ///< it loaded a batch or waited for one: "next", "fill", "get batch", "load"
  blocking_call,  ///< it waited for the device
  allocation,     ///< it allocated or freed memory
  pageable_copy,  ///< it waited in an asynchronous copy of pageable memory, which is staged
  submission,     ///< it submitted work
  program,        ///< it did something else
};
/// "waits for input"; empty for unknown.
std::string_view to_string(Cause cause);

/// Time in which a device did nothing; ended by work that it then did.
struct Gap {
  int device = 0;           ///< number of the device
  Time begin = 0, end = 0;  ///< of the time in which it did nothing
  /// What the CPU was doing: the innermost call or range of the thread that submitted what ended
  /// the gap, by the longest share of it: "cudaStreamSynchronize", "get batch". Empty: neither.
  std::string cpu;
  Cause cause = Cause::unknown;  ///< the kind of what the CPU was doing
  std::string next;              ///< what ended the gap: a kernel's name, "copy host to device"
};

/// What a device did in the measured time. Nanoseconds.
struct DeviceTimes {
  int device = 0;    ///< number of the device
  std::string name;  ///< name of the device
  Time busy = 0;     ///< time in which anything runs: union
  Time compute = 0;  ///< time of kernels (emulated: host functions too): union
  Time copy = 0;     ///< time of copies to, from and between devices: union
  Time overlap = 0;  ///< copies while a kernel runs
  double idle = 0;   ///< part of the measured time in which nothing runs, 0 ... 1
  /// How busy its video engines were, 0 ... 1: the mean of the samples in the measured time (see
  /// EngineUse); -1: there are none.
  double video_engines = -1;
};

/// What is taken of a device's memory (see MemoryLevel), in all of the timeline. Bytes.
struct DeviceMemory {
  int device = 0;           ///< number of the device
  std::uint64_t begin = 0;  ///< when it is first known
  std::uint64_t peak = 0;   ///< the most
  std::uint64_t end = 0;    ///< at the end
  Time peak_at = 0;         ///< when there is the most, for the first time
  /// Changes within the measured time, up or down. Of a training loop they are none.
  std::uint64_t changes = 0;
};

/// The figures of a Timeline.
class Report {
 public:
  /// O(n log n) of the events. The measured time is from where the device has done the first step's
  /// work (with ReportOptions::first_step, or a single step: from its begin) to where it has done
  /// the last one's; all of the timeline where there are no steps. A step is ended by its range, or
  /// by the device, whichever is later: the host may run ahead.
  explicit Report(const Timeline& timeline, const ReportOptions& options = {});

  Origin origin;                  ///< machine and process of the timeline
  Time begin = 0, end = 0;        ///< the measured time
  std::uint64_t steps = 0;        ///< steps within the measured time
  std::string step_name;          ///< name of their range; empty: no steps
  Time first_step = 0;            ///< what the step before took; 0: there is none
  double samples_per_second = 0;  ///< 0 without ReportOptions::samples_per_step
  /// The mean is of the measured time; the others of the times from one step's begin to the next.
  Time step_mean = 0, step_median = 0, step_p99 = 0;
  std::vector<RangeTimes> ranges;    ///< times of the ranges, by total, longest first
  std::vector<KernelTimes> kernels;  ///< times of the kernels, by total, longest first
  std::vector<CopyTimes> copies;     ///< times of copies, one for each direction and kind
  std::vector<CallTimes> calls;      ///< times of CUDA runtime calls, one for each function
  std::vector<DeviceTimes> devices;  ///< what each device did
  std::vector<DeviceMemory> memory;  ///< what is taken of each device's memory, where it is known
  std::vector<Gap> gaps;             ///< times in which a device did nothing, longest first
  std::uint64_t dropped = 0;         ///< events that the timeline has no room for
};

/// For people: at most 100 lines of at most 110 columns.
std::ostream& operator<<(std::ostream& out, const Report& report);

/// For programs: one JSON object with the fields of Report, times in nanoseconds.
void write_json(const Report& report, std::ostream& out);

}  // namespace penstock::trace
