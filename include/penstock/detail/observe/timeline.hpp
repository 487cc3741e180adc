// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timeline: the stamps of the last batches that have ended, with their measured times on the
// device, and sums over all batches. Stats and the Tuner are computed from it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/version.hpp>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// The sums over all batches that have ended. A negative interval counts as 0.
struct TimelineSums {
  std::uint64_t batches = 0;
  Ticks longest_fill = 0;  ///< from `opened` to `filled`, without the first batches of workers
  Ticks waiting = 0;       ///< the sum of the waits from `asked` to `taken`, without that of the
                           ///< first batch
  Ticks longest_wait = 0;  ///< the longest of these waits
  Ticks first_taken = 0;   ///< when the first of these batches was taken
  Ticks last_taken = 0;    ///< when the last of these batches was taken
  Ticks consuming = 0;     ///< the time between these two without the waits
};

/// Thread-safe. One lock is held for a few loads and stores; `copy` holds it while it copies the
/// records. Only `copy` allocates.
///
/// The `order` of a batch is the number of batches that the pipeline staged before it, over all
/// restarts.
class Timeline {
 public:
  static constexpr std::size_t kMinSize = 256;
  static constexpr std::size_t kAll = ~std::size_t{0};

  /// `batches`: the largest number of batches that are in the pipeline at the same time.
  explicit Timeline(std::size_t batches)
      : ended_(std::max(kMinSize, 4 * batches)), measured_(2 * ended_.size()) {}

  /// The number of batches that are kept.
  std::size_t size() const { return ended_.size(); }

  /// Adds a batch that has ended. Call it for each batch that was delivered, before its record is
  /// reused.
  void add(std::uint64_t order, std::uint64_t number, const BatchTimes& times) noexcept {
    const std::lock_guard lock(mutex_);
    ++sums_.batches;
    if (!times.first_of_worker()) longest(sums_.longest_fill, times.filled - times.opened);
    count_wait(times);
    longest(sums_.last_taken, times.taken);
    // Batches whose leases end late add their waits later. The maximum keeps the sum from
    // decreasing.
    longest(sums_.consuming, sums_.last_taken - sums_.first_taken - sums_.waiting);
    if (order < begin_) return;  // its lease ended after a restart
    ended_[count_++ % ended_.size()] = {order, number, times};
  }

  /// Sets those times of a batch on the device that are not -1. It may be called before or after
  /// the end of the batch. The times are lost if the lease of the batch is held while far more
  /// batches pass than are kept.
  void measure(std::uint64_t order, const DeviceDurations& durations) noexcept {
    const std::lock_guard lock(mutex_);
    Measured& measured = measured_[order % measured_.size()];
    if (measured.order != order) {
      if (measured.order != kNone && measured.order > order) return;
      measured = {order, {}};
    }
    for (const auto member : kMembers)
      if (durations.*member >= 0) measured.durations.*member = durations.*member;
  }

  /// Removes the batches before `order` after a restart of the pipeline, since they show nothing
  /// about the intervals of later batches. The sums are kept.
  void restart(std::uint64_t order) noexcept {
    const std::lock_guard lock(mutex_);
    begin_ = order;
    count_ = 0;
  }

  TimelineSums sums() const noexcept {
    const std::lock_guard lock(mutex_);
    return sums_;
  }

  /// Copies the batches that are kept, or the last `most` of them, into `out` in the order in which
  /// they were taken. Does not allocate if the capacity of `out` suffices.
  void copy(std::vector<FinishedBatch>& out, std::size_t most = kAll) const {
    most = std::min(most, size());
    out.clear();
    out.reserve(most);
    {
      const std::lock_guard lock(mutex_);
      const std::size_t kept = std::min<std::uint64_t>(count_, most);
      for (std::uint64_t i = count_ - kept; i < count_; ++i) {
        const Ended& batch = ended_[i % size()];
        const Measured& measured = measured_[batch.order % measured_.size()];
        out.push_back({batch.number, batch.times,
                       measured.order == batch.order ? measured.durations : DeviceDurations{}});
      }
    }
    // The batches are nearly in order, so insertion sort is fast. (The algorithms of the standard
    // library pass batches by value, for which g++ prints a note about their alignment.)
    for (std::size_t i = 1; i < out.size(); ++i)
      for (std::size_t j = i; j > 0 && out[j].times.taken < out[j - 1].times.taken; --j)
        std::swap(out[j], out[j - 1]);
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  static constexpr std::array kMembers{&DeviceDurations::source, &DeviceDurations::slot,
                                       &DeviceDurations::copy,   &DeviceDurations::transform,
                                       &DeviceDurations::wait,   &DeviceDurations::step};

  struct Ended {
    std::uint64_t order = 0, number = 0;
    BatchTimes times;
  };
  struct Measured {
    std::uint64_t order = kNone;
    DeviceDurations durations;
  };

  /// Adds the wait of a batch, except that of the batch that was taken first: the pipeline was
  /// empty.
  void count_wait(const BatchTimes& times) {
    Ticks wait = span(times.asked, times.taken);
    if (sums_.batches == 1 || times.taken < sums_.first_taken) {
      sums_.first_taken = times.taken;
      std::swap(wait, first_wait_);
    }
    sums_.waiting += wait;
    longest(sums_.longest_wait, wait);
  }

  static Ticks span(Ticks from, Ticks to) { return std::max<Ticks>(0, to - from); }
  static void longest(Ticks& most, Ticks time) { most = std::max(most, time); }

  mutable std::mutex mutex_;
  std::vector<Ended> ended_;        // a ring buffer
  std::vector<Measured> measured_;  // the batch with order o is at o % size
  std::uint64_t count_ = 0;         // the batches that were added since the last restart
  std::uint64_t begin_ = 0;         // the first order since the last restart
  TimelineSums sums_;
  Ticks first_wait_ = 0;  // the wait of the batch that was taken first
};

}  // namespace penstock::detail
