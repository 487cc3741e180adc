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

/// Fractions of their time that the stages work, 0 ... 1.
struct Loads {
  double source = 0, copy = 0, consumer = 0;
  double starved = 0;  ///< the consumer waits for input: 1 - consumer
  double noise = kNoise;
};

inline Loads loads(const Stats& stats) {
  const auto wall = stats.consumer.busy + stats.consumer.waiting_for_input;
  Loads loads;
  // Without workers the source runs on the consumer's thread.
  loads.source = stats.workers == 0 ? std::min(1.0, ratio(stats.source.busy, wall))
                                    : stats.source.utilisation();
  loads.copy = stats.copy.utilisation();
  if (stats.device) {
    const auto waiting = stats.device->awaiting_batch + stats.device->awaiting_copy;
    loads.starved = ratio(waiting, waiting + stats.device->consuming);
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
/// which, but not its load.
inline Bottleneck stage_by_samples(const Loads& loads) {
  if (loads.source > kAtItsLimit)
    return loads.starved > kNoise ? Bottleneck::source : Bottleneck::balanced;
  if (loads.copy > kLetsOthersWait) return Bottleneck::copy;
  return most_loaded({.source = loads.source, .consumer = loads.consumer});
}

inline Bottleneck stage_of(const Stats& stats, const Loads& loads) {
  if ((stats.consumer.busy + stats.consumer.waiting_for_input).count() == 0)
    return Bottleneck::balanced;
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
  if (stats.workers == 0 && starving) return VerdictKind::more_workers;
  switch (verdict.stage) {
    case Bottleneck::source:
      return loads.source > kAtItsLimit ? VerdictKind::more_workers : VerdictKind::deeper_ring;
    case Bottleneck::copy:
      return kind_of_copy(stats, loads, verdict.times_smaller);
    case Bottleneck::consumer:
      return starving ? VerdictKind::deeper_ring : VerdictKind::compute_bound;
    case Bottleneck::balanced:
      return starving ? VerdictKind::deeper_ring : VerdictKind::balanced;
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
  return one.count() <= 0 ? 0.0 : std::ceil(ratio(all, one));
}

inline void set_enough_workers(Verdict& verdict, const Stats& stats) {
  // So many that they work at 0.9 of their limit, where they do not limit the rate.
  const auto needed = std::chrono::nanoseconds(static_cast<std::int64_t>(
      kAtItsLimit * static_cast<double>(std::max(verdict.copy, verdict.consumer).count())));
  if (!stats.device || needed.count() <= 0) return;
  const auto one_worker = verdict.source * std::max(1, stats.workers);
  verdict.enough_workers = std::max(stats.workers + 1, static_cast<int>(times(one_worker, needed)));
}

/// The queue lacked as many batches as fit into the longest wait.
inline void set_enough_depth(Verdict& verdict, const Stats& stats) {
  if (stats.device_depth < 2) {
    verdict.enough_device_depth = 2;  // One is written while the other is read.
    return;
  }
  const auto longest = stats.device ? stats.device->longest_wait : stats.longest_wait;
  const auto pace = std::max({verdict.consumer, verdict.source, verdict.copy});
  const auto for_all_workers = static_cast<std::size_t>(stats.workers) + stats.device_depth;
  verdict.enough_host_depth = std::max(
      for_all_workers,
      stats.host_depth + std::max<std::size_t>(1, static_cast<std::size_t>(times(longest, pace))));
}

// ---- The sentence -------------------------------------------------------------------------------

inline std::string in_milliseconds(std::chrono::nanoseconds time) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2)
       << std::chrono::duration<double, std::milli>(time).count() << " ms";
  return text.str();
}

inline std::string in_percent(double part) {
  return std::to_string(std::lround(100 * part)) + " %";
}

inline std::string say_workers(const Verdict& verdict, const Stats& stats) {
  std::ostringstream text;
  if (stats.workers == 0)
    text << "next() itself runs the source, ";
  else
    text << "the workers (" << stats.workers << ") cannot keep up, ";
  text << in_milliseconds(verdict.source) << " a batch, and the consumer waits "
       << in_percent(verdict.starved) << " of its time: ";
  if (verdict.enough_workers > 0)
    text << verdict.enough_workers << " workers would be enough for its "
         << in_milliseconds(verdict.consumer);
  else
    text << "more workers (device_times tells how many)";
  return text.str();
}

inline std::string say_depth(const Verdict& verdict, const Stats& stats) {
  std::ostringstream text;
  text << "no stage is at its limit, yet the consumer waits " << in_percent(verdict.starved)
       << " of its time: deeper ring, ";
  if (verdict.enough_device_depth > 0)
    text << "device_depth " << verdict.enough_device_depth << ", so that copies overlap";
  else
    text << "host_depth " << verdict.enough_host_depth << " in place of " << stats.host_depth
         << " (its longest wait: "
         << in_milliseconds(stats.device ? stats.device->longest_wait : stats.longest_wait) << ')';
  return text.str();
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

inline std::string say_compute(const Verdict& verdict) {
  if (verdict.consumer.count() == 0)
    return "compute-bound: the consumer has input whenever it asks";
  const auto others = std::max(verdict.source, verdict.copy);
  std::ostringstream text;
  text << "compute-bound: the consumer takes " << in_milliseconds(verdict.consumer)
       << " a batch, the pipeline " << in_milliseconds(others);
  return text.str();
}

inline std::string say(const Verdict& verdict, const Stats& stats) {
  switch (verdict.kind) {
    case VerdictKind::too_early:
      return "too early to tell: fewer than " + std::to_string(kFewestBatches) + " batches";
    case VerdictKind::more_workers:
      return say_workers(verdict, stats);
    case VerdictKind::deeper_ring:
      return say_depth(verdict, stats);
    case VerdictKind::smaller_bytes:
    case VerdictKind::bus_bound:
      return say_copy(verdict, stats);
    case VerdictKind::compute_bound:
      return say_compute(verdict);
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
  verdict.sentence = detail::say(verdict, *this);
  return verdict;
}

}  // namespace penstock
