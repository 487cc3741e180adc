// SPDX-License-Identifier: Apache-2.0
//
// Writes a Report as text for people.

#include <penstock/trace/call_traits.hpp>
#include <penstock/trace/report.hpp>

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <sstream>

#include "kernel_names.hpp"
#include "labels.hpp"
#include "units.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

namespace {

using namespace detail;

// The number of rows of each table. All tables with their titles stay below 100 lines.
constexpr std::size_t kRanges = 16, kDevices = 8, kMemory = 3, kKernels = 14, kCopies = 8,
                      kCalls = 12, kGaps = 10;
constexpr std::size_t kColumns = 110;
constexpr std::size_t kCpu = 46;  // columns for the activity of the CPU

/// Cuts or pads the text to `width` characters (std::setw counts bytes).
std::string left(std::string_view text, std::size_t width) {
  std::string cell = shortened(text, width);
  return cell.append(width - width_of(cell), ' ');
}

std::string right(std::string_view text, std::size_t width) {
  const std::size_t length = width_of(text);
  return std::string(length < width ? width - length : 0, ' ').append(text);
}

/// Prints the first rows of a table, and the number of the other ones.
template <class Row, class Print>
void print_rows(std::ostream& out, const std::vector<Row>& rows, std::size_t most, Print print) {
  // One more row takes no more space than the line that says there is one more.
  const std::size_t shown = rows.size() <= most + 1 ? rows.size() : most;
  for (std::size_t i = 0; i < shown; ++i) print(rows[i]);
  if (shown < rows.size()) out << "  ... and " << rows.size() - shown << " more\n";
}

void print_origin(std::ostream& out, const Report& report) {
  const Origin& origin = report.origin;
  std::ostringstream place;
  place << " (";
  if (origin.rank >= 0) place << "rank " << origin.rank << ", ";
  place << "process " << origin.process;
  if (!origin.host.empty()) place << " on " << shortened(origin.host, 24);
  place << ')';
  const std::string program = origin.program.empty() ? "a program" : origin.program;
  out << "penstock trace of " << shortened(program, kColumns - 18 - width_of(place.str()))
      << place.str() << '\n';
  std::string machine = origin.device.empty() ? "no device's name known" : origin.device;
  if (!origin.recorder.empty()) machine += ", recorded by " + origin.recorder;
  out << shortened(machine, kColumns) << '\n';
  if (origin.emulated)
    out << "EMULATED: these are times of the emulated CUDA runtime on a CPU, and say nothing about "
           "a GPU.\n";
  if (!origin.excerpt.empty())
    out << "EXCERPT: " << limited(on_one_line(origin.excerpt), 200) << ".\n";
  if (report.dropped > 0)
    out << "INCOMPLETE: " << counted(report.dropped, "event was", "events were")
        << " dropped for want of room (max_events): all figures are too low.\n";
}

void print_steps(std::ostream& out, const Report& report) {
  const Time measured = report.end - report.begin;
  if (report.steps == 0) {
    out << "measured: " << in_time(measured) << ", all of the timeline: no range marks its steps\n";
    return;
  }
  std::ostringstream line;
  line << std::fixed << std::setprecision(1);
  line << "measured: " << counted(report.steps, "step", "steps") << " (\""
       << shortened(report.step_name, 24) << "\") in " << in_time(measured);
  if (report.samples_per_second > 0) line << ", " << report.samples_per_second << " samples/s";
  out << line.str() << "\nstep: mean " << in_time(report.step_mean) << ", median "
      << in_time(report.step_median) << ", p99 " << in_time(report.step_p99);
  if (report.first_step > 0)
    out << "; the first took " << in_time(report.first_step) << " and is not counted";
  out << '\n';
}

void print_devices(std::ostream& out, const Report& report) {
  if (report.devices.empty()) {
    out << "\nno device did anything\n";
    return;
  }
  out << '\n' << left("device", 32);
  for (const char* title : {"busy", "kernels", "copies"}) out << right(title, 12);
  out << right("copies under kernels", 24) << right("idle", 12) << '\n';
  print_rows(out, report.devices, kDevices, [&](const DeviceTimes& device) {
    std::string name = std::to_string(device.device);
    if (!device.name.empty()) name += " " + device.name;
    out << left("  " + name, 32);
    for (const Time time : {device.busy, device.compute, device.copy})
      out << right(in_time(time), 12);
    out << right(device.copy == 0 ? "-" : in_percent(ratio(device.overlap, device.copy)), 24)
        << right(in_percent(device.idle), 12) << '\n';
    if (device.video_engines >= 0)
      out << "  its video engines are busy " << in_percent(device.video_engines)
          << " of the time (NVML)\n";
  });
}

void print_memory(std::ostream& out, const Report& report) {
  print_rows(out, report.memory, kMemory, [&](const DeviceMemory& memory) {
    const std::string when = memory.peak_at < report.begin
                                 ? "before what is measured"
                                 : "at " + in_time(memory.peak_at - report.begin);
    const std::string line =
        "memory of device " + std::to_string(memory.device) + ": at most " + in_bytes(memory.peak) +
        ", " + when + "; " + in_bytes(memory.end) + " at the end; " +
        (memory.changes == 0 ? "no change" : counted(memory.changes, "change", "changes")) +
        " while measured";
    out << shortened(line, kColumns) << '\n';
  });
}

void print_ranges(std::ostream& out, const Report& report) {
  if (report.ranges.empty()) return;
  out << '\n' << left("range", 34) << right("count", 8);
  for (const char* title : {"total", "mean", "median", "p99", "longest", "on device"})
    out << right(title, 11);
  out << '\n';
  print_rows(out, report.ranges, kRanges, [&](const RangeTimes& range) {
    const std::string domain = range.domain.empty() ? "" : " (" + range.domain + ")";
    out << left("  " + range.name + domain, 34) << right(std::to_string(range.count), 8);
    for (const Time time : {range.total, range.mean, range.median, range.p99, range.longest})
      out << right(in_time(time), 11);
    out << right(range.device == 0 ? "-" : in_time(range.device), 11) << '\n';
  });
}

void print_kernels(std::ostream& out, const Report& report) {
  if (report.kernels.empty()) return;
  Time all = 0;
  for (const KernelTimes& kernel : report.kernels) all += kernel.total;
  out << '\n'
      << left("kernel", 58) << right("count", 10) << right("total", 11) << right("share", 9)
      << right("mean", 11) << right("longest", 11) << '\n';
  print_rows(out, report.kernels, kKernels, [&](const KernelTimes& kernel) {
    out << left("  " + kernel.name, 58) << right(std::to_string(kernel.count), 10)
        << right(in_time(kernel.total), 11) << right(in_percent(ratio(kernel.total, all)), 9)
        << right(in_time(kernel.mean), 11) << right(in_time(kernel.longest), 11) << '\n';
  });
}

void print_copies(std::ostream& out, const Report& report) {
  if (report.copies.empty()) return;
  out << '\n'
      << left("copies", 50) << right("count", 8) << right("bytes", 12) << right("total", 12)
      << right("rate", 14) << right("of best", 14) << '\n';
  print_rows(out, report.copies, kCopies, [&](const CopyTimes& copies) {
    std::string kind(label(copies.direction));
    if (copies.direction == Direction::host_to_device ||
        copies.direction == Direction::device_to_host)
      kind += copies.pageable ? ", pageable" : ", pinned";
    if (copies.synchronous) kind += ", synchronous";
    out << left("  " + kind, 50) << right(std::to_string(copies.count), 8)
        << right(in_bytes(copies.bytes), 12) << right(in_time(copies.total), 12)
        << right(in_rate(copies.bandwidth), 14)
        << right(copies.best > 0 ? in_percent(ratio(copies.bandwidth, copies.best)) : "-", 14)
        << '\n';
  });
}

std::string cost_of(const std::string& call) {
  const CallTraits traits = traits_of(call);
  std::string cost;
  if (traits.allocating) cost = "allocates";
  if (traits.creating) cost = "creates";
  if (traits.blocking) cost += cost.empty() ? "blocks" : ", blocks";
  return cost;
}

/// Returns the most expensive calls. A call that may slow the loop down is never left out in favour
/// of others.
std::vector<CallTimes> calls_to_show(const Report& report) {
  std::vector<CallTimes> calls = report.calls;
  if (calls.size() <= kCalls) return calls;
  std::stable_partition(calls.begin(), calls.end(),
                        [](const CallTimes& call) { return !cost_of(call.name).empty(); });
  calls.resize(kCalls);
  std::stable_sort(calls.begin(), calls.end(),
                   [](const CallTimes& a, const CallTimes& b) { return a.total > b.total; });
  return calls;
}

void print_calls(std::ostream& out, const Report& report) {
  if (report.calls.empty()) return;
  out << '\n'
      << left("call", 48) << right("count", 10) << right("total", 12) << right("longest", 12)
      << "    what it may cost\n";
  for (const CallTimes& call : calls_to_show(report)) {
    const std::string cost = cost_of(call.name);
    out << left("  " + call.name + (call.polling ? " (polling)" : ""), 48)
        << right(std::to_string(call.count), 10) << right(in_time(call.total), 12)
        << right(in_time(call.longest), 12) << (cost.empty() ? "" : "    " + cost) << '\n';
  }
  if (report.calls.size() > kCalls)
    out << "  ... and " << report.calls.size() - kCalls << " more\n";
}

void print_gaps(std::ostream& out, const Report& report) {
  if (report.gaps.empty()) return;
  out << '\n'
      << left("longest gaps", 12) << right("at", 12) << right("device", 8) << "  "
      << left("meanwhile the CPU", kCpu) << "  then\n";
  std::size_t left_to_show = kGaps;
  for (const Gap& gap : report.gaps) {
    if (left_to_show-- == 0) break;
    const std::string_view cause = to_string(gap.cause);
    std::string cpu;
    if (!gap.cpu.empty()) cpu = shortened(gap.cpu, kCpu - cause.size() - 2);
    if (!cause.empty()) cpu.append(cpu.empty() ? "" : ": ").append(cause);
    out << right(in_time(gap.end - gap.begin), 12) << right(in_time(gap.begin - report.begin), 12)
        << right(std::to_string(gap.device), 8) << "  " << left(cpu.empty() ? "-" : cpu, kCpu)
        << "  " << shortened(gap.next, kColumns - 36 - kCpu) << '\n';
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Report& report) {
  std::ostringstream text;
  print_origin(text, report);
  print_steps(text, report);
  print_devices(text, report);
  print_memory(text, report);
  print_ranges(text, report);
  print_kernels(text, report);
  print_copies(text, report);
  print_calls(text, report);
  print_gaps(text, report);
  std::string all = text.str();
  all.pop_back();  // the caller adds the end of the last line
  return out << all;
}

}  // namespace penstock::trace
