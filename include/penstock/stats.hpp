// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stats says how long each stage of a pipeline worked, and how long it waited and for what. From
// these times it computes which stage limits the rate.
//
//   std::cout << prefetcher.stats() << '\n';
//   if (prefetcher.stats().bottleneck() == penstock::Bottleneck::source) add_workers();

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <penstock/detail/inline.hpp>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/verdict.hpp>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

struct Tuning;  // tuning.hpp

/// The sums of the times and sizes of a stage of a pipeline.
struct StageStats {
  std::chrono::nanoseconds busy{0};  ///< time in which it worked
  /// Time in which it waited for the stage before it.
  std::chrono::nanoseconds waiting_for_input{0};
  std::chrono::nanoseconds waiting_for_room{0};  ///< time in which it waited for the stage after it
  std::uint64_t batches = 0;                     ///< batches that passed it
  std::uint64_t timed = 0;   ///< the number of batches that were timed; 0: all of them
  std::uint64_t bytes = 0;   ///< bytes of these batches
  double queued = 0;         ///< the mean number of ready batches when the next stage took one
  std::size_t capacity = 0;  ///< the largest number of batches in that queue

  /// Returns the fraction of its time in which the stage worked, 0 ... 1.
  double utilisation() const {
    const auto all = (busy + waiting_for_input + waiting_for_room).count();
    return all == 0 ? 0.0 : static_cast<double>(busy.count()) / static_cast<double>(all);
  }
};

/// What the consumer's stream did, measured on the device by timed events
/// (PrefetcherOptions::device_times). The first batch is left out.
struct DeviceTimes {
  std::uint64_t copies = 0;                    ///< number of copies in the times of Stats::copy
  std::uint64_t batches = 0;                   ///< number of batches in the times below
  std::chrono::nanoseconds consuming{0};       ///< it worked on a batch or something else
  std::chrono::nanoseconds awaiting_batch{0};  ///< it was idle until a copy was issued
  std::chrono::nanoseconds awaiting_copy{0};   ///< it was idle until that copy was done
  std::chrono::nanoseconds longest_wait{0};    ///< the longest sum of both for one batch
};

/// How long the consumer's stream had no work, measured on the device. Batches that take longer
/// than a millisecond are all measured; of shorter ones, one in a millisecond on average.
struct SampledWaits {
  std::uint64_t batches = 0;            ///< number of batches in `waiting`
  std::chrono::nanoseconds waiting{0};  ///< until the batch was on the device
  std::chrono::nanoseconds longest{0};  ///< the longest of them
};

/// Calls of read, pread and the like, and the bytes that they brought.
struct ReadCounts {
  std::uint64_t calls = 0;  ///< number of calls
  std::uint64_t bytes = 0;  ///< bytes of all of them
};

/// The last batches whose leases have ended, in the order in which they were taken. For each it has
/// the times of the steps of its route, in nanoseconds of steady_clock, and what was measured on
/// the device. It has 256 batches or more, unless there were fewer since the construction or the
/// last restore().
struct RecentBatches {
  std::vector<detail::FinishedBatch> batches;
};

/// The parts of the pipeline, so that advice names only parts that it has. All members are constant
/// except the last.
struct PipelineSetup {
  bool unbounded = false;   ///< the data are a stream (see Unbounded): one worker calls the source
  bool per_sample = false;  ///< several workers fill a batch together
  bool transforms = false;  ///< there is a DeviceTransform
  bool ordered = true;      ///< batches come in the order of their numbers
  std::int64_t batch_size = 1;  ///< samples of a full batch
  bool deepens = false;         ///< host_depth was 0, so it follows workers and device_depth
  int cores = 0;                ///< cores that the process may use; 0: unknown
  std::uint64_t batches = 0;    ///< batches of the whole run, all epochs; 0: unknown
  std::size_t batch_bytes = 0;  ///< size of the fields of a full batch on the host
  /// That size if the elements of float and double had 8 bits, and if the integers of 4 and 8 bytes
  /// had half their size. Both equal batch_bytes if there are no such fields.
  std::size_t as_uint8_bytes = 0, as_half_integers_bytes = 0;
  std::size_t host_limit = 0;  ///< bytes that the batches on the host may take; 0: unknown
  bool doubles = false;        ///< its floating-point fields have elements of double
  /// Bytes of the device that the batches may take: their own and those that were free when the
  /// pipeline was constructed. 0: unknown.
  std::size_t device_limit = 0;
  bool second_stream = false;  ///< a lease was also_used_on another stream
};

/// A snapshot. `source` is the sum over the workers. `consumer` is measured on the host: the time
/// inside next() and the time between two calls, without the first batch, which fills the pipeline.
///
/// Timed events measure on the device how long copies and transforms took, and how long the copy
/// stream waited for a slot and its readers. With device times every batch is measured. Otherwise
/// at most one in 100 us on average is measured, and also counts for those before it. The rest of
/// that stream's time is `copy.waiting_for_input`. The times of the host come from the stamps of
/// batches: `source.busy` from those that are filled, the consumer's times from those whose leases
/// have ended.
struct Stats {
  StageStats source;                  ///< the workers that run the source
  StageStats copy;                    ///< the copies to the device
  StageStats transform;               ///< the DeviceTransform; all 0 without one
  StageStats consumer;                ///< the thread that calls next()
  std::optional<DeviceTimes> device;  ///< only with PrefetcherOptions::device_times
  /// The CPU time of the workers. If it is a small part of source.busy, the source waits (for a
  /// disk, a network, a lock). 0: unknown.
  std::chrono::nanoseconds worker_cpu{0};
  /// What the workers read from files and pipes, as Linux counts it for each thread (in
  /// /proc/self/task), at most 10 ms ago. Reads from a mapping do not count. nullopt: unknown,
  /// because the system does not tell or has no descriptor left.
  std::optional<ReadCounts> source_reads;
  /// The longest time in which a batch was filled, of the batches whose leases have ended. The
  /// first batch of each worker does not count.
  std::chrono::nanoseconds longest_fill{0};
  SampledWaits waits;                        ///< measured only without device_times
  std::chrono::nanoseconds first_batch{0};   ///< from construction to the end of the first next()
  std::chrono::nanoseconds longest_wait{0};  ///< the longest call of next() except the first
  std::uint64_t skipped = 0, replaced = 0;   ///< batches handled by a FailurePolicy
  int workers = 0;  ///< threads that run the source; PrefetcherOptions::tune may change it
  /// The numbers of batches in pinned memory (0 for an on_device source, which copies nothing) and
  /// on the device. With PrefetcherOptions::tune, those in use at present.
  std::size_t host_depth = 0, device_depth = 0;
  std::size_t host_bytes = 0, device_bytes = 0;  ///< memory allocated for them
  /// What PrefetcherOptions::tune has changed until this snapshot (see tuning.hpp). Null without
  /// it.
  std::shared_ptr<const Tuning> tuning = {};
  /// One line that says which cores the Placement chose and why, or why it chose none. All
  /// snapshots share it. Null if there was no choice, as on a machine with one NUMA node.
  std::shared_ptr<const std::string> placement = {};
  /// The last batches until this snapshot, one by one. Null in a Stats that is not a pipeline's.
  std::shared_ptr<const RecentBatches> recent = {};
  PipelineSetup setup;  ///< the parts of the pipeline

  /// Returns the difference to `before`, an earlier snapshot of the same pipeline. The longest
  /// waits remain those of the whole run.
  Stats since(const Stats& before) const;

  /// Returns the stage that limits the rate, verdict().stage.
  Bottleneck bottleneck() const;
  /// Returns that stage and what to change, by a replay of `recent`. The result depends only on
  /// this snapshot. The call allocates, and takes up to a few milliseconds.
  Verdict verdict() const;
};

/// Prints a table of the stages, the memory and, last, the verdict. It has seven short lines. A
/// DeviceTransform, failed batches, tuning and a placement add one each, and an on_device source,
/// which has no copies, has one less.
std::ostream& operator<<(std::ostream& out, const Stats& stats);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/observe/stats.hpp>
#endif
