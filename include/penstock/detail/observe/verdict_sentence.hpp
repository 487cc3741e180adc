// SPDX-License-Identifier: Apache-2.0
#pragma once

// VerdictSentence: writes a verdict as text. It mentions only what the pipeline has (Stats::setup).

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <penstock/detail/observe/judge.hpp>
#include <penstock/detail/observe/units.hpp>
#include <penstock/stats.hpp>
#include <string>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

class VerdictSentence {
 public:
  explicit VerdictSentence(const Judge& judge)
      : judge_(judge), verdict_(judge.verdict()), stats_(judge.stats()) {}

  std::string text() const {
    if (!judge_.has_batches())
      return "too early to tell: fewer than " + std::to_string(BatchCosts::kMinBatches) +
             " batches, or none of which anything was recorded";
    if (!judge_.is_known()) return unknown();
    if (judge_.was_late())
      return "one batch came " + in_milliseconds(judge_.late()) +
             " late; but for that the consumer has input whenever it needs it";
    switch (verdict_.kind) {
      case VerdictKind::too_early:
      case VerdictKind::nothing:
        return nothing();
      case VerdictKind::more_workers:
        return (verdict_.stage == Bottleneck::source ? slow_source() : in_turns()) + ": " +
               settings() + in_turn(VerdictKind::more_depth, "deeper queues") + lock() +
               small_reads();
      case VerdictKind::more_depth:
        return in_turns() + ": " + settings() + in_turn(VerdictKind::more_workers, "more workers");
      case VerdictKind::faster_source:
        return slow_source() + ": " + why_no_workers() +
               "; a source twice as fast: " + prediction(verdict_.times_faster) + small_reads();
      case VerdictKind::faster_copy:
        return verdict_.stage == Bottleneck::transform ? slow_transform() : slow_copy();
    }
    return {};
  }

 private:
  static std::string in_percent(double part) {
    return std::to_string(std::lround(100 * part)) + " %";
  }
  std::string waits() const {
    return "the consumer waits " + in_percent(verdict_.starved) + " of its time";
  }
  /// Example: "2.4 times as fast (8.2 -> 3.4 ms a batch)"
  std::string prediction(double times_faster) const {
    const double now = std::chrono::duration<double, std::milli>(verdict_.period).count();
    const int decimals = now < 1 ? 3 : now < 10 ? 2 : 1;
    return with_unit(times_faster, 1, "times as fast (") + with_unit(now, decimals, "-> ") +
           with_unit(now / times_faster, decimals, "ms a batch)");
  }
  /// The gain of another kind of change. Example: "; deeper queues: nothing"
  std::string in_turn(VerdictKind kind, const std::string& what) const {
    if (kind == VerdictKind::more_workers && stats_.setup.unbounded) return {};
    const double gain = judge_.gain(kind).times_faster;
    return "; " + what + ": " +
           (gain < Judge::kWorthwhile ? "nothing" : with_unit(gain, 1, "times"));
  }

  std::string unknown() const {
    std::string text =
        judge_.costs().is_far_ahead()
            ? "too little to go by: the loop only queues work, and so the host is far ahead of the "
              "device, which has timed a part of the batches; let the loop wait for a step now and "
              "then"
            : "too little to go by: what was recorded of the last batches does not explain their "
              "rate";
    if (stats_.setup.second_stream)
      text +=
          ", maybe since leases were used on a second stream (also_used_on), whose work is not "
          "measured";
    if (verdict_.stage != Bottleneck::balanced)
      text += std::string("; most of it is the ") + to_string(verdict_.stage);
    return text + "; " + waits();
  }

  std::string nothing() const {
    if (judge_.waits_for_data())
      return "waiting for data: the source waits " +
             in_percent(1 - Judge::computing(stats_).value_or(0)) + " of its time, " +
             in_milliseconds(verdict_.source) + " a batch; the rest of the pipeline takes " +
             in_milliseconds(std::max(verdict_.copy + verdict_.transform, verdict_.consumer));
    if (verdict_.starved > Judge::kStarves) {
      const Gain& best = verdict_.gains[0];
      return waits() + ", and neither other settings nor a faster source or copy would gain " +
             in_percent(Judge::kWorthwhile - 1) +
             (best.times_faster > 1.01 ? " (at most " + in_percent(best.times_faster - 1) + ")"
                                       : "");
    }
    if (verdict_.stage == Bottleneck::balanced)
      return "balanced: the consumer hardly waits, and another stage has no time to spare";
    const auto others = std::max(verdict_.source, verdict_.copy + verdict_.transform);
    return "compute-bound: the consumer takes " +
           in_milliseconds(std::max(verdict_.consumer, std::chrono::nanoseconds(0))) +
           " a batch, the pipeline " + in_milliseconds(others);
  }
  std::string slow_source() const {
    return "the workers (" + std::to_string(stats_.workers) + ") cannot keep up, " +
           in_milliseconds(verdict_.source) + " a batch, and " + waits();
  }

  // ---- Settings

  /// Example: "5 workers with host_depth 9 and device_depth 3 (2.0 KiB more): 2.4 times as fast
  /// (...)"
  std::string settings() const {
    std::string text;
    const char* joint = "";
    const bool tunes = stats_.tuning != nullptr, adds_workers = verdict_.enough_workers > 0;
    if (adds_workers) {
      text =
          std::to_string(verdict_.enough_workers) + " workers" + (tunes ? " (Tune::workers)" : "");
      joint = " with ";
    }
    const auto add = [&](const char* name, std::size_t depth, std::size_t now, const char* limit) {
      if (depth == 0) return;
      text += std::exchange(joint, " and ") + (name + std::to_string(depth));
      if (!adds_workers) text += " in place of " + std::to_string(now);
      if (tunes) text += limit;
    };
    add("host_depth ", verdict_.enough_host_depth, stats_.host_depth, " (Tune::host_bytes)");
    add("device_depth ", verdict_.enough_device_depth, stats_.device_depth,
        " (Tune::device_slots)");
    if (verdict_.more_bytes > 0) text += " (" + in_bytes(verdict_.more_bytes) + " more)";
    return text + what_limits() + ": " + prediction(verdict_.times_faster);
  }
  /// What prevents more workers, if the source could use more.
  std::string what_limits() const {
    if (verdict_.enough_workers == 0 ||
        verdict_.enough_workers < static_cast<int>(judge_.shape().most_workers()))
      return {};
    const std::string limit = limit_of_workers();
    return limit.empty() ? "" : ", all that the " + limit + " allow";
  }
  /// The resource that does not suffice for more workers; empty: none.
  std::string limit_of_workers() const {
    const PipelineShape& shape = judge_.shape();
    const std::size_t most = std::min({shape.by_cores(), shape.by_run(), shape.by_memory()});
    if (most > static_cast<std::size_t>(std::max(stats_.workers, verdict_.enough_workers)))
      return {};
    if (most == shape.by_cores()) return "cores";
    if (most == shape.by_run()) return "batches of the run";
    return stats_.host_depth == 0 ? "bytes of the device's memory" : "bytes of max_host_bytes";
  }
  std::string in_turns() const {
    const bool holds_all = judge_.costs().loop().later_calls + 1 >= stats_.device_depth;
    return (verdict_.stage != Bottleneck::waiting_for_slot
                ? "no stage is at its limit all the time, they wait for each other in turn, and "
            : holds_all ? "the consumer holds all device slots, so that no copy overlaps with its "
                          "work, and "
                        : "copies wait for device slots that the consumer holds, and ") +
           waits();
  }
  std::string why_no_workers() const {
    if (judge_.shape().on_device && judge_.costs().source_queues())
      return "let it do less on the device";
    if (stats_.setup.unbounded)
      return "it is a stream, which one worker reads, so give that worker less to do";
    const std::string limit = limit_of_workers();
    if (limit.empty()) return "more workers would not help";
    if (limit == "cores")
      return "its workers compute on " + std::to_string(stats_.setup.cores) +
             " cores, and more of them would not: let it compute less, beforehand or on the device";
    return "the " + limit + " allow no more workers";
  }
  /// If all workers wait for the same resource, more workers do not help.
  std::string lock() const {
    const double waiting = 1 - Judge::computing(stats_).value_or(1);
    if (waiting < kWaits || stats_.host_depth == 0 || verdict_.stage != Bottleneck::source)
      return {};
    return "; the source waits " + in_percent(waiting) +
           " of its time: if all workers wait for the same lock or connection, more do not help";
  }

  // ---- The source's reads

  std::string small_reads() const {
    constexpr std::uint64_t kSmall = 512;  // bytes; below this size a call costs more than the copy
    constexpr double kBetween = 3e3;       // ns of computing; more frequent calls take a noticeable
                                           // part of the time
    const auto& reads = stats_.source_reads;
    const auto cpu = static_cast<double>(stats_.worker_cpu.count());
    if (verdict_.stage != Bottleneck::source || !reads || reads->calls == 0 || cpu == 0) return {};
    if (1 - Judge::computing(stats_).value_or(1) > kWaits) return {};
    const std::uint64_t bytes = reads->bytes / reads->calls;
    const double between = cpu / static_cast<double>(reads->calls);
    if (bytes > kSmall || between > kBetween) return {};
    return "; the source spends its time in reads of " + std::to_string(bytes) + " bytes, " +
           std::to_string(reads->calls / std::max<std::uint64_t>(1, stats_.source.batches)) +
           " a batch, one in " + with_unit(between / 1e3, 1, "us of its computing: ") +
           larger_reads();
  }
  const char* larger_reads() const {
    if (stats_.setup.unbounded) return "read more by one call";
    return stats_.setup.per_sample
               ? "map the file (MappedRecords), or let a source of whole batches read many rows by "
                 "one call (RecordFile::read_many)"
               : "read many rows by one call (RecordFile::read_many), or map the file "
                 "(MappedRecords)";
  }

  // ---- The copy

  std::string slow_copy() const {
    std::string text = "the copy cannot keep up";
    if (verdict_.copy.count() > 0 && stats_.copy.batches > 0) {
      const std::uint64_t bytes = stats_.copy.bytes / stats_.copy.batches;
      const double seconds = std::chrono::duration<double>(verdict_.copy).count();
      const auto rate = static_cast<std::uint64_t>(static_cast<double>(bytes) / seconds);
      text += ", " + in_milliseconds(verdict_.copy) + " a batch of " + in_bytes(bytes) + " (" +
              in_bytes(rate) + "/s)";
    }
    if (verdict_.transform.count() > 0)
      text += ", beside " + in_milliseconds(verdict_.transform) + " for the DeviceTransform";
    return text + ", and " + waits() + "; " +
           (verdict_.times_smaller > 0
                ? "a batch has to be " + with_unit(verdict_.times_smaller, 1, "times smaller")
                : "copy fewer bytes") +
           ": " + smaller_batches() + "; half of the bytes: " + prediction(verdict_.times_faster);
  }
  std::string smaller_batches() const {
    const std::string narrower = narrower_type();
    if (!narrower.empty()) return narrower;
    return stats_.setup.transforms
               ? "smaller or compressed samples"
               : "smaller samples, or compressed ones that a DeviceTransform expands on the device";
  }
  /// The narrower type that makes a batch of these fields noticeably smaller; empty: none.
  std::string narrower_type() const {
    constexpr double kNoticeable = 1.2;
    const PipelineSetup& setup = stats_.setup;
    const auto factor = [&](std::size_t bytes) {
      return bytes == 0 ? 1 : static_cast<double>(setup.batch_bytes) / static_cast<double>(bytes);
    };
    if (const double times = factor(setup.as_uint8_bytes); times >= kNoticeable)
      return std::string("uint8 in place of ") + (setup.doubles ? "double" : "float") +
             ", where 8 bits are enough, makes it " + with_unit(times, 1, "times smaller");
    if (const double times = factor(setup.as_half_integers_bytes); times >= kNoticeable)
      return "integers of half the width, where the values fit, make it " +
             with_unit(times, 1, "times smaller");
    return {};
  }
  std::string slow_transform() const {
    return "the DeviceTransform cannot keep up, " + in_milliseconds(verdict_.transform) +
           " a batch, beside " + in_milliseconds(verdict_.copy) + " for the copy, and " + waits() +
           ": make the transform faster, or move part of its work to the source or to the "
           "consumer's own kernels; one that is twice as fast: " +
           prediction(verdict_.times_faster);
  }

  static constexpr double kWaits = 0.7;  // fraction of its time in the source: a worker that waits
                                         // more mostly waits

  const Judge& judge_;
  const Verdict& verdict_;
  const Stats& stats_;
};

}  // namespace penstock::detail
