// SPDX-License-Identifier: Apache-2.0
#pragma once

// FreeRecords: which records have no batch.
//
// Where batches end in the order of their numbers, batch n has record n % count: a worker takes a
// turn when as many records are back as the turn needs. Workers and consumer write different cache
// lines, and seldom read the other side's. Where they end in any order, as leases do, and batches
// that come unordered, the free records are in a stack.
//
// In their order, the worker that has seen that record n % count is back is not always the one that
// claims number n. Of the first n + 1 turns, the turn of one claim up to that of n is n or later,
// and claims acquire and release: so what that worker has seen, the one with number n sees too.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/sync/index_stack.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class FreeRecords {
 public:
  /// `ordered`: batches end in the order of their numbers.
  FreeRecords(std::size_t count, bool ordered) : count_(count), ordered_(ordered), stack_(count) {
    for (std::size_t i = 0; i < count_; ++i) stack_.push(static_cast<std::uint32_t>(i));
  }

  std::size_t count() const noexcept { return count_; }

  /// Starts anew with the number `first`. All records are free, except those that come back later.
  /// No worker may run.
  void restart(std::uint64_t first) noexcept {
    returned_.store(first, std::memory_order_relaxed);
    seen_returned_.store(first, std::memory_order_relaxed);
  }

  /// Whether the worker with this turn (see RecordRing::reserve) finds a record. In any order, the
  /// worker has to try_take it.
  bool has_room(std::uint64_t turn) noexcept {
    if (!ordered_) return true;
    // seen_returned_ is a copy of returned_, released by a worker that had acquired it. Another
    // worker may store an older value: that only costs another read.
    if (turn < seen_returned_.load(std::memory_order_acquire) + count_) return true;
    const std::uint64_t returned = returned_.load(std::memory_order_acquire);
    seen_returned_.store(returned, std::memory_order_release);
    return turn < returned + count_;
  }
  /// A worker that has a turn calls this. False: it has to wait. `taken` is for `index`, once the
  /// worker has its number, or for `put_back`.
  bool try_take(std::uint32_t& taken) noexcept {
    return ordered_ || (taken = stack_.pop()) != IndexStack::kNone;
  }
  /// The record of the batch with this number.
  std::size_t index(std::uint64_t number, std::uint32_t taken) const noexcept {
    return ordered_ ? static_cast<std::size_t>(number % count_) : taken;
  }
  /// The worker gets no number: the run has ended.
  void put_back(std::uint32_t taken) noexcept {
    if (!ordered_) stack_.push(taken);
  }

  /// The batch of this record is over. `ordered`: one thread at a time calls this, in the order of
  /// the numbers; else any thread.
  void give_back(std::uint32_t index) noexcept {
    if (!ordered_) return stack_.push(index);
    returned_.store(returned_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

 private:
  const std::size_t count_;
  const bool ordered_;
  IndexStack stack_;                                         // unless ordered
  alignas(64) std::atomic<std::uint64_t> seen_returned_{0};  // by workers; no more than returned_
  alignas(64) std::atomic<std::uint64_t> returned_{0};       // by who gives back: up to this number
};

}  // namespace penstock::detail
