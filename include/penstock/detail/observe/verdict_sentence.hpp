// SPDX-License-Identifier: Apache-2.0
#pragma once

// A verdict as text. It names only what the pipeline has (Stats::setup).

#include <cmath>
#include <iomanip>
#include <penstock/detail/observe/stage_times.hpp>
#include <penstock/detail/observe/units.hpp>
#include <penstock/detail/observe/verdict_rules.hpp>
#include <penstock/stats.hpp>
#include <sstream>
#include <string>

namespace penstock::detail {

inline std::string in_percent(double part) {
  return std::to_string(std::lround(100 * part)) + " %";
}
inline std::string with_one_decimal(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << value;
  return text.str();
}
inline std::string waits_of_consumer(const Verdict& verdict) {
  return "the consumer waits " + in_percent(verdict.starved) + " of its time";
}
/// Of the settings; empty where it is unknown.
inline std::string more_memory(const Verdict& verdict) {
  return verdict.more_bytes == 0 ? "" : " (" + in_bytes(verdict.more_bytes) + " more)";
}

/// " with host_depth 9 and device_depth 3", or as much of it as has to change.
inline std::string depths_for_workers(const Verdict& verdict) {
  std::string text;
  const auto add = [&](const char* name, std::size_t depth) {
    if (depth > 0) text += (text.empty() ? " with " : " and ") + (name + std::to_string(depth));
  };
  add("host_depth ", verdict.enough_host_depth);
  add("device_depth ", verdict.enough_device_depth);
  return text;
}

/// What there is not enough of for more workers.
inline const char* what_limits(const Stats& stats) {
  const MostWorkers most = most_workers(stats);
  if (most.in_all() == most.by_cores) return "cores";
  if (most.in_all() == most.by_run) return "batches of the run";
  return writes_slots(stats) ? "bytes of the device's memory" : "bytes of max_host_bytes";
}

inline std::string settings_of_workers(const Verdict& verdict, const Stats& stats) {
  if (verdict.enough_workers == 0)
    return std::string("more workers") +
           (writes_slots(stats) && !stats.device ? ", if its stream waits too" : "") + " (" +
           (stats.tuning ? "Tune::workers; " : "") + "device_times tells how many)";
  std::ostringstream text;
  text << verdict.enough_workers << " workers" << (stats.tuning ? " (Tune::workers)" : "")
       << depths_for_workers(verdict) << more_memory(verdict);
  const std::size_t wanted = workers_that_keep_up(verdict, stats);
  if (wanted > static_cast<std::size_t>(verdict.enough_workers))
    text << " are all that the " << what_limits(stats) << " allow; " << wanted;
  text << " would be enough for its " << in_milliseconds(verdict.consumer);
  if (writes_slots(stats))
    text << ", if the device can do their work at the same time";
  else if (verdict.enough_device_depth > 0)
    text << "; it holds all device slots now, so that no copy overlaps with its work";
  return text.str();
}

inline std::string say_workers(const Verdict& verdict, const Stats& stats) {
  std::string text = "the workers (" + std::to_string(stats.workers) + ") cannot keep up, " +
                     in_milliseconds(verdict.source) + " a batch, and " +
                     waits_of_consumer(verdict) + ": " + settings_of_workers(verdict, stats);
  if (source_waits(stats) && !writes_slots(stats))
    text += "; the source waits " + in_percent(1 - computing(stats).value_or(0)) +
            " of its time: if all workers wait for the same lock or connection, more do not help";
  return text;
}

inline std::string say_cheaper_source(const Verdict& verdict, const Stats& stats) {
  const std::string text = "the source cannot keep up, " + in_milliseconds(verdict.source) +
                           " a batch, and " + waits_of_consumer(verdict);
  if (queues_work(stats)) return text + ": let it do less on the device";
  if (stats.setup.unbounded)
    return text + ": it is a stream, which one worker reads, so give that worker less to do";
  const MostWorkers most = most_workers(stats);
  if (most.in_all() == most.by_cores)
    return text + ": its " + std::to_string(stats.workers) + " workers compute on " +
           std::to_string(stats.setup.cores) +
           " cores, and more of them would not: let it compute less, beforehand or on the device";
  return text + ": the " + what_limits(stats) + " allow no more workers";
}

inline std::string say_data(const Verdict& verdict, const Stats& stats) {
  std::string text = "waiting for data: the source waits " +
                     in_percent(1 - computing(stats).value_or(0)) + " of its time, " +
                     in_milliseconds(verdict.source) + " a batch";
  if (stats.device)
    text += "; the rest of the pipeline takes " +
            in_milliseconds(std::max(verdict.copy + verdict.transform, verdict.consumer));
  if (stats.source.utilisation() < kAtItsLimit)
    text += std::string("; where they come in bursts from something that has them already, a ") +
            (writes_slots(stats) ? "higher device_depth" : "deeper ring") + " helps";
  return text;
}

inline std::string say_slots(const Verdict& verdict, const Stats& stats) {
  std::string why = "no stage is at its limit, yet ";
  if (writes_slots(stats))
    why = "the workers wait for free device slots, and ";
  else if (slots_are_taken(stats))
    why = "the consumer holds all device slots, so that no copy overlaps with its work, and ";
  std::string text = why + waits_of_consumer(verdict);
  if (verdict.enough_device_depth == 0) return text;
  text += ": device_depth " + std::to_string(verdict.enough_device_depth) + " in place of " +
          std::to_string(stats.device_depth);
  if (stats.tuning) text += " (Tune::device_slots)";
  if (verdict.enough_host_depth != 0)
    text += " and host_depth " + std::to_string(verdict.enough_host_depth) + " in place of " +
            std::to_string(stats.host_depth);
  text += more_memory(verdict);
  if (writes_slots(stats))
    text += "; if that does not help, the source's work on the device is the limit";
  return text;
}

inline std::string say_depth(const Verdict& verdict, const Stats& stats) {
  std::string text = "no stage is at its limit, yet " + waits_of_consumer(verdict);
  if (longest_wait(stats).count() > 0)
    text += ", at most " + in_milliseconds(longest_wait(stats)) + " at a time";
  if (verdict.enough_host_depth == 0)
    return text + ": there is no room for a deeper ring (max_host_bytes)";
  return text + ": deeper ring, host_depth " + std::to_string(verdict.enough_host_depth) +
         " in place of " + std::to_string(stats.host_depth) +
         (stats.tuning ? " (Tune::host_bytes)" : "") + more_memory(verdict);
}

/// Which narrower type makes a batch of these fields noticeably smaller; empty: none.
inline std::string say_narrower(const PipelineSetup& setup) {
  constexpr double kNoticeable = 1.2;
  const auto factor = [&](std::size_t bytes) {
    return bytes == 0 ? 1 : static_cast<double>(setup.batch_bytes) / static_cast<double>(bytes);
  };
  if (const double times = factor(setup.as_uint8_bytes); times >= kNoticeable)
    return std::string("uint8 in place of ") + (setup.doubles ? "double" : "float") +
           ", where 8 bits are enough, makes it " + with_one_decimal(times) + " times smaller";
  if (const double times = factor(setup.as_half_integers_bytes); times >= kNoticeable)
    return "integers of half the width, where the values fit, make it " + with_one_decimal(times) +
           " times smaller";
  return {};
}

inline std::string say_smaller_batches(const PipelineSetup& setup) {
  if (const std::string narrower = say_narrower(setup); !narrower.empty()) return narrower;
  return setup.transforms
             ? "smaller or compressed samples"
             : "smaller samples, or compressed ones that a DeviceTransform expands on the device";
}

/// How a batch is copied in less time.
inline std::string say_faster_copy(const Verdict& verdict, const Stats& stats) {
  const std::string factor =
      verdict.times_smaller > 0
          ? "a batch has to be " + with_one_decimal(verdict.times_smaller) + " times smaller"
          : "copy fewer bytes";
  std::string text = factor + ": " + say_smaller_batches(stats.setup);
  if (!stats.device) text += " (device_times tells how small a batch has to be)";
  return text;
}

inline std::string say_copy(const Verdict& verdict, const Stats& stats) {
  std::ostringstream text;
  text << "the copy cannot keep up";
  if (verdict.copy.count() > 0 && stats.copy.batches > 0) {
    const std::uint64_t bytes = stats.copy.bytes / stats.copy.batches;
    const double rate =
        static_cast<double>(bytes) * 1e9 / static_cast<double>(verdict.copy.count());
    text << ", " << in_milliseconds(verdict.copy) << " a batch of " << in_bytes(bytes) << " ("
         << in_bytes(static_cast<std::uint64_t>(rate)) << "/s)";
  }
  if (verdict.transform.count() > 0)
    text << ", beside " << in_milliseconds(verdict.transform) << " for the DeviceTransform";
  if (verdict.kind == VerdictKind::bus_bound) text << ": bus-bound";
  text << "; " << say_faster_copy(verdict, stats);
  return text.str();
}

inline std::string say_transform(const Verdict& verdict) {
  return "the DeviceTransform cannot keep up, " + in_milliseconds(verdict.transform) +
         " a batch, beside " + in_milliseconds(verdict.copy) +
         " for the copy: make the transform faster, or move part of its work to the source or to "
         "the "
         "consumer's own kernels";
}

inline std::string say_compute(const Verdict& verdict, const Stats& stats) {
  if (starves(verdict))
    return "compute-bound: the copies wait for the consumer's other streams (also_used_on), which "
           "read the slots, while its first one waits " +
           in_percent(verdict.starved) + " of its time";
  if (verdict.consumer.count() == 0)
    return writes_slots(stats)
               ? "the consumer's thread has a batch whenever it asks (device_times tells whether "
                 "its stream waits for the source's work on the device)"
               : "compute-bound: the consumer's stream has input whenever it needs it";
  const auto others = std::max(verdict.source, verdict.copy + verdict.transform);
  return "compute-bound: the consumer takes " + in_milliseconds(verdict.consumer) +
         " a batch, the pipeline " + in_milliseconds(others);
}

/// How a source reads more bytes by one call.
inline const char* larger_reads(const PipelineSetup& setup) {
  if (setup.unbounded) return "read more by one call";
  return setup.per_sample
             ? "map the file (MappedRecords), or let a source of whole batches read many rows by "
               "one call (RecordFile::read_many)"
             : "read many rows by one call (RecordFile::read_many), or map the file "
               "(MappedRecords)";
}

/// Of a source that reads a few bytes at a time; empty: it does not.
inline std::string say_small_reads(const Stats& stats) {
  const auto reads = small_reads(stats);
  if (!reads) return {};
  const double between =
      static_cast<double>(each(stats.worker_cpu, reads->calls).count()) / 1000;  // us
  std::ostringstream text;
  text << "; the source spends its time in reads of " << reads->bytes / reads->calls << " bytes, "
       << reads->calls / std::max<std::uint64_t>(1, stats.source.batches) << " a batch, one in "
       << with_one_decimal(between) << " us of its computing: " << larger_reads(stats.setup);
  return text.str();
}

inline std::string say_kind(const Verdict& verdict, const Stats& stats) {
  switch (verdict.kind) {
    case VerdictKind::too_early:
      return "too early to tell: fewer than " + std::to_string(kFewestBatches) + " batches";
    case VerdictKind::more_workers:
      return say_workers(verdict, stats);
    case VerdictKind::cheaper_source:
      return say_cheaper_source(verdict, stats);
    case VerdictKind::waiting_for_data:
      return say_data(verdict, stats);
    case VerdictKind::deeper_ring:
      return say_depth(verdict, stats);
    case VerdictKind::more_slots:
      return say_slots(verdict, stats);
    case VerdictKind::smaller_bytes:
    case VerdictKind::bus_bound:
      return say_copy(verdict, stats);
    case VerdictKind::faster_transform:
      return say_transform(verdict);
    case VerdictKind::compute_bound:
      return say_compute(verdict, stats);
    case VerdictKind::one_late_batch:
      return "one batch came " + in_milliseconds(longest_wait(stats)) +
             (starves(verdict) ? " late, longer than all other waits of the consumer together"
                               : " late; but for that the consumer has input whenever it needs it");
    case VerdictKind::varies:
      return "no stage is at its limit all the time, yet " + waits_of_consumer(verdict) +
             ", and not by turns: the slowest stage changes in the course of the run, so that "
             "longer queues do not help; stats().since(earlier) tells its parts apart";
    case VerdictKind::balanced:
      return "balanced: the consumer hardly waits, and no other stage has time to spare";
  }
  return {};
}

inline std::string say(const Verdict& verdict, const Stats& stats) {
  const std::string text = say_kind(verdict, stats);
  const bool is_of_source = verdict.stage == Bottleneck::source &&
                            verdict.kind != VerdictKind::too_early &&
                            verdict.kind != VerdictKind::one_late_batch;
  return is_of_source ? text + say_small_reads(stats) : text;
}

}  // namespace penstock::detail
