// SPDX-License-Identifier: Apache-2.0
#pragma once

// StagedQueue: the batches whose copies are issued, in order, between the thread that stages and
// the consumer; and what else the consumer has to hear of: the end, or a failure.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <penstock/detail/memory/batch_object.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/observe/batch_times.hpp>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/prefetcher.hpp>
#include <utility>
#include <vector>

namespace penstock::detail {

/// A device slot and the batch in it: staged (its copy is issued), then leased.
struct Staged : LeasedBatch {
  /// For the batches of `layout`, in the slot of this number.
  Staged(const BlockLayout& layout, std::size_t number) : object(layout) {
    batch = object.get();
    slot = number;
    layout.reserve_samples(samples);
    consumers.reserve(8);
  }

  DeviceSlot memory;
  BatchObject object;                  // that `batch` points at
  std::vector<std::uint64_t> samples;  // that the ticket names
  cudaEvent_t copied = nullptr;
  std::vector<ResolvedStream> consumers;  // of the lease
  std::exception_ptr error;               // in place of a batch
  std::uint64_t next = 0;                 // number of the batch behind it, over all epochs
  std::uint64_t skipped = 0;              // by the failure policy, up to this batch
  std::uint64_t order = 0;                // count of what was staged before it
  BatchTimes times;
};

/// Any thread may add or wait; one thread at a time consumes. Nothing allocates within `capacity`.
class StagedQueue {
 public:
  explicit StagedQueue(std::size_t capacity) { line_.reserve(capacity); }

  void push(Staged& staged) {
    {
      const std::lock_guard lock(mutex_);
      line_.push_back(&staged);
    }
    size_.fetch_add(1, std::memory_order_relaxed);
    changed_.notify_one();
  }

  /// No batch will come after those in line.
  void end() noexcept {
    ended_.store(true, std::memory_order_relaxed);
    call_all();
  }

  /// The next call of throw_failure throws `error`; of several, the first.
  void fail(std::exception_ptr error) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::move(error);
      failed_.store(true, std::memory_order_relaxed);  // Never without a failure to throw.
    }
    call_all();  // One of them throws it; the others may have no slot to wait for any more.
  }

  void throw_failure() {
    if (!failed_.load(std::memory_order_relaxed)) return;
    std::exception_ptr failure;
    {
      const std::lock_guard lock(mutex_);
      failure = std::exchange(failure_, nullptr);
      failed_.store(false, std::memory_order_relaxed);
    }
    if (failure) std::rethrow_exception(failure);
  }

  /// There is a batch, the end, or a failure.
  bool has_news() const noexcept {
    return size() != 0 || ended() || failed_.load(std::memory_order_relaxed);
  }

  /// Waits until there is news, or a call to all later than number `calls`. False: not before
  /// `until`. Any number of threads may wait; that there is a batch wakes one of them.
  bool wait_until(EventCount::Clock::time_point until, std::uint32_t calls) {
    return changed_.wait_until(until, [&] { return has_news() || this->calls() != calls; });
  }
  /// One that waits looks again: for a thread that was woken, and has not taken the batch.
  void notify() { changed_.notify_one(); }
  /// All that wait look again at everything.
  void call_all() noexcept {
    calls_.fetch_add(1, std::memory_order_release);
    changed_.notify_all();
  }
  /// Ask for it before you look: a thread that sees a call sees what came before it.
  std::uint32_t calls() const noexcept { return calls_.load(std::memory_order_acquire); }

  /// nullptr: nobody is in line.
  Staged* first() const {
    const std::lock_guard lock(mutex_);
    return line_.empty() ? nullptr : line_.front();
  }

  void pop_first() {
    const std::lock_guard lock(mutex_);
    line_.erase(line_.begin());  // A handful of slots.
    size_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// Gives back every slot in line and forgets the end. Nobody may push meanwhile.
  void clear() {
    for (Staged* staged : line_) staged->memory = DeviceSlot();
    line_.clear();
    size_.store(0, std::memory_order_relaxed);
    ended_.store(false, std::memory_order_relaxed);
  }

  std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  bool ended() const noexcept { return ended_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;  // Never held across a call of CUDA's.
  std::vector<Staged*> line_;
  std::exception_ptr failure_;
  // Only hints at what is under the lock: they order nothing.
  std::atomic<std::size_t> size_{0};
  std::atomic<bool> ended_{false}, failed_{false};
  std::atomic<std::uint32_t> calls_{0};
  EventCount changed_;
};

}  // namespace penstock::detail
