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
#include <optional>
#include <penstock/detail/inline.hpp>
#include <penstock/verdict.hpp>

namespace penstock {

/// What a stage of a pipeline did: times and sizes in sum.
struct StageStats {
  std::chrono::nanoseconds busy{0};  ///< time in which it worked
  /// Time in which it waited for the stage before it.
  std::chrono::nanoseconds waiting_for_input{0};
  std::chrono::nanoseconds waiting_for_room{0};  ///< time in which it waited for the stage after it
  std::uint64_t batches = 0;                     ///< batches that passed it
  std::uint64_t bytes = 0;                       ///< bytes of these batches
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

/// A snapshot. `source` is the sum over the workers. `consumer` is measured on the host: time
/// inside next(), and time between two calls; without the first batch, which fills the pipeline.
///
/// `copy` is exact with device times. Otherwise it is sampled: the end of each lease polls the
/// oldest unfinished copy and charges the elapsed time to the state it finds (running, waiting for
/// the last readers of its slot, or nothing to copy).
struct Stats {
  StageStats source;                         ///< the workers that run the source
  StageStats copy;                           ///< the copies to the device
  StageStats consumer;                       ///< the thread that calls next()
  std::optional<DeviceTimes> device;         ///< only with PrefetcherOptions::device_times
  std::chrono::nanoseconds first_batch{0};   ///< from construction to the end of the first next()
  std::chrono::nanoseconds longest_wait{0};  ///< longest call of next(), without the first
  std::uint64_t skipped = 0, replaced = 0;   ///< batches handled by a FailurePolicy
  int workers = 0;                           ///< threads that run the source
  /// Batches in pinned memory (0: an on_device source, nothing is copied), on the device.
  std::size_t host_depth = 0, device_depth = 0;
  std::size_t host_bytes = 0, device_bytes = 0;  ///< memory used for them

  /// The difference to `before`, an earlier snapshot of the same pipeline. The longest waits remain
  /// those of the whole run.
  Stats since(const Stats& before) const;

  /// The stage that limits the rate: verdict().stage. Never one that waited for over half of its
  /// time.
  Bottleneck bottleneck() const;
  /// The same, with what to change. A pure function of these numbers.
  Verdict verdict() const;
};

/// A table of seven short lines (eight if batches failed, one less for an on_device source, which
/// has no copies): the stages, the memory, and last the verdict.
std::ostream& operator<<(std::ostream& out, const Stats& stats);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/measure/stats.hpp>
#endif
