// SPDX-License-Identifier: Apache-2.0
#pragma once

// What Stats tell of each stage: its time for one batch, and its load, the fraction of its time
// that it works.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <penstock/stats.hpp>

namespace penstock::detail {

using Nanoseconds = std::chrono::nanoseconds;

/// Waits of the consumer above this fraction of its time are worth a change.
inline constexpr double kWorthwhile = 0.15;

inline double ratio(Nanoseconds part, Nanoseconds whole) {
  return whole.count() <= 0
             ? 0.0
             : static_cast<double>(part.count()) / static_cast<double>(whole.count());
}
inline Nanoseconds times(double factor, Nanoseconds time) {
  return Nanoseconds(static_cast<std::int64_t>(factor * static_cast<double>(time.count())));
}
inline Nanoseconds each(Nanoseconds all, std::uint64_t count) {
  return count == 0 ? Nanoseconds(0) : all / static_cast<std::int64_t>(count);
}

/// The source is an on_device one: it writes the slots, and nothing is copied.
inline bool writes_slots(const Stats& stats) {
  return stats.host_depth == 0;
}
/// Batches that the times of a stage are of.
inline std::uint64_t timed_batches(const StageStats& stage) {
  return stage.timed > 0 ? stage.timed : stage.batches;
}
/// Of the consumer's stream.
inline Nanoseconds waiting_time(const DeviceTimes& device) {
  return device.awaiting_batch + device.awaiting_copy;
}
/// All time of the copy stream from its first batch to its last.
inline Nanoseconds stream_time(const Stats& stats) {
  return stats.copy.busy + stats.transform.busy + stats.copy.waiting_for_input +
         stats.copy.waiting_for_room;
}

/// From one batch to the next: where the device was watched, there, since the host may be many
/// batches ahead of it.
inline Nanoseconds period_of(const Stats& stats) {
  if (stats.device && stats.device->batches > 0)
    return each(waiting_time(*stats.device) + stats.device->consuming, stats.device->batches);
  if (writes_slots(stats) && stats.device_source.batches > 0)
    return each(stats.device_source.span, stats.device_source.batches);
  if (stats.copy.timed > 1)
    return each(stats.copy.busy + stats.transform.busy, stats.copy.timed) +
           each(stats.copy.waiting_for_input + stats.copy.waiting_for_room, stats.copy.timed - 1);
  const auto wall = stats.consumer.busy + stats.consumer.waiting_for_input;
  // Between n batches there are n - 1 periods.
  return each(wall, stats.consumer.batches > 1 ? stats.consumer.batches - 1 : 0);
}

/// The fraction of its time that the consumer's stream had no work, as the device tells; nullopt:
/// unknown.
inline std::optional<double> measured_starvation(const Stats& stats) {
  if (stats.device) {
    const auto waiting = waiting_time(*stats.device);
    return ratio(waiting, waiting + stats.device->consuming);
  }
  if (stats.waits.batches == 0) return std::nullopt;
  return std::min(1.0, ratio(each(stats.waits.waiting, stats.waits.batches), period_of(stats)));
}

/// The time that one worker takes for a batch. Of an on_device source it includes its work on the
/// device. While that waits for a slot's readers, the host may be at work on the batch, or wait for
/// these too: only if the consumer starves, the host's time counts.
inline Nanoseconds worker_time(const Stats& stats) {
  const auto on_host = each(stats.source.busy, stats.source.batches);
  if (!writes_slots(stats) || stats.device_source.timed == 0) return on_host;
  const auto on_device = each(stats.device_source.busy, stats.device_source.timed);
  const bool starves = measured_starvation(stats).value_or(0) > kWorthwhile;
  return starves ? std::max(on_host, on_device) : on_device;
}

/// An on_device source that only queues its work: the worker needs less than half of the time that
/// the device takes for it.
inline bool queues_work(const Stats& stats) {
  return writes_slots(stats) && stats.device_source.timed > 0 &&
         2 * each(stats.source.busy, stats.source.batches) < worker_time(stats);
}

/// Of a single batch; 0: unknown. `source`: of all workers together.
struct StageTimes {
  Nanoseconds period{0}, source{0}, copy{0}, transform{0}, consumer{0};
};

inline StageTimes stage_times(const Stats& stats) {
  StageTimes times;
  times.period = period_of(stats);
  times.source = worker_time(stats) / std::max(1, stats.workers);
  times.copy = each(stats.copy.busy, timed_batches(stats.copy));
  times.transform = each(stats.transform.busy, timed_batches(stats.transform));
  if (stats.device) times.consumer = each(stats.device->consuming, stats.device->batches);
  return times;
}

/// Fractions of their time that the stages work, 0 ... 1.
struct Loads {
  double source = 0, copy = 0, transform = 0, consumer = 0;
  double held = 0;     ///< fraction of its time that the copy stream waits for a slot
  double idle = 0;     ///< the same, for a batch
  double starved = 0;  ///< the consumer waits for input: 1 - consumer
  double stream() const { return copy + transform; }  ///< of the copy stream, which has both
};

/// The smaller of two measures: the part of their time in which the workers do not wait, and their
/// time for a batch over the time between two batches. In a short run all batches have room, so the
/// workers never wait, and only the second one tells.
inline double source_load(const Stats& stats, const StageTimes& times) {
  const double by_rate = ratio(times.source, times.period), by_waits = stats.source.utilisation();
  if (stats.tuning) return by_waits;  // The number of workers was not the same all the time.
  if (writes_slots(stats) && stats.device_source.timed > 0) return std::min(1.0, by_rate);
  const double load = by_rate > 0 ? std::min(by_rate, by_waits) : by_waits;
  if (!writes_slots(stats) || !stats.device) return load;
  // The source may only queue its work. Then the consumer's stream waits for it.
  return std::max(load, ratio(stats.device->awaiting_copy,
                              waiting_time(*stats.device) + stats.device->consuming));
}

/// In most of its steps the consumer held leases of all slots at a time, so that nothing could be
/// copied meanwhile.
inline bool slots_are_taken(const Stats& stats) {
  return !writes_slots(stats) && stats.device_depth > 0 &&
         std::max(1.0, stats.leased) + 0.5 > static_cast<double>(stats.device_depth);
}

/// The host's waits. A loop that only queues work also waits in next() while the device is busy, so
/// they count at most for the time in which the copy stream has nothing to copy.
inline double starvation_on_host(const Stats& stats, const Loads& loads) {
  const auto wall = stats.consumer.busy + stats.consumer.waiting_for_input;
  const double waits = ratio(stats.consumer.waiting_for_input, wall);
  constexpr double kBusy = 0.9;
  const bool is_behind = std::max(loads.source, loads.stream()) > kBusy;
  return writes_slots(stats) || is_behind ? waits : std::min(waits, loads.idle);
}

inline Loads loads_of(const Stats& stats) {
  Loads loads;
  loads.source = source_load(stats, stage_times(stats));
  const auto all = stream_time(stats);
  loads.copy = ratio(stats.copy.busy, all);
  loads.transform = ratio(stats.transform.busy, all);
  loads.held = ratio(stats.copy.waiting_for_room, all);
  loads.idle = ratio(stats.copy.waiting_for_input, all);
  const auto measured = measured_starvation(stats);
  loads.starved = measured ? *measured : starvation_on_host(stats, loads);
  loads.consumer = 1 - loads.starved;
  return loads;
}

}  // namespace penstock::detail
