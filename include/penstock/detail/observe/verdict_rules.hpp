// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rules of Stats::verdict(). The load of a stage is the fraction of its time that it works; the
// stage with the highest load is the bottleneck. If it is at its limit, it has to become faster;
// otherwise the stages wait for each other in turn, and longer queues between them help.
// docs/stats.md has the rules as a table.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <penstock/detail/observe/stage_times.hpp>
#include <penstock/stats.hpp>
#include <penstock/tuning.hpp>
#include <utility>

namespace penstock::detail {

// Loads, as fractions of time.
inline constexpr double kAtItsLimit = 0.9;      // A stage above this has no time left,
inline constexpr double kNearItsLimit = 0.8;    // and one above this little.
inline constexpr double kLetsOthersWait = 0.5;  // A stage below this is not the bottleneck.
// Waits of the consumer, as fractions of its time.
inline constexpr double kNoise = 0.05;  // Shorter waits are ignored.
// Others.
inline constexpr double kUint8Saves = 4;    // float is this many times larger than uint8.
inline constexpr double kWaits = 0.3;       // A source that computes less of its time mostly waits;
inline constexpr double kAwaitsData = 0.5;  // that of a stream, for its data.
inline constexpr double kFarLonger = 4;     // A wait of more batch times than this is an outlier.
inline constexpr std::uint64_t kFewestBatches = 8;
inline constexpr std::uint64_t kSmallRead = 512;  // Bytes. The call costs more than to copy them.
// One small read in so much computing is a noticeable part of it: the call alone takes 0.2 to 1.
inline constexpr std::chrono::microseconds kBetweenReads{3};
inline constexpr std::uint64_t kBatchesInTurn = 32;  // Queues bridge what changes more often.

/// Of Loads or a Verdict.
template <class Measured>
bool starves(const Measured& measured) {
  return measured.starved > kWorthwhile;
}

/// Longer queues cannot help much: they let the most loaded stage, which has this load, work all of
/// its time, and at least half of the consumer's waits would remain.
inline bool is_at_limit(double load, const Loads& loads) {
  if (load > kAtItsLimit) return true;
  return load > kNearItsLimit && 1 - loads.consumer / load > loads.starved / 2;
}

/// The fraction of its time in the source that a worker computes; nullopt: unknown.
inline std::optional<double> computing(const Stats& stats) {
  if (stats.worker_cpu.count() == 0 || stats.source.busy.count() == 0) return std::nullopt;
  return std::min(1.0, ratio(stats.worker_cpu, stats.source.busy));
}
inline bool source_waits(const Stats& stats) {
  return computing(stats).value_or(1) < kWaits;
}
inline bool awaits_data(const Stats& stats) {
  return stats.setup.unbounded && computing(stats).value_or(1) < kAwaitsData;
}

/// A large part of what the source does is to enter the system for reads of a few bytes. nullopt:
/// not so, or unknown. Where it waits, that costs more than the calls.
inline std::optional<ReadCounts> small_reads(const Stats& stats) {
  const auto& reads = stats.source_reads;
  if (!reads || reads->calls == 0 || source_waits(stats)) return std::nullopt;
  const bool are_small = reads->bytes / reads->calls <= kSmallRead;
  const bool are_frequent =
      stats.worker_cpu.count() > 0 && each(stats.worker_cpu, reads->calls) <= kBetweenReads;
  return are_small && are_frequent ? reads : std::nullopt;
}

/// The copies wait for the readers of their slots, though the consumer holds few leases and its
/// stream waits too: so the readers are on other streams.
inline bool is_held_by_second_stream(const Stats& stats, const Loads& loads) {
  return stats.setup.second_stream && !slots_are_taken(stats) && starves(loads) &&
         loads.held > kLetsOthersWait;
}

// ---- The stage ----------------------------------------------------------------------------------

inline Bottleneck slower_of_stream(const Loads& loads) {
  return loads.transform > loads.copy ? Bottleneck::transform : Bottleneck::copy;
}

inline Bottleneck most_loaded(const Loads& loads) {
  const double most = std::max({loads.source, loads.stream(), loads.consumer});
  if (most < kLetsOthersWait) return Bottleneck::balanced;
  if (loads.source == most) return Bottleneck::source;
  return loads.stream() == most ? slower_of_stream(loads) : Bottleneck::consumer;
}

inline Bottleneck stage_of_copier(const Stats& stats, const Loads& loads) {
  const double others = std::max(loads.source, loads.stream());
  if (loads.starved <= kNoise)
    return others > kAtItsLimit ? Bottleneck::balanced : Bottleneck::consumer;
  if (is_held_by_second_stream(stats, loads)) return Bottleneck::consumer;
  const bool lacks_slots = slots_are_taken(stats) && loads.held >= loads.idle;
  if (starves(loads) && others <= kAtItsLimit && lacks_slots) return Bottleneck::waiting_for_slot;
  return most_loaded(loads);
}

/// An on_device source that blocks waits for the readers of its slot too: that it is busy says
/// nothing, unless the consumer starves.
inline Bottleneck stage_of_writer(const Loads& loads) {
  return loads.starved > kNoise ? most_loaded(loads) : Bottleneck::consumer;
}

inline Bottleneck stage_of(const Stats& stats, const Loads& loads) {
  if ((stats.consumer.busy + stats.consumer.waiting_for_input).count() == 0)
    return Bottleneck::balanced;
  const Bottleneck stage =
      writes_slots(stats) ? stage_of_writer(loads) : stage_of_copier(stats, loads);
  return stage == Bottleneck::source && awaits_data(stats) ? Bottleneck::waiting_for_data : stage;
}

/// The least `host_depth`: each worker fills a block, and each slot's copy reads one.
inline std::size_t least_host_depth(const Stats& stats, int workers, std::size_t slots) {
  return slots + (stats.setup.per_sample ? 2 : static_cast<std::size_t>(workers));
}
/// The workers and the copies wait for blocks of each other.
inline bool lacks_blocks(const Stats& stats) {
  return stats.host_depth < least_host_depth(stats, stats.workers, stats.device_depth);
}

// ---- What to change -----------------------------------------------------------------------------

inline VerdictKind kind_of_copy(const Verdict& verdict) {
  return verdict.times_smaller > kUint8Saves ? VerdictKind::bus_bound : VerdictKind::smaller_bytes;
}

/// The queues are full, and then empty, so seldom that the stages are not late by turns: which of
/// them is slower changes in the course of the run.
inline bool varies(const Stats& stats) {
  return stats.copy.batches > kBatchesInTurn * stats.underruns;
}

/// Which queue is too short, where no stage is at its limit. More slots do not help a source that
/// only queues its work: one worker may take them all.
inline VerdictKind kind_of_queue(const Stats& stats, const Loads& loads) {
  if (queues_work(stats)) return VerdictKind::cheaper_source;
  const bool takes_turns = stats.device_depth == 1 && slots_are_taken(stats) &&
                           loads.stream() + loads.consumer > kAtItsLimit;
  if (writes_slots(stats) || takes_turns) return VerdictKind::more_slots;
  if (lacks_blocks(stats)) return VerdictKind::deeper_ring;
  if (varies(stats)) return VerdictKind::varies;
  return loads.held > loads.idle ? VerdictKind::more_slots : VerdictKind::deeper_ring;
}

inline bool source_is_at_limit(const Stats& stats, const Loads& loads) {
  if (!writes_slots(stats)) return is_at_limit(loads.source, loads);
  // Without times of the device the load includes what the consumer's stream waits for: then only
  // the workers' own time tells whether more of them help.
  const bool only_host = stats.device_source.timed == 0;
  return (only_host ? stats.source.utilisation() : loads.source) > kAtItsLimit;
}

inline VerdictKind kind_of(const Stats& stats, const Loads& loads, const Verdict& verdict) {
  if (stats.consumer.batches < kFewestBatches) return VerdictKind::too_early;
  const VerdictKind queue = !starves(loads)      ? VerdictKind::balanced
                            : awaits_data(stats) ? VerdictKind::waiting_for_data
                                                 : kind_of_queue(stats, loads);
  const bool others_read = is_held_by_second_stream(stats, loads);
  switch (verdict.stage) {
    case Bottleneck::source:
      return source_is_at_limit(stats, loads) ? VerdictKind::more_workers : queue;
    case Bottleneck::copy:
      return is_at_limit(loads.stream(), loads) ? kind_of_copy(verdict) : queue;
    case Bottleneck::transform:
      return is_at_limit(loads.stream(), loads) ? VerdictKind::faster_transform : queue;
    case Bottleneck::consumer:
      return starves(loads) && !others_read ? queue : VerdictKind::compute_bound;
    case Bottleneck::waiting_for_slot:
      return VerdictKind::more_slots;
    case Bottleneck::waiting_for_data:
      return VerdictKind::waiting_for_data;
    case Bottleneck::balanced:
      return queue;
  }
  return VerdictKind::balanced;
}

/// The copy and the transform behind it share the copy stream, and have to be done in the time that
/// the slower of source and consumer takes.
inline double times_smaller(const Stats& stats, const StageTimes& times) {
  const auto others = std::max(times.source, times.consumer) - times.transform;
  return stats.device && others.count() > 0 ? ratio(times.copy, others) : 0;
}

// ---- Settings that suffice ----------------------------------------------------------------------

/// all / one, rounded up.
inline std::size_t count_in(Nanoseconds all, Nanoseconds one) {
  return static_cast<std::size_t>(std::ceil(ratio(all, one)));
}
/// The same, of something that there are `count` of.
inline std::size_t share_of(std::size_t all, std::size_t count) {
  return count == 0 ? 0 : all / count;
}
/// A queue that is longer than all batches of the run is never full.
inline std::size_t within_run(std::size_t depth, const Stats& stats) {
  return stats.setup.batches == 0 ? depth : std::min<std::size_t>(depth, stats.setup.batches);
}
/// Blocks and slots that are allocated; with PrefetcherOptions::tune not all of them are in use.
inline std::size_t blocks_allocated(const Stats& stats) {
  return stats.tuning ? std::max(stats.host_depth, stats.tuning->most_host_depth)
                      : stats.host_depth;
}
inline std::size_t slots_allocated(const Stats& stats) {
  return stats.tuning ? std::max(stats.device_depth, stats.tuning->most_device_depth)
                      : stats.device_depth;
}
/// Batches of `bytes` for which a limit on memory has room; 0: it is unknown.
inline std::size_t room_for(std::size_t bytes, std::size_t limit) {
  return bytes == 0 || limit == 0 ? std::numeric_limits<std::size_t>::max() : limit / bytes;
}
inline std::size_t most_on_host(const Stats& stats) {
  return room_for(share_of(stats.host_bytes, blocks_allocated(stats)), stats.setup.host_limit);
}
inline std::size_t most_on_device(const Stats& stats) {
  return room_for(share_of(stats.device_bytes, slots_allocated(stats)), stats.setup.device_limit);
}
/// As many slots as the run and the device have room for.
inline std::size_t possible_slots(std::size_t slots, const Stats& stats) {
  return std::min(within_run(slots, stats), most_on_device(stats));
}

/// Of an on_device source each worker writes a slot, one slot is leased, and one is ready.
inline constexpr std::size_t kSlotsBesideWorkers = 2;
inline std::size_t slots_of_writers(const Stats& stats, int workers) {
  return possible_slots(static_cast<std::size_t>(workers) + kSlotsBesideWorkers, stats);
}

/// The slots with which a copy can run beside the consumer's work: one more where it holds all.
inline std::size_t slots_beside_consumer(const Stats& stats) {
  const std::size_t more =
      slots_are_taken(stats) ? possible_slots(stats.device_depth + 1, stats) : 0;
  return std::max(stats.device_depth, more);
}

/// Workers beyond which something is missing for one more.
struct MostWorkers {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
  std::size_t by_cores = kNoLimit;   // for their computing
  std::size_t by_run = kNoLimit;     // batches
  std::size_t by_memory = kNoLimit;  // blocks
  std::size_t by_slots = kNoLimit;   // that an on_device source writes

  std::size_t in_all() const { return std::min({by_cores, by_run, by_memory, by_slots}); }
};

inline MostWorkers most_workers(const Stats& stats) {
  MostWorkers most;
  const double computes = computing(stats).value_or(0);
  if (stats.setup.cores > 0 && computes > kNoise)
    most.by_cores =
        std::max<std::size_t>(1, static_cast<std::size_t>(stats.setup.cores / computes + 0.1));
  if (stats.setup.unbounded) most.by_run = 1;
  if (stats.setup.per_sample) return most;
  most.by_run = within_run(most.by_run, stats);
  const auto beside = [](std::size_t room, std::size_t others) {
    return room == MostWorkers::kNoLimit ? room : room - std::min(room, others);
  };
  if (writes_slots(stats))
    most.by_slots = beside(most_on_device(stats), kSlotsBesideWorkers);
  else
    most.by_memory = beside(most_on_host(stats), slots_beside_consumer(stats));
  return most;
}

/// The smallest sufficient `device_depth`; 0: the present one suffices.
inline std::size_t enough_slots(const Stats& stats, int workers) {
  const std::size_t slots =
      writes_slots(stats) ? slots_of_writers(stats, workers) : slots_beside_consumer(stats);
  return slots > stats.device_depth ? slots : 0;
}
/// The same where the run and the memory have so many. 0: no more than the present ones.
inline std::size_t blocks_for(const Stats& stats, int workers, std::size_t slots) {
  const std::size_t blocks =
      std::min(within_run(least_host_depth(stats, workers, slots), stats), most_on_host(stats));
  return blocks > stats.host_depth ? blocks : 0;
}
/// The smallest sufficient `host_depth`. 0: the present one suffices, it follows the other two by
/// itself, or there is none.
inline std::size_t enough_blocks(const Stats& stats, int workers) {
  if (writes_slots(stats) || stats.setup.deepens) return 0;
  return blocks_for(stats, workers, slots_beside_consumer(stats));
}

/// Workers with which the source keeps up; 0: unknown. At 0.9 of their limit they do not limit the
/// rate.
inline std::size_t workers_that_keep_up(const Verdict& verdict, const Stats& stats) {
  const auto needed =
      times(kAtItsLimit, std::max(verdict.copy + verdict.transform, verdict.consumer));
  if (!stats.device || needed.count() <= 0) return 0;
  return std::max(static_cast<std::size_t>(stats.workers) + 1,
                  count_in(worker_time(stats), needed));
}

inline void set_enough_workers(Verdict& verdict, const Stats& stats) {
  const std::size_t most = most_workers(stats).in_all();
  if (most <= static_cast<std::size_t>(stats.workers)) {
    verdict.kind = VerdictKind::cheaper_source;
    return;
  }
  const std::size_t wanted = workers_that_keep_up(verdict, stats);
  if (wanted == 0) return;
  verdict.enough_workers = static_cast<int>(std::min(wanted, most));
  verdict.enough_device_depth = enough_slots(stats, verdict.enough_workers);
  verdict.enough_host_depth = enough_blocks(stats, verdict.enough_workers);
}

/// 0: unknown.
inline Nanoseconds longest_wait(const Stats& stats) {
  return stats.device ? stats.device->longest_wait : stats.longest_wait;
}

/// The number of batches that the longest wait cost, at least 1. Where it is unknown, as many as
/// cost a wait that is no outlier yet.
inline std::size_t missing_batches(const Verdict& verdict, const Stats& stats) {
  auto wait = longest_wait(stats);
  if (wait.count() == 0) return static_cast<std::size_t>(kFarLonger);
  // Several slow batches in a row are waited for one by one.
  const auto waits =
      static_cast<std::int64_t>(stats.copy.batches) * times(verdict.starved, verdict.period);
  if (!lacks_blocks(stats)) wait = std::max(wait, each(waits, stats.underruns));
  auto pace = std::max({verdict.consumer, verdict.source, verdict.copy + verdict.transform});
  if (!stats.device) pace = std::max(pace, verdict.period);  // The consumer's time is unknown.
  return std::max<std::size_t>(1, count_in(wait, pace));
}

inline void set_enough_depth(Verdict& verdict, const Stats& stats) {
  std::size_t depth = std::max(static_cast<std::size_t>(stats.workers) + stats.device_depth,
                               stats.host_depth + missing_batches(verdict, stats));
  depth = std::min(within_run(depth, stats), most_on_host(stats));
  if (depth > stats.host_depth) verdict.enough_host_depth = depth;
}

inline void set_enough_slots(Verdict& verdict, const Stats& stats) {
  std::size_t slots = stats.device_depth + 1;
  if (writes_slots(stats)) slots = std::max(slots, slots_of_writers(stats, stats.workers));
  if (!slots_are_taken(stats))
    slots = std::max(slots, stats.device_depth + missing_batches(verdict, stats));
  slots = possible_slots(slots, stats);
  if (!writes_slots(stats)) {  // Each slot's copy reads a block of its own.
    const std::size_t beside = least_host_depth(stats, stats.workers, 0);
    const std::size_t room = std::max(most_on_host(stats), stats.host_depth);
    if (stats.setup.deepens) slots = std::min(slots, room - std::min(room, beside));
  }
  if (slots <= stats.device_depth) return;
  verdict.enough_device_depth = slots;
  if (!writes_slots(stats) && !stats.setup.deepens)
    verdict.enough_host_depth = blocks_for(stats, stats.workers, slots);
}

/// `host_depth` with the settings of the verdict, which it may follow by itself; 0: as it is.
inline std::size_t host_depth_then(const Verdict& verdict, const Stats& stats) {
  if (writes_slots(stats) || !stats.setup.deepens) return verdict.enough_host_depth;
  return std::max(verdict.enough_host_depth,
                  least_host_depth(stats, std::max(stats.workers, verdict.enough_workers),
                                   std::max(stats.device_depth, verdict.enough_device_depth)));
}

inline void set_more_bytes(Verdict& verdict, const Stats& stats) {
  const auto beyond = [](std::size_t depth, std::size_t present, std::size_t bytes) {
    return depth > present ? (depth - present) * share_of(bytes, present) : 0;
  };
  verdict.more_bytes =
      beyond(host_depth_then(verdict, stats), blocks_allocated(stats), stats.host_bytes) +
      beyond(verdict.enough_device_depth, slots_allocated(stats), stats.device_bytes);
}

// ---- What is not usual --------------------------------------------------------------------------

inline void take_from(Nanoseconds& time, Nanoseconds taken) {
  time -= std::min(time, taken);
}

/// Without the consumer's pauses.
inline void remove_pauses(Stats& stats) {
  const Pauses pauses = std::exchange(stats.pauses, {});
  take_from(stats.source.waiting_for_room, pauses.source);
  take_from(stats.copy.waiting_for_room, pauses.copy);
  take_from(stats.consumer.busy, pauses.consumer);
  if (stats.device) take_from(stats.device->consuming, pauses.device);
}

/// Without the first batch of each worker, where these took far longer than the others: the source
/// opened files, or filled a cache.
inline void remove_first_fills(Stats& stats) {
  constexpr std::chrono::milliseconds kAccuracy{8};
  const auto workers =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(stats.workers), stats.source.batches);
  const Nanoseconds first = std::exchange(stats.first_fills, {});
  if (workers == stats.source.batches || first > stats.source.busy) return;
  const Nanoseconds usual = each(stats.source.busy - first, stats.source.batches - workers);
  if (each(first, workers) <= times(kFarLonger, usual) + kAccuracy) return;
  stats.source.busy -= first;
  if (!stats.setup.per_sample) stats.source.batches -= workers;
}

inline Stats without_start_and_pauses(Stats stats) {
  remove_pauses(stats);
  remove_first_fills(stats);
  return stats;
}

// ---- A single wait ------------------------------------------------------------------------------

/// What of its longest wait the consumer had no input for. Without device times that wait is the
/// host's, and the device works meanwhile on what it has.
inline Nanoseconds starved_at_once(const Stats& stats) {
  const auto wait = longest_wait(stats);
  return stats.device || stats.waits.batches == 0 ? wait : std::min(wait, stats.waits.longest);
}

/// All the time in which the consumer had no input, its longest single wait included.
inline Nanoseconds starved_in_all(const Stats& stats) {
  if (stats.device) return waiting_time(*stats.device);
  if (stats.waits.batches == 0) return stats.consumer.waiting_for_input;
  const auto once = starved_at_once(stats);
  const auto others = each(stats.waits.waiting - once, stats.waits.batches - 1);
  return once + others * static_cast<std::int64_t>(stats.consumer.batches);
}

/// A worker that was held up for most of `wait` was not slow, but once.
inline void remove_longest_fill(Stats& stats, Nanoseconds wait) {
  if (2 * stats.longest_fill <= wait || stats.longest_fill > stats.source.busy) return;
  stats.source.busy -= stats.longest_fill;
  stats.source.batches -= std::min<std::uint64_t>(1, stats.source.batches);
}

/// Removes the longest wait, `wait`, of which the consumer had no input for `once`. The longest
/// wait is unknown after it.
inline void remove_longest_wait(Stats& stats, Nanoseconds wait, Nanoseconds once) {
  take_from(stats.consumer.waiting_for_input, wait);
  take_from(stats.copy.waiting_for_input, wait);
  stats.longest_wait = Nanoseconds(0);
  if (stats.waits.batches > 0) {
    take_from(stats.waits.waiting, once);
    --stats.waits.batches;
  }
  if (!stats.device) return;
  const auto before_issue = std::min(wait, stats.device->awaiting_batch);
  stats.device->awaiting_batch -= before_issue;
  take_from(stats.device->awaiting_copy, wait - before_issue);
  stats.device->longest_wait = Nanoseconds(0);
}

/// The same without its longest wait, if that is over half of all waiting and far longer than what
/// a batch takes anywhere: a hiccup, from which nothing can be extrapolated. Else nullopt.
inline std::optional<Stats> without_hiccup(const Stats& stats) {
  const auto wait = longest_wait(stats), once = starved_at_once(stats);
  const auto here = stats.device ? waiting_time(*stats.device) : stats.consumer.waiting_for_input;
  if (wait > here) return std::nullopt;  // It was before these times began.
  if (awaits_data(stats)) return std::nullopt;
  if (2 * once <= starved_in_all(stats)) return std::nullopt;
  Stats rest = stats;
  remove_longest_fill(rest, wait);
  const StageTimes times = stage_times(rest);
  const auto usual = std::max({worker_time(rest), times.copy, times.transform, times.consumer});
  if (ratio(once, usual) <= kFarLonger) return std::nullopt;
  remove_longest_wait(rest, wait, once);
  return rest;
}

}  // namespace penstock::detail
