// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stats: how long each stage of a pipeline worked, how long it waited and for what; and, computed
// from these times, which stage limits the rate.
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

namespace penstock {

struct Tuning;  // tuning.hpp

/// What a stage of a pipeline did: times and sizes in sum.
struct StageStats {
  std::chrono::nanoseconds busy{0};  ///< time in which it worked
  /// Time in which it waited for the stage before it.
  std::chrono::nanoseconds waiting_for_input{0};
  std::chrono::nanoseconds waiting_for_room{0};  ///< time in which it waited for the stage after it
  std::uint64_t batches = 0;                     ///< batches that passed it
  std::uint64_t timed = 0;   ///< batches that the times are of, where that is not all; else 0
  std::uint64_t bytes = 0;   ///< bytes of these batches
  double queued = 0;         ///< batches ready when the next stage took one, on average
  std::size_t capacity = 0;  ///< batches for which that queue has room

  /// Fraction of its time that the stage worked, 0 ... 1.
  double utilisation() const {
    const auto all = (busy + waiting_for_input + waiting_for_room).count();
    return all == 0 ? 0.0 : static_cast<double>(busy.count()) / static_cast<double>(all);
  }
};

/// What the consumer's stream did, measured on the device by timed events
/// (PrefetcherOptions::device_times). Without the first batch.
struct DeviceTimes {
  std::uint64_t copies = 0;                    ///< number of copies in the times of Stats::copy
  std::uint64_t batches = 0;                   ///< number of batches in the times below
  std::chrono::nanoseconds consuming{0};       ///< it worked, on a batch or something else
  std::chrono::nanoseconds awaiting_batch{0};  ///< it was idle until a copy was issued
  std::chrono::nanoseconds awaiting_copy{0};   ///< it was idle until that copy was done
  std::chrono::nanoseconds longest_wait{0};    ///< longest sum of the two, for one batch
};

/// How long the consumer's stream had no work, measured on the device: before each batch that takes
/// longer than a millisecond; of shorter ones, on average before one in a millisecond.
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

/// The last batches whose leases have ended, in the order in which they were taken: when each
/// passed the steps of its route, in nanoseconds of steady_clock, and what was measured of it on
/// the device. At least 256, as far as there were so many since the construction or the last
/// restore().
struct RecentBatches {
  std::vector<detail::FinishedBatch> batches;
};

/// What the pipeline is made of, so that advice names only what there is. Constant, but for the
/// last member.
struct PipelineSetup {
  bool unbounded = false;   ///< the data are a stream (see Unbounded): one worker calls the source
  bool per_sample = false;  ///< several workers fill a batch together
  bool transforms = false;  ///< there is a DeviceTransform
  bool ordered = true;      ///< batches come in the order of their numbers
  std::int64_t batch_size = 1;  ///< samples of a full batch
  bool deepens = false;         ///< host_depth was 0: it follows workers and device_depth
  int cores = 0;                ///< cores that the process may use; 0: unknown
  std::uint64_t batches = 0;    ///< batches of the whole run, all epochs; 0: unknown
  std::size_t batch_bytes = 0;  ///< size of the fields of a full batch on the host
  /// The same if the fields of float and double had 8 bits an element, and the fields of integers
  /// of 4 and 8 bytes half of what they have. Equal to batch_bytes without such fields.
  std::size_t as_uint8_bytes = 0, as_half_integers_bytes = 0;
  std::size_t host_limit = 0;  ///< bytes that the batches on the host may take; 0: unknown
  bool doubles = false;        ///< its fields of floating-point numbers are of double
  /// Bytes of the device that the batches may take: theirs, and what was free when the pipeline was
  /// constructed. 0: unknown.
  std::size_t device_limit = 0;
  bool second_stream = false;  ///< a lease was also_used_on another stream
};

/// A snapshot. `source` is the sum over the workers. `consumer` is measured on the host: time
/// inside next(), and time between two calls; without the first batch, which fills the pipeline.
///
/// Copies and transforms are timed on the device, by timed events, and with them how long the copy
/// stream waited for the slot and its readers: of each batch with device times, otherwise of at
/// most one in 100 us on average, which stands for those before it. The rest of that stream's time
/// is `copy.waiting_for_input`. The times of the host are the stamps of batches: `source.busy` of
/// those that are filled, the consumer's of those whose leases have ended.
struct Stats {
  StageStats source;                  ///< the workers that run the source
  StageStats copy;                    ///< the copies to the device
  StageStats transform;               ///< the DeviceTransform; all 0 without one
  StageStats consumer;                ///< the thread that calls next()
  std::optional<DeviceTimes> device;  ///< only with PrefetcherOptions::device_times
  /// CPU time of the workers: little of source.busy means that the source waits (for a disk, a
  /// network, a lock). 0: unknown.
  std::chrono::nanoseconds worker_cpu{0};
  /// What the workers read from files and pipes, as Linux counts it for each thread (in
  /// /proc/self/task); at most 10 ms old. What is read from a mapping is not among it.
  /// nullopt: unknown, where the system does not tell, or has no descriptor left.
  std::optional<ReadCounts> source_reads;
  /// Longest time in which a batch was filled, but for the first of each worker; of the batches
  /// whose leases have ended.
  std::chrono::nanoseconds longest_fill{0};
  SampledWaits waits;                        ///< only without device_times
  std::chrono::nanoseconds first_batch{0};   ///< from construction to the end of the first next()
  std::chrono::nanoseconds longest_wait{0};  ///< longest call of next(), without the first
  std::uint64_t skipped = 0, replaced = 0;   ///< batches handled by a FailurePolicy
  int workers = 0;  ///< threads that run the source; with PrefetcherOptions::tune, at present
  /// Batches in pinned memory (0: an on_device source, nothing is copied), on the device; with
  /// PrefetcherOptions::tune those in use at present.
  std::size_t host_depth = 0, device_depth = 0;
  std::size_t host_bytes = 0, device_bytes = 0;  ///< memory allocated for them
  /// What PrefetcherOptions::tune has changed, as of this snapshot (see tuning.hpp). Null: without.
  std::shared_ptr<const Tuning> tuning = {};
  /// The cores that the Placement chose, and why; or why it chose none. One line, shared by all
  /// snapshots. Null: there was nothing to choose, as on a machine with one NUMA node.
  std::shared_ptr<const std::string> placement = {};
  /// The last batches, one by one, as of this snapshot. Null: of a Stats that is not a pipeline's.
  std::shared_ptr<const RecentBatches> recent = {};
  PipelineSetup setup;  ///< what the pipeline is made of

  /// The difference to `before`, an earlier snapshot of the same pipeline. The longest waits remain
  /// those of the whole run.
  Stats since(const Stats& before) const;

  /// The stage that limits the rate: verdict().stage.
  Bottleneck bottleneck() const;
  /// The same, with what to change, by a replay of `recent`. A pure function of these numbers. It
  /// allocates, and takes up to a few milliseconds.
  Verdict verdict() const;
};

/// A table of seven short lines (one more each for a DeviceTransform, for failed batches, with
/// tuning, and for the placement if there is one; one less for an on_device source, which has no
/// copies): the stages, the memory, and last the verdict.
std::ostream& operator<<(std::ostream& out, const Stats& stats);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/observe/stats.hpp>
#endif
