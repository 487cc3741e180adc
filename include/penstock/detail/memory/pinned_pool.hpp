// SPDX-License-Identifier: Apache-2.0
#pragma once

// PinnedPoolCore: the implementation of PinnedPool. It owns every entry. An entry is in exactly one
// state: held by a PinnedBlock, idle, in flight (released, but its event is not known to be done),
// or lost (its event could not be recorded or queried). The core exists until the pool is destroyed
// and no block is held.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/free_blocks.hpp>
#include <penstock/detail/memory/host_allocation.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/memory/wait_ahead.hpp>
#include <penstock/detail/sync/callers.hpp>
#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/detail/sync/time_out.hpp>
#include <penstock/detail/usable.hpp>
#include <penstock/error.hpp>
#include <penstock/pinned_pool.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// A block of memory, and the event that marks the end of its use by the device.
struct PinnedEntry {
  PinnedEntry(PinnedPoolCore& its, HostAllocation allocation)
      : core(its), memory(std::move(allocation)) {}
  std::size_t bytes() const { return memory.bytes(); }

  /// Records the event. Call it on the thread that has resolved the stream.
  void record(const ResolvedStream& stream) {
    user = stream;
    prepare(user.device);
    event->record(stream.handle);
  }

  /// Makes sure that there is an event of `device`: an event belongs to one device, so the first
  /// release on another device creates a new one.
  void prepare(int device) {
    if (event && device == event_device) return;
    const DeviceGuard guard(device);
    const CaptureModeGuard capture;
    event.emplace();
    event_device = device;
  }

  PinnedPoolCore& core;
  HostAllocation memory;
  std::uint64_t taker = 0;  // See FreeBlocks.
  std::size_t asked = 0;    // the bytes that the present holder asked for
  bool refused = false;     // release_after has refused the stream that the holder passed
  std::optional<Event> event;
  int event_device = -1;
  ResolvedStream user;                   // the stream of the last release
  cudaError_t copy = cudaErrorNotReady;  // the result of the last query of the event
};

class PinnedPoolCore {
 public:
  explicit PinnedPoolCore(PinnedPoolOptions options) : options_(std::move(options)) {
    require_time_out("PinnedPoolOptions::timeout", options_.timeout);
    HostAllocation::require(options_.flags, options_.numa_node, options_.upstream);
    if (options_.max_bytes == 0) options_.max_bytes = usable_memory() / 2;
  }
  PinnedPoolCore(const PinnedPoolCore&) = delete;
  PinnedPoolCore& operator=(const PinnedPoolCore&) = delete;

  /// Waits until the device has stopped reading the released blocks, then frees them. Errors are
  /// ignored.
  ~PinnedPoolCore() {
    const CaptureModeGuard guard;
    for (const PinnedEntry* entry : in_flight_) cudaEventSynchronize(entry->event->get());
    for (const PinnedEntry* entry : lost_) wait_for_device(entry->user.device);
  }

  PinnedEntry* try_acquire(std::size_t bytes) { return checked(idle_.try_pop(rounded(bytes))); }

  /// Returns nullptr if stop was requested. Throws after the time-out, except with `ahead`.
  PinnedEntry* acquire(std::size_t bytes, const std::stop_token& stop, WaitAhead* ahead = nullptr) {
    if (PinnedEntry* entry = try_acquire(bytes)) return entry;
    return checked(acquire_slowly(rounded(bytes), stop, ahead));
  }

  void reserve(std::size_t count, std::size_t bytes) {
    bytes = rounded(bytes);
    {
      std::unique_lock lock(mutex_);
      if (!make_room(count, bytes, lock))
        throw exhausted(
            "cannot reserve " + std::to_string(count) +
                " blocks: the pool's cap is reached, with idle blocks of this size, blocks that a "
                "copy may still read, and other reservations; raise max_bytes",
            bytes);
      claimed_ += count * bytes;
    }
    for (; count > 0; --count) {
      try {
        const std::unique_ptr<PinnedEntry, ReleaseEntry> made(allocate(bytes));
        made->prepare(current_device());
      } catch (...) {
        give_up_claim((count - 1) * bytes);
        throw;
      }
    }
  }

  void release(PinnedEntry* entry) noexcept {
    if (!process_.is_this()) return;  // In a forked child, a lock may stay locked for ever.
    fill_with_poison(*entry);
    bool wakes = false;
    // The hook reads waiters_ under the shard's lock, so a thread that begins to wait later finds
    // the block. orphan() does not delete the core while wakers_ is not 0.
    const bool taken = idle_.push(entry, [&] {
      wakes = waiters_.any();
      if (wakes) wakers_.fetch_add(1, std::memory_order_relaxed);
    });
    if (!taken)
      forget(std::unique_lock(mutex_));
    else if (wakes)
      wake();
  }

  void release_after(PinnedEntry* entry, const ResolvedStream& stream) {
    try {
      entry->record(stream);
    } catch (...) {
      if (stream.wait_on_host())
        release(entry);
      else
        lose(entry, SavedError::current());
      throw;
    }
    std::unique_lock lock(mutex_);
    in_flight_.push_back(entry);  // allocate() has reserved the capacity.
    // A thread that polls finds the block itself. Therefore, while fewer than a quarter of the
    // blocks are in flight, threads are notified only if none polls. This makes a release cheaper.
    const bool few = 4 * in_flight_.size() < entries_.size();
    if (waiters_.any() && (!few || !has_poller_)) returned_.notify_all();
    if (orphaned_) forget(std::move(lock));
  }

  /// Marks the block as lost: it is never reused.
  void lose(PinnedEntry* entry, SavedError error) {
    if (!process_.is_this()) return;
    std::unique_lock lock(mutex_);
    lost_to_ = std::move(error);
    lost_.push_back(entry);
    returned_.notify_all();
    if (orphaned_) forget(std::move(lock));
  }

  /// Called when the pool is destroyed. Deletes the core now, or when the last block comes back.
  void orphan() {
    if (!process_.is_this()) return;
    idle_.close();
    while (wakers_.load(std::memory_order_acquire) != 0) cpu_relax();
    std::unique_lock lock(mutex_);
    orphaned_ = true;
    held_ += static_cast<std::ptrdiff_t>(entries_.size() - idle_.totals().blocks -
                                         in_flight_.size() - lost_.size());
    forget(std::move(lock));
  }

  const PinnedPoolOptions& options() const { return options_; }

  PinnedPoolStats stats() {
    const std::lock_guard lock(mutex_);
    const auto idle = idle_.totals();
    PinnedPoolStats stats{.blocks = entries_.size(),
                          .bytes = bytes_,
                          .max_bytes = options_.max_bytes,
                          .allocated = allocated_,
                          .reused = idle.hits,
                          .waits = waits_,
                          .waiting = waiting_};
    for (const PinnedEntry* entry : in_flight_) stats.bytes_in_flight += entry->bytes();
    stats.bytes_in_use = bytes_ - idle.bytes - stats.bytes_in_flight;
    return stats;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kGranule = 256;
  static constexpr std::chrono::microseconds kFirstPoll{20}, kLastPoll{200}, kLeastStep{1000};

  static std::size_t rounded(std::size_t bytes) {
    constexpr std::size_t kMost = ~(kGranule - 1);  // keeps rounding up from overflowing
    return std::max(kGranule, (std::min(bytes, kMost) + kGranule - 1) / kGranule * kGranule);
  }

  /// Whether all blocks are lost and none is being allocated.
  bool all_lost() const {
    return !entries_.empty() && lost_.size() == entries_.size() && claimed_ == 0;
  }

  bool fits_cap(std::size_t bytes) const { return bytes <= options_.max_bytes - bytes_ - claimed_; }

  PinnedEntry* acquire_slowly(std::size_t bytes, const std::stop_token& stop, WaitAhead* ahead) {
    if (bytes > options_.max_bytes)
      throw PoolExhausted(
          "a block is larger than the pool's cap: raise max_bytes or make batches smaller", bytes,
          0, options_.max_bytes);
    // This thread counts as a waiter before its first look, so a release between look and sleep
    // wakes it.
    const Callers::Call waiter(waiters_);
    const std::stop_callback on_stop(stop, [this] {
      const std::lock_guard lock(mutex_);
      returned_.notify_all();
    });
    const CaptureModeGuard guard;  // One guard serves all queries of the wait.
    std::unique_lock lock(mutex_);
    Poller poller(*this, lock);
    const auto begin = Clock::now();
    TimeOut left(options_.timeout);
    std::uint64_t held_up = 0;  // with `ahead`: its value when the time-out began
    bool waited = false;
    PinnedEntry* entry = nullptr;
    for (auto pause = kFirstPoll; !stop.stop_requested(); pause = std::min(2 * pause, kLastPoll)) {
      if ((entry = idle_.pop(bytes)) != nullptr) break;
      if (poller.polls() && poll_in_flight(lock, guard)) continue;
      if (fits_cap(bytes)) {
        claimed_ += bytes;
        lock.unlock();
        return allocate(bytes);
      }
      if (evict(bytes, bytes, lock)) continue;
      if (all_lost()) lost_to_.raise();
      if (ahead != nullptr) {
        const std::uint64_t before = std::exchange(held_up, ahead->held_up());
        if (held_up != before) left = TimeOut(options_.timeout);
      }
      if (left.over()) {
        if (ahead == nullptr) throw timed_out(bytes);
        if (held_up != 0) {
          // The exception is moved, so that no other thread holds a copy, which would share the
          // message.
          std::exception_ptr error = std::make_exception_ptr(timed_out(bytes));
          ahead->timed_out(held_up, std::move(error));
        }
        left = TimeOut(options_.timeout);
      }
      waited = true;
      // Only events need polling. The release of a block that the program holds notifies.
      auto step = left.next_step();
      if (ahead != nullptr) step = std::max(step, Clock::now() + kLeastStep);
      sleep(lock, poller.polls() ? std::min(step, Clock::now() + pause) : step);
    }
    if (waited) {
      ++waits_;
      waiting_ += Clock::now() - begin;
    }
    return entry;
  }

  /// Among the waiting threads, one polls the copies that are in flight and notifies the others, so
  /// the number of CUDA calls does not grow with the number of threads. Call all members with the
  /// lock held.
  class Poller {
   public:
    Poller(PinnedPoolCore& core, std::unique_lock<std::mutex>& lock) : core_(core), lock_(lock) {}
    /// Ends the polling of this thread. If no thread polls then, wakes one that can take over.
    ~Poller() {
      if (!lock_.owns_lock()) lock_.lock();
      if (mine_) core_.has_poller_ = false;
      if (!core_.has_poller_ && !core_.in_flight_.empty()) core_.returned_.notify_one();
    }
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;

    /// Whether this thread polls. Makes it the poller if there is none and a block is in flight. It
    /// becomes the poller before it queries without the lock; a change that it is not notified of
    /// meanwhile is seen after a short sleep.
    bool polls() {
      if (core_.has_poller_ && !mine_) return false;
      return mine_ = core_.has_poller_ = !core_.in_flight_.empty();
    }

   private:
    PinnedPoolCore& core_;
    std::unique_lock<std::mutex>& lock_;
    bool mine_ = false;
  };

  void sleep(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
    if (until == Clock::time_point::max())
      returned_.wait(lock);
    else
      returned_.wait_until(lock, until);
  }

  /// With PENSTOCK_CHECKS: fills a released block with `poison`, so that checked() can find later
  /// writes.
  void fill_with_poison(const PinnedEntry& entry) const noexcept {
    if (checks_) std::memset(entry.memory.data(), poison, entry.bytes());
  }
  PinnedEntry* checked(PinnedEntry* entry) {
    if (!checks_ || entry == nullptr) return entry;
    try {
      check_poison(entry->memory.data(), entry->bytes());
    } catch (...) {
      lose(entry, SavedError::current());
      throw;
    }
    return entry;
  }

  /// Makes the blocks idle whose copies are done. Returns true if there were any. One thread at a
  /// time queries the events, without the lock, since CUDA may be slow. Blocks are queried in the
  /// order of their release: after an unfinished copy, no later copy of the same stream is done.
  bool poll_in_flight(std::unique_lock<std::mutex>& lock, const CaptureModeGuard& guard) {
    if (polling_ || in_flight_.empty()) return false;
    asked_.assign(in_flight_.begin(), in_flight_.end());
    polling_ = true;  // From here on only this thread uses asked_.
    lock.unlock();
    ResolvedStream busy;
    for (PinnedEntry* entry : asked_) {
      if (entry->user != busy) entry->copy = query_twice(entry->event->get(), guard);
      if (entry->copy == cudaErrorNotReady) busy = entry->user;
    }
    lock.lock();
    polling_ = false;
    const auto reclaimed =
        std::erase_if(in_flight_, [this](PinnedEntry* entry) { return reclaim(*entry); });
    if (reclaimed != 0) returned_.notify_all();
    return reclaimed != 0;
  }

  /// Makes a block idle if its copy is done, and lost if its event could not be queried. Returns
  /// false if it is still in flight.
  bool reclaim(PinnedEntry& entry) {
    const cudaError_t status = std::exchange(entry.copy, cudaErrorNotReady);
    if (status == cudaErrorNotReady) return false;
    if (status == cudaSuccess) {
      fill_with_poison(entry);
      idle_.push(&entry, [] {});
    } else {
      lost_.push_back(&entry);
      lost_to_ = HostAllocation::lost_to(status);
    }
    return true;
  }

  /// Frees idle blocks of other sizes until `blocks` blocks of `bytes` bytes fit under the cap.
  /// Does not wait for blocks. Returns false if they do not fit.
  bool make_room(std::size_t blocks, std::size_t bytes, std::unique_lock<std::mutex>& lock) {
    if (blocks > options_.max_bytes / bytes) return false;
    const CaptureModeGuard guard;
    while (!fits_cap(blocks * bytes))
      if (!poll_in_flight(lock, guard) && !evict(blocks * bytes, bytes, lock)) return false;
    return true;
  }

  /// Frees idle blocks of other sizes than `bytes` until `room` bytes fit under the cap or no such
  /// block is left. Returns false if there was none; then the lock was held all the time. After
  /// true, look for a block again, since one may have been returned while the lock was released.
  bool evict(std::size_t room, std::size_t bytes, std::unique_lock<std::mutex>& lock) {
    std::vector<std::unique_ptr<PinnedEntry>> victims;
    while (!fits_cap(room)) {
      PinnedEntry* victim = idle_.pop_other(bytes);
      if (victim == nullptr) break;
      bytes_ -= victim->bytes();
      const auto owner = std::find_if(entries_.begin(), entries_.end(),
                                      [&](const auto& entry) { return entry.get() == victim; });
      victims.push_back(std::move(*owner));
      entries_.erase(owner);
    }
    if (victims.empty()) return false;
    lock.unlock();
    victims.clear();  // calls CUDA
    lock.lock();
    return true;
  }

  /// Allocates a block for the caller, which has claimed the bytes. Call it without the lock.
  PinnedEntry* allocate(std::size_t bytes) {
    try {
      auto entry = std::make_unique<PinnedEntry>(
          *this, HostAllocation(bytes, options_.flags, options_.numa_node, options_.upstream));
      fill_with_poison(*entry);
      const std::lock_guard lock(mutex_);
      const std::size_t blocks = entries_.size() + 1;
      for (auto* list : {&in_flight_, &lost_}) list->reserve(blocks);
      if (!polling_) asked_.reserve(blocks);  // otherwise poll_in_flight reserves, the next time
      idle_.reserve(blocks);
      entries_.push_back(std::move(entry));
      claimed_ -= bytes;
      bytes_ += bytes;
      ++allocated_;
      return entries_.back().get();
    } catch (...) {
      HostAllocation::throw_refusal(bytes, give_up_claim(bytes), options_.max_bytes);
    }
  }

  /// Returns the number of bytes that are allocated.
  std::size_t give_up_claim(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    claimed_ -= bytes;
    returned_.notify_all();
    return bytes_;
  }

  PoolExhausted exhausted(const std::string& why, std::size_t bytes) {
    return {why, bytes, bytes_ + claimed_ - idle_.totals().bytes, options_.max_bytes};
  }

  PoolExhausted timed_out(std::size_t bytes) {
    return exhausted("no block came back in " + std::to_string(options_.timeout.count()) + " ms, " +
                         std::to_string(in_flight_.size()) + " of " +
                         std::to_string(entries_.size()) +
                         " are still read by copies: release blocks earlier or raise max_bytes",
                     bytes);
  }

  /// Counts one holder less: the pool, or a block. Deletes the core after the last one.
  void forget(std::unique_lock<std::mutex> lock) noexcept {
    if (--held_ != 0 || !orphaned_) return;
    lock.unlock();
    delete this;
  }

  void wake() {
    {
      const std::lock_guard lock(mutex_);
      returned_.notify_all();  // Notifies all, since the block may be too small for the first
                               // thread that wakes.
    }
    wakers_.fetch_sub(1, std::memory_order_release);
  }

  const OwnerProcess process_;
  const bool checks_ = checks();
  PinnedPoolOptions options_;
  FreeBlocks<PinnedEntry> idle_;
  Callers waiters_;             // threads in acquire_slowly
  std::atomic<int> wakers_{0};  // threads that are in wake() or about to call it

  std::mutex mutex_;  // guards the members below; never held during a CUDA call
  std::condition_variable returned_;
  std::vector<std::unique_ptr<PinnedEntry>> entries_;
  std::vector<PinnedEntry*> in_flight_, asked_, lost_;
  SavedError lost_to_;       // the error of the block that was lost last
  std::size_t bytes_ = 0;    // bytes of the allocated blocks
  std::size_t claimed_ = 0;  // bytes that threads are allocating, or are about to allocate
  // After orphan(): the number of blocks that are held. Before: 1 for the pool, minus the blocks
  // that were returned since idle_.close().
  std::ptrdiff_t held_ = 1;
  std::uint64_t allocated_ = 0, waits_ = 0;
  std::chrono::nanoseconds waiting_{0};
  bool has_poller_ = false;  // whether one of the waiters polls
  bool polling_ = false, orphaned_ = false;
};

}  // namespace penstock::detail

namespace penstock::inline PENSTOCK_ABI {

PENSTOCK_INLINE void detail::ReleaseEntry::operator()(PinnedEntry* entry) const noexcept {
  if (!entry->refused) return entry->core.release(entry);
  entry->core.lose(
      entry, {cudaErrorStreamCaptureUnsupported,
              "a page-locked block is lost: it was destroyed after release_after had refused its "
              "stream, and a copy may still read it"});
}

PENSTOCK_INLINE std::byte* PinnedBlock::data() const noexcept {
  return entry_ == nullptr ? nullptr : entry_->memory.data();
}

PENSTOCK_INLINE PinnedBlock::PinnedBlock(detail::PinnedEntry* entry, std::size_t size)
    : entry_(entry) {
  if (entry == nullptr) return;
  // Mostly both have these values already. Without a write, the cache line stays shared with the
  // thread that returns blocks.
  if (entry->asked != size) entry->asked = size;
  if (entry->refused) entry->refused = false;
}

PENSTOCK_INLINE std::size_t PinnedBlock::size() const noexcept {
  return entry_ == nullptr ? 0 : entry_->asked;
}

PENSTOCK_INLINE void PinnedBlock::release_after_named(cudaStream_t stream) {
  if (entry_ == nullptr) return;
  entry_->refused = true;
  release_after(detail::resolve_usable(stream, "PinnedBlock::release_after"));
}

PENSTOCK_INLINE void PinnedBlock::release_after(const detail::ResolvedStream& stream) {
  if (detail::PinnedEntry* const entry = entry_.release()) entry->core.release_after(entry, stream);
}

PENSTOCK_INLINE void PinnedBlock::release_after_elsewhere(
    const detail::ResolvedStream& stream) noexcept {
  entry_->refused = true;
  try {
    stream.with_handle([&](cudaStream_t here) { release_after_named(here); });
  } catch (...) {  // The block is destroyed next and lost; the pool reports the error when all
                   // blocks are lost.
  }
}

PENSTOCK_INLINE void PinnedBlock::copy_to_named(void* device, std::size_t bytes,
                                                cudaStream_t stream) {
  if (bytes > size() || entry_ == nullptr)
    throw std::invalid_argument("PinnedBlock::copy_to: " + std::to_string(bytes) +
                                " bytes of a block of " + std::to_string(size()));
  const detail::ResolvedStream resolved = detail::resolve_usable(stream, "PinnedBlock::copy_to");
  detail::release_behind(
      [&] {
        detail::check(cudaMemcpyAsync(device, data(), bytes, cudaMemcpyHostToDevice, stream),
                      "cudaMemcpyAsync", bytes);
      },
      [&] { release_after(resolved); });
}

PENSTOCK_INLINE PinnedPool::PinnedPool(PinnedPoolOptions options)
    : core_(new detail::PinnedPoolCore(std::move(options))) {}
PENSTOCK_INLINE PinnedPool::~PinnedPool() {
  core_->orphan();
}

PENSTOCK_INLINE PinnedBlock PinnedPool::acquire(std::size_t bytes) {
  return acquire(bytes, std::stop_token{});
}
PENSTOCK_INLINE PinnedBlock PinnedPool::acquire(std::size_t bytes, const std::stop_token& stop) {
  return {core_->acquire(bytes, stop), bytes};
}
PENSTOCK_INLINE PinnedBlock PinnedPool::acquire(std::size_t bytes, const std::stop_token& stop,
                                                detail::WaitAhead& ahead) {
  return {core_->acquire(bytes, stop, &ahead), bytes};
}
PENSTOCK_INLINE PinnedBlock PinnedPool::try_acquire(std::size_t bytes) {
  return {core_->try_acquire(bytes), bytes};
}
PENSTOCK_INLINE void PinnedPool::reserve(std::size_t count, std::size_t bytes) {
  core_->reserve(count, bytes);
}
PENSTOCK_INLINE const PinnedPoolOptions& PinnedPool::options() const noexcept {
  return core_->options();
}
PENSTOCK_INLINE PinnedPoolStats PinnedPool::stats() const {
  return core_->stats();
}

}  // namespace penstock
