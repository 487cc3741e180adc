// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timeline: the stamps of the batches that have ended, for whoever judges the pipeline by them. It
// keeps the last of them, with what was measured of them on the device, and sums of all.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <penstock/detail/observe/batch_times.hpp>
#include <utility>
#include <vector>

namespace penstock::detail {

/// What a Timeline has added up, of all batches that have ended. A clock that jumps back counts as
/// one that stood still.
struct TimelineSums {
  std::uint64_t batches = 0;
  Ticks longest_fill = 0;  ///< from `opened` to `filled`, without first batches of workers
  Ticks waiting = 0;       ///< from `asked` to `taken`, without the first batch of all
  Ticks longest_wait = 0;  ///< the longest of these
  Ticks first_taken = 0;   ///< when the first of these batches was taken
  Ticks last_taken = 0;    ///< when the last of these batches was taken
  Ticks consuming = 0;     ///< the consumer's own time between these two
};

/// Any thread may call any member. One lock is held for some loads and stores; `copy` holds it
/// while it copies the records. Only `copy` allocates.
///
/// The batches of a pipeline have an `order`: a count of the batches that were staged, from 0, over
/// all restarts.
class Timeline {
 public:
  static constexpr std::size_t kFewest = 256;
  static constexpr std::size_t kAll = ~std::size_t{0};

  /// For a pipeline in which at most `batches` are under way at a time.
  explicit Timeline(std::size_t batches)
      : ended_(std::max(kFewest, 4 * batches)), measured_(2 * ended_.size()) {}

  /// The number of batches that are kept.
  std::size_t size() const { return ended_.size(); }

  /// A batch has ended. Call it for each that was delivered, before its record is used again.
  void add(std::uint64_t order, std::uint64_t number, const BatchTimes& times) noexcept {
    const std::lock_guard lock(mutex_);
    ++sums_.batches;
    if (!times.first_of_worker()) longest(sums_.longest_fill, times.filled - times.opened);
    count_wait(times);
    longest(sums_.last_taken, times.taken);
    // It never decreases, also where the waits of leases that end late are still to come.
    longest(sums_.consuming, sums_.last_taken - sums_.first_taken - sums_.waiting);
    if (order < begin_) return;  // Its lease has outlived a restart.
    ended_[count_++ % ended_.size()] = {order, number, times};
  }

  /// What a batch took on the device, before or after its end: the members that are not -1. A batch
  /// whose lease is held while far more others pass than are kept loses what was measured of it.
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

  /// The batches begin anew, with the one at `order`: those before it say nothing of how the next
  /// ones follow each other, and are kept no longer. The sums go on.
  void restart(std::uint64_t order) noexcept {
    const std::lock_guard lock(mutex_);
    begin_ = order;
    count_ = 0;
  }

  TimelineSums sums() const noexcept {
    const std::lock_guard lock(mutex_);
    return sums_;
  }

  /// The batches that are kept, or the last `most` of them, in the order in which they were taken,
  /// in `out`. Nothing is allocated if it has room for so many.
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
    // They are nearly in order: insertion is quick. (Other ways pass batches by value, and g++ has
    // a note about the alignment of these.)
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

  /// The first batch of all fills the pipeline: its wait is left out.
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
  std::vector<Ended> ended_;        // a ring
  std::vector<Measured> measured_;  // that of an order at order % size
  std::uint64_t count_ = 0;         // of batches in the ring since the last restart
  std::uint64_t begin_ = 0;         // the first order since then
  TimelineSums sums_;
  Ticks first_wait_ = 0;  // of the batch that was taken first
};

}  // namespace penstock::detail
