// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rules of Stats::verdict(). The load of a stage is the fraction of its time that it works; the
// stage with the highest load is the bottleneck. If that load is at its limit, the stage has to
// become faster; otherwise the stages wait for each other in turn, and longer queues between them
// help. docs/stats.md has the rules as a table.

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <penstock/detail/measure/units.hpp>
#include <penstock/stats.hpp>
#include <sstream>
#include <string>

namespace penstock::detail {

inline constexpr double kAtItsLimit = 0.9;      // a load above this
inline constexpr double kLetsOthersWait = 0.5;  // a stage with a load below this is no bottleneck
inline constexpr double kNoise = 0.05;          // shorter waits, as a fraction of time, are ignored
inline constexpr double kNoiseOfSamples = 0.1;  // the same for sampled times
inline constexpr double kUint8Saves = 4;        // against float
inline constexpr std::uint64_t kFewestBatches = 8;

inline double ratio(std::chrono::nanoseconds part, std::chrono::nanoseconds whole) {
  return whole.count() <= 0
             ? 0.0
             : static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

/// The source is an on_device one: it writes the slots, and nothing is copied.
inline bool writes_slots(const Stats& stats) {
  return stats.host_depth == 0;
}

/// Fractions of their time that the stages work, 0 ... 1.
struct Loads {
  double source = 0, copy = 0, consumer = 0;
  double starved = 0;  ///< the consumer waits for input: 1 - consumer
  double noise = kNoise;
};

inline Loads loads(const Stats& stats) {
  const auto wall = stats.consumer.busy + stats.consumer.waiting_for_input;
  Loads loads;
  loads.source = stats.source.utilisation();
  loads.copy = stats.copy.utilisation();
  if (stats.device) {
    const auto waiting = stats.device->awaiting_batch + stats.device->awaiting_copy;
    const auto all = waiting + stats.device->consuming;
    loads.starved = ratio(waiting, all);
    // An on_device source may only queue its work. The consumer's stream then waits for that work.
    if (writes_slots(stats))
      loads.source = std::max(loads.source, ratio(stats.device->awaiting_copy, all));
  } else {
    // The host may wait in next() while the device still has work. It has none if the source never
    // waits, or nothing is being copied.
    const auto copying = stats.copy.busy + stats.copy.waiting_for_room;
    const double nothing_copied = 1 - ratio(copying, copying + stats.copy.waiting_for_input);
    loads.starved = ratio(stats.consumer.waiting_for_input, wall);
    if (loads.source <= kAtItsLimit) loads.starved = std::min(loads.starved, nothing_copied);
    loads.noise = kNoiseOfSamples;
  }
  loads.consumer = 1 - loads.starved;
  return loads;
}

inline Bottleneck most_loaded(const Loads& loads) {
  const double most = std::max({loads.source, loads.copy, loads.consumer});
  if (most < kLetsOthersWait) return Bottleneck::balanced;
  if (loads.source == most) return Bottleneck::source;
  return loads.copy == most ? Bottleneck::copy : Bottleneck::consumer;
}

/// A sampled copy is found running nearly always, or hardly ever. That shows which stage waits for
/// another, but not its load.
inline Bottleneck stage_by_samples(const Loads& loads) {
  if (loads.source > kAtItsLimit)
    return loads.starved > kNoise ? Bottleneck::source : Bottleneck::balanced;
  if (loads.copy > kLetsOthersWait) return Bottleneck::copy;
  return most_loaded({.source = loads.source, .consumer = loads.consumer});
}

inline Bottleneck stage_of(const Stats& stats, const Loads& loads) {
  if ((stats.consumer.busy + stats.consumer.waiting_for_input).count() == 0)
    return Bottleneck::balanced;
  // An on_device source that blocks waits for the readers of its slot too: that it is busy says
  // nothing, unless the consumer starves.
  if (writes_slots(stats) && loads.starved <= kNoise) return Bottleneck::consumer;
  if (!stats.device) return stage_by_samples(loads);
  if (loads.starved > kNoise) return most_loaded(loads);
  return std::max(loads.source, loads.copy) > kAtItsLimit ? Bottleneck::balanced
                                                          : Bottleneck::consumer;
}

inline VerdictKind kind_of_copy(const Stats& stats, const Loads& loads, double times_smaller) {
  if (stats.device && loads.copy <= kAtItsLimit) return VerdictKind::deeper_ring;
  return times_smaller > kUint8Saves ? VerdictKind::bus_bound : VerdictKind::smaller_bytes;
}

inline VerdictKind kind_of(const Stats& stats, const Loads& loads, const Verdict& verdict) {
  const bool starving = loads.starved > loads.noise;
  if (stats.consumer.batches < kFewestBatches) return VerdictKind::too_early;
  const VerdictKind more_room =
      writes_slots(stats) ? VerdictKind::more_slots : VerdictKind::deeper_ring;
  switch (verdict.stage) {
    case Bottleneck::source:
      return stats.source.utilisation() > kAtItsLimit ? VerdictKind::more_workers : more_room;
    case Bottleneck::copy:
      return kind_of_copy(stats, loads, verdict.times_smaller);
    case Bottleneck::consumer:
      return starving ? more_room : VerdictKind::compute_bound;
    case Bottleneck::balanced:
      return starving ? more_room : VerdictKind::balanced;
  }
  return VerdictKind::balanced;
}

/// The times of each stage for one batch.
inline void set_times(Verdict& verdict, const Stats& stats) {
  const auto each = [](std::chrono::nanoseconds all, std::uint64_t count) {
    return count == 0 ? all * 0 : all / static_cast<std::int64_t>(count);
  };
  const auto wall = stats.consumer.busy + stats.consumer.waiting_for_input;
  // Between n batches there are n - 1 periods.
  verdict.period = each(wall, stats.consumer.batches > 1 ? stats.consumer.batches - 1 : 0);
  verdict.source = each(stats.source.busy, stats.source.batches) / std::max(1, stats.workers);
  if (stats.device) {
    verdict.copy = each(stats.copy.busy, stats.device->copies);
    verdict.consumer = each(stats.device->consuming, stats.device->batches);
  }
}

/// all / one, rounded up.
inline double times(std::chrono::nanoseconds all, std::chrono::nanoseconds one) {
  return std::ceil(ratio(all, one));
}

/// The smallest sufficient `device_depth`; 0: the present one suffices. Each worker writes a slot,
/// one slot is leased, and one is ready.
inline std::size_t enough_slots(const Stats& stats, int workers) {
  const std::size_t slots = static_cast<std::size_t>(workers) + 2;
  return slots > stats.device_depth ? slots : 0;
}

inline void set_enough_workers(Verdict& verdict, const Stats& stats) {
  // Workers at 0.9 of their limit do not limit the rate.
  const auto needed = std::chrono::nanoseconds(static_cast<std::int64_t>(
      kAtItsLimit * static_cast<double>(std::max(verdict.copy, verdict.consumer).count())));
  if (!stats.device || needed.count() <= 0) return;
  const auto one_worker = verdict.source * stats.workers;
  verdict.enough_workers = std::max(stats.workers + 1, static_cast<int>(times(one_worker, needed)));
  if (writes_slots(stats))
    verdict.enough_device_depth = enough_slots(stats, verdict.enough_workers);
}

inline std::chrono::nanoseconds longest_wait(const Stats& stats) {
  return stats.device ? stats.device->longest_wait : stats.longest_wait;
}

/// The number of batches that the longest wait cost, at least 1.
inline std::size_t missing_batches(const Verdict& verdict, const Stats& stats) {
  const auto pace = std::max({verdict.consumer, verdict.source, verdict.copy});
  return std::max<std::size_t>(1, static_cast<std::size_t>(times(longest_wait(stats), pace)));
}

inline void set_enough_depth(Verdict& verdict, const Stats& stats) {
  if (stats.device_depth < 2) {
    verdict.enough_device_depth = 2;  // One is written while the other is read.
    return;
  }
  verdict.enough_host_depth = std::max(static_cast<std::size_t>(stats.workers) + stats.device_depth,
                                       stats.host_depth + missing_batches(verdict, stats));
}

inline void set_enough_slots(Verdict& verdict, const Stats& stats) {
  verdict.enough_device_depth = std::max(enough_slots(stats, stats.workers),
                                         stats.device_depth + missing_batches(verdict, stats));
}

// ---- The sentence -------------------------------------------------------------------------------

inline std::string in_percent(double part) {
  return std::to_string(std::lround(100 * part)) + " %";
}

inline std::string say_workers(const Verdict& verdict, const Stats& stats) {
  std::ostringstream text;
  text << "the workers (" << stats.workers << ") cannot keep up, "
       << in_milliseconds(verdict.source) << " a batch, and the consumer waits "
       << in_percent(verdict.starved) << " of its time: ";
  if (verdict.enough_workers == 0)
    return text.str() + (writes_slots(stats)
                             ? "more workers, if its stream waits too (device_times tells, and how "
                               "many)"
                             : "more workers (device_times tells how many)");
  text << verdict.enough_workers << " workers ";
  if (verdict.enough_device_depth > 0)
    text << "with device_depth " << verdict.enough_device_depth << ' ';
  text << "would be enough for its " << in_milliseconds(verdict.consumer);
  if (writes_slots(stats)) text << ", if the device can do their work at the same time";
  return text.str();
}

inline std::string say_slots(const Verdict& verdict, const Stats& stats) {
  return "the workers wait for free device slots, and the consumer waits " +
         in_percent(verdict.starved) + " of its time: device_depth " +
         std::to_string(verdict.enough_device_depth) + " in place of " +
         std::to_string(stats.device_depth) +
         "; if that does not help, the source's work on the device is the limit";
}

inline std::string say_depth(const Verdict& verdict, const Stats& stats) {
  const std::string why = "no stage is at its limit, yet the consumer waits " +
                          in_percent(verdict.starved) + " of its time: deeper ring, ";
  if (verdict.enough_device_depth > 0)
    return why + "device_depth " + std::to_string(verdict.enough_device_depth) +
           ", so that copies overlap";
  return why + "host_depth " + std::to_string(verdict.enough_host_depth) + " in place of " +
         std::to_string(stats.host_depth) +
         " (its longest wait: " + in_milliseconds(longest_wait(stats)) + ')';
}

inline std::string say_copy(const Verdict& verdict, const Stats& stats) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << "the copy cannot keep up";
  if (verdict.copy.count() > 0 && stats.copy.batches > 0) {
    const std::uint64_t bytes = stats.copy.bytes / stats.copy.batches;
    const double rate =
        static_cast<double>(bytes) * 1e9 / static_cast<double>(verdict.copy.count());
    text << ", " << in_milliseconds(verdict.copy) << " a batch of " << in_bytes(bytes) << " ("
         << in_bytes(static_cast<std::uint64_t>(rate)) << "/s)";
  }
  text << (verdict.kind == VerdictKind::bus_bound ? ": bus-bound, " : ": smaller bytes, ");
  if (verdict.times_smaller > 0)
    text << "a batch has to be " << verdict.times_smaller << " times smaller; ";
  text << "uint8 in place of float is 4 times";
  if (verdict.times_smaller == 0) text << " (device_times tells how small it has to be)";
  return text.str();
}

inline std::string say_compute(const Verdict& verdict, const Stats& stats) {
  if (verdict.consumer.count() == 0)
    return writes_slots(stats)
               ? "the consumer's thread has a batch whenever it asks (device_times tells whether "
                 "its stream waits for the source's work on the device)"
               : "compute-bound: the consumer has input whenever it asks";
  const auto others = std::max(verdict.source, verdict.copy);
  return "compute-bound: the consumer takes " + in_milliseconds(verdict.consumer) +
         " a batch, the pipeline " + in_milliseconds(others);
}

inline std::string say(const Verdict& verdict, const Stats& stats) {
  switch (verdict.kind) {
    case VerdictKind::too_early:
      return "too early to tell: fewer than " + std::to_string(kFewestBatches) + " batches";
    case VerdictKind::more_workers:
      return say_workers(verdict, stats);
    case VerdictKind::deeper_ring:
      return say_depth(verdict, stats);
    case VerdictKind::more_slots:
      return say_slots(verdict, stats);
    case VerdictKind::smaller_bytes:
    case VerdictKind::bus_bound:
      return say_copy(verdict, stats);
    case VerdictKind::compute_bound:
      return say_compute(verdict, stats);
    case VerdictKind::balanced:
      return "balanced: the consumer hardly waits, and no other stage has time to spare";
  }
  return {};
}

}  // namespace penstock::detail

namespace penstock {

PENSTOCK_INLINE Bottleneck Stats::bottleneck() const {
  return detail::stage_of(*this, detail::loads(*this));
}

PENSTOCK_INLINE Verdict Stats::verdict() const {
  const detail::Loads loads = detail::loads(*this);
  Verdict verdict;
  verdict.stage = detail::stage_of(*this, loads);
  verdict.starved = loads.starved;
  detail::set_times(verdict, *this);
  const auto others = std::max(verdict.source, verdict.consumer);
  if (verdict.stage == Bottleneck::copy && device && others.count() > 0)
    verdict.times_smaller = detail::ratio(verdict.copy, others);
  verdict.kind = detail::kind_of(*this, loads, verdict);
  if (verdict.kind == VerdictKind::more_workers) detail::set_enough_workers(verdict, *this);
  if (verdict.kind == VerdictKind::deeper_ring) detail::set_enough_depth(verdict, *this);
  if (verdict.kind == VerdictKind::more_slots) detail::set_enough_slots(verdict, *this);
  verdict.sentence = detail::say(verdict, *this);
  return verdict;
}

}  // namespace penstock
