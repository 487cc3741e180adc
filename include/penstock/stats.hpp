// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a pipeline's time goes: for every stage the time it worked, the time it waited and on what;
// and from these, what bounds it.
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

struct StageStats {
  std::chrono::nanoseconds busy{0};
  std::chrono::nanoseconds waiting_for_input{0};  ///< nothing came from the stage before
  std::chrono::nanoseconds waiting_for_room{0};   ///< the stage after did not take what is ready
  std::uint64_t batches = 0;
  std::uint64_t bytes = 0;
  double queued = 0;         ///< batches ready for the next stage when it looked, on average
  std::size_t capacity = 0;  ///< of that queue

  /// Part of its time that the stage worked, 0 ... 1.
  double utilisation() const {
    const auto all = (busy + waiting_for_input + waiting_for_room).count();
    return all == 0 ? 0.0 : static_cast<double>(busy.count()) / static_cast<double>(all);
  }
};

/// The consumer's stream on the device's own clock, by timing events (PrefetcherOptions::
/// device_times). The first batch is left out.
struct DeviceTimes {
  std::uint64_t copies = 0;                    ///< that Stats::copy's times are of
  std::uint64_t batches = 0;                   ///< that the times below are of
  std::chrono::nanoseconds consuming{0};       ///< it has a batch, or whatever else it was given
  std::chrono::nanoseconds awaiting_batch{0};  ///< it is out of work until a copy is issued
  std::chrono::nanoseconds awaiting_copy{0};   ///< it is out of work until that copy is over
  std::chrono::nanoseconds longest_wait{0};    ///< of both together, for one batch
};

/// A snapshot. `source` sums over the workers. `consumer` is the host's side: inside next(), and
/// between two calls; the first batch (the fill of the pipe) is kept out of it.
///
/// `copy` with device times is exact. Without, it is an estimate: at the end of every lease one
/// look at the oldest copy under way tells whether it runs, waits for its slot's last readers, or
/// is done, and stands for the time since the look before.
struct Stats {
  StageStats source;
  StageStats copy;
  StageStats consumer;
  std::optional<DeviceTimes> device;         ///< only where device times were asked for
  std::chrono::nanoseconds first_batch{0};   ///< from construction until the first batch was there
  std::chrono::nanoseconds longest_wait{0};  ///< in one call of next(), after the first
  std::uint64_t skipped = 0, replaced = 0;   ///< batches that a FailurePolicy dealt with
  int workers = 0;
  std::size_t host_depth = 0, device_depth = 0;  ///< batches in pinned memory, on the device
  std::size_t host_bytes = 0, device_bytes = 0;  ///< memory that these take

  /// What happened since `before`, an earlier snapshot of the same pipeline. The longest waits stay
  /// those of the whole time.
  Stats since(const Stats& before) const;

  /// The stage that bounds the rate: verdict().stage, without its text. Never one that was seen to
  /// wait for over half of its time.
  Bottleneck bottleneck() const;
  /// The same, and what to change. A pure function of these numbers.
  Verdict verdict() const;
};

/// A table of seven short lines, or eight where batches failed: the stages, the memory, and the
/// verdict as the last.
std::ostream& operator<<(std::ostream& out, const Stats& stats);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/measure/stats.hpp>
#endif
