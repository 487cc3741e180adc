// SPDX-License-Identifier: Apache-2.0
#pragma once

// PinnedPoolCore: the inside of PinnedPool. Who owns what: the core owns every entry; an entry is
// in exactly one place: held by a PinnedBlock, idle, in flight (given back, its event not seen
// done), or lost (its event could not be recorded, or asked). The core lives until the pool is gone
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
#include <new>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/free_blocks.hpp>
#include <penstock/detail/memory/host_allocation.hpp>
#include <penstock/detail/memory/pinned_entry.hpp>
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

namespace penstock::detail {

class PinnedPoolCore {
 public:
  explicit PinnedPoolCore(PinnedPoolOptions options) : options_(std::move(options)) {
    require_time_out("PinnedPoolOptions::timeout", options_.timeout);
    HostAllocation::require(options_.flags, options_.numa_node, options_.upstream);
    if (options_.max_bytes == 0) options_.max_bytes = usable_memory() / 2;
  }
  PinnedPoolCore(const PinnedPoolCore&) = delete;
  PinnedPoolCore& operator=(const PinnedPoolCore&) = delete;

  /// The device may still read what was given back: wait, then free. Errors have nowhere to go.
  ~PinnedPoolCore() {
    const CaptureModeGuard guard;
    for (const PinnedEntry* entry : in_flight_) cudaEventSynchronize(entry->event->get());
    for (const PinnedEntry* entry : lost_) wait_for_device(entry->user.device);
  }

  PinnedEntry* try_acquire(std::size_t bytes) { return checked(idle_.try_pop(rounded(bytes))); }

  /// nullptr: stop was requested. With `ahead` nothing is thrown after the time-out.
  PinnedEntry* acquire(std::size_t bytes, const std::stop_token& stop, WaitAhead* ahead = nullptr) {
    if (PinnedEntry* entry = try_acquire(bytes)) return entry;
    return checked(acquire_slowly(rounded(bytes), stop, ahead));
  }

  void reserve(std::size_t count, std::size_t bytes) {
    bytes = rounded(bytes);
    std::unique_lock lock(mutex_);
    if (!make_room(count, bytes, lock))
      throw exhausted(
          "cannot reserve " + std::to_string(count) +
              " blocks: the pool's cap is reached, with idle blocks of this size, blocks that a "
              "copy may still read, and other reservations; raise max_bytes",
          bytes);
    if (!polling_) asked_.reserve(entries_.size() + count);
    promised_ += count * bytes;
    PinnedEntry* made = nullptr;
    try {
      for (; count > 0; lock.lock()) {
        --count;
        promised_ -= bytes;
        made = grow(bytes, lock);
        lock.unlock();
        made->prepare(current_device());
        release(std::exchange(made, nullptr));
      }
    } catch (...) {  // Threads that wait for the room wake behind this, by grow() or by release().
      if (!lock.owns_lock()) lock.lock();
      promised_ -= count * bytes;
      lock.unlock();
      if (made != nullptr) release(made);
      throw;
    }
  }

  void release(PinnedEntry* entry) noexcept {
    if (checks_ && process_.is_this()) mark_released(*entry);  // A child would write the parent's.
    bool wakes = false;
    // Reads waiters_ under the shard's lock: a thread that begins to wait later finds the block.
    // orphan() does not delete the core while wakers_ is not 0.
    const bool taken = idle_.push(
        entry,
        [&] {
          wakes = waiters_.any();
          if (wakes) wakers_.fetch_add(1, std::memory_order_relaxed);
        },
        [&] { return !process_.is_this(); });
    if (!taken) return drop_orphan();
    // A forked child has no threads to wake, and maybe a lock that nobody will ever open.
    if (wakes && process_.is_this()) wake();
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
    put_in_flight(in_flight_, entry);
  }

  /// Never hands the block out again.
  void lose(PinnedEntry* entry, SavedError error) {
    if (!process_.is_this()) return;
    {
      const std::lock_guard lock(mutex_);
      lost_to_ = std::move(error);
    }
    put_in_flight(lost_, entry);
  }

  /// The pool is gone: delete now, or when the last block comes back.
  void orphan() {
    if (!process_.is_this()) return;
    const std::size_t idle = idle_.close();
    while (wakers_.load(std::memory_order_acquire) != 0) cpu_relax();
    std::unique_lock lock(mutex_);
    orphaned_ = true;
    held_ += static_cast<std::ptrdiff_t>(entries_.size() - idle - in_flight_.size() - lost_.size());
    delete_if_forgotten(lock);
  }

  const PinnedPoolOptions& options() const { return options_; }

  PinnedPoolStats stats() {
    const std::lock_guard lock(mutex_);
    PinnedPoolStats stats{.blocks = entries_.size(),
                          .bytes = bytes_,
                          .max_bytes = options_.max_bytes,
                          .allocated = allocated_,
                          .reused = idle_.hits(),
                          .waits = waits_,
                          .waiting = waiting_};
    for (const PinnedEntry* entry : in_flight_) stats.bytes_in_flight += entry->bytes();
    stats.bytes_in_use = bytes_ - idle_.bytes() - stats.bytes_in_flight;
    return stats;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kGranule = 256;
  static constexpr std::chrono::microseconds kFirstPoll{20}, kLastPoll{200}, kLeastStep{1000};

  static std::size_t rounded(std::size_t bytes) {
    constexpr std::size_t kMost = ~(kGranule - 1);  // Rounding up does not overflow.
    return std::max(kGranule, (std::min(bytes, kMost) + kGranule - 1) / kGranule * kGranule);
  }

  /// No block is left, and none is being allocated.
  bool all_lost() const {
    return !entries_.empty() && lost_.size() == entries_.size() && promised_ + growing_ == 0;
  }

  bool fits_cap(std::size_t bytes) const {
    return bytes <= options_.max_bytes - bytes_ - promised_;
  }

  PinnedEntry* acquire_slowly(std::size_t bytes, const std::stop_token& stop, WaitAhead* ahead) {
    if (bytes > options_.max_bytes)
      throw PoolExhausted(
          "a block is larger than the pool's cap: raise max_bytes or make batches smaller", bytes,
          0, options_.max_bytes);
    // Announced before the first look: a release between look and sleep then wakes this thread.
    const Callers::Call waiter(waiters_);
    const std::stop_callback on_stop(stop, [this] {
      const std::lock_guard lock(mutex_);
      returned_.notify_all();
    });
    const CaptureModeGuard guard;  // Once for the wait, not for each query.
    std::unique_lock lock(mutex_);
    Poller poller(*this);
    const auto begin = Clock::now();
    TimeOut left(options_.timeout);
    std::uint64_t held_up = 0;  // as it was when the time-out began, with `ahead`
    bool waited = false;
    PinnedEntry* entry = nullptr;
    for (auto pause = kFirstPoll; !stop.stop_requested(); pause = std::min(2 * pause, kLastPoll)) {
      if ((entry = idle_.pop(bytes)) != nullptr) break;
      if (poller.polls() && poll_in_flight(lock, guard)) continue;
      if (fits_cap(bytes)) return grow(bytes, lock);
      if (evict(bytes, bytes, lock)) continue;
      if (all_lost()) lost_to_.raise();
      if (ahead != nullptr) {
        const std::uint64_t before = std::exchange(held_up, ahead->held_up());
        if (held_up != before) left = TimeOut(options_.timeout);
      }
      if (left.over()) {
        if (ahead == nullptr) throw timed_out(bytes);
        if (held_up != 0) {
          // Handed on alone: then no other thread holds a copy, which would share the message.
          std::exception_ptr error = std::make_exception_ptr(timed_out(bytes));
          ahead->timed_out(held_up, std::move(error));
        }
        left = TimeOut(options_.timeout);
      }
      waited = true;
      // Only events need polling; blocks that the program holds come back with a notification.
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

  /// Of the threads that wait, one polls the copies that are in flight; it notifies the others. So
  /// the calls of CUDA do not grow with the number of threads. All with the lock.
  class Poller {
   public:
    explicit Poller(PinnedPoolCore& core) : core_(core) {}
    /// Leaves it to another one, which a thread that polls no more, or was woken to do so, wakes.
    ~Poller() {
      if (mine_) core_.has_poller_ = false;
      if (!core_.has_poller_ && !core_.in_flight_.empty()) core_.returned_.notify_one();
    }
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;

    /// Whether this thread is the one. It becomes it before it asks without the lock: what it is
    /// not told meanwhile it sees after a short sleep.
    bool polls() {
      if (core_.has_poller_ && !mine_) return false;
      return mine_ = core_.has_poller_ = !core_.in_flight_.empty();
    }

   private:
    PinnedPoolCore& core_;
    bool mine_ = false;
  };

  void sleep(std::unique_lock<std::mutex>& lock, Clock::time_point until) {
    if (until == Clock::time_point::max())
      returned_.wait(lock);
    else
      returned_.wait_until(lock, until);
  }

  /// With PENSTOCK_CHECKS, nobody may write a block between its release and its next owner.
  void mark_released(const PinnedEntry& entry) const noexcept {
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

  /// Moves blocks whose copies are done to the idle ones; true if there were any. One thread at a
  /// time asks, without the lock: CUDA may take its time.
  bool poll_in_flight(std::unique_lock<std::mutex>& lock, const CaptureModeGuard& guard) {
    if (polling_ || in_flight_.empty()) return false;
    asked_.assign(in_flight_.begin(), in_flight_.end());
    polling_ = true;  // From here on asked_ is this thread's, lock or no lock.
    lock.unlock();
    const auto landed = partition_done(guard);
    lock.lock();
    polling_ = false;
    const bool any = landed != asked_.end();
    for (auto entry = landed; entry != asked_.end(); ++entry) {
      in_flight_.erase(std::find(in_flight_.begin(), in_flight_.end(), *entry));
      reclaim(**entry);
    }
    if (any) returned_.notify_all();
    return any;
  }

  /// Puts the blocks of asked_ whose copies are done behind the others; returns the first of them.
  /// They are in the order of their release: behind an unfinished copy, no other one of the same
  /// stream is queried.
  std::vector<PinnedEntry*>::iterator partition_done(const CaptureModeGuard& guard) noexcept {
    ResolvedStream busy;
    auto in_flight = asked_.begin();
    for (PinnedEntry*& entry : asked_) {
      if (entry->user != busy && entry->copy_done(guard)) continue;
      busy = entry->user;
      std::swap(entry, *in_flight++);
    }
    return in_flight;
  }

  void reclaim(PinnedEntry& entry) {
    if (entry.failure == cudaSuccess) {
      mark_released(entry);
      idle_.push(&entry, [] {});
      return;
    }
    lost_.push_back(&entry);
    lost_to_ = {entry.failure, std::string("cudaEventQuery failed: ") +
                                   cudaGetErrorString(entry.failure) +
                                   "; the page-locked block is lost, a copy may still read it"};
  }

  /// Frees idle blocks of other sizes until `blocks` blocks of `bytes` bytes fit under the cap. It
  /// waits for none. False: they do not fit.
  bool make_room(std::size_t blocks, std::size_t bytes, std::unique_lock<std::mutex>& lock) {
    if (blocks > options_.max_bytes / bytes) return false;
    const CaptureModeGuard guard;
    while (!fits_cap(blocks * bytes))
      if (!poll_in_flight(lock, guard) && !evict(blocks * bytes, bytes, lock)) return false;
    return true;
  }

  /// Frees idle blocks of other sizes than `bytes` until `room` bytes fit under the cap, or none is
  /// left. False: there was none, and the lock was held all the time. After true, look for a block
  /// again: one may have been returned while the lock was open.
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
    victims.clear();  // Calls CUDA.
    lock.lock();
    return true;
  }

  /// A new block, for the caller. Called with room under the cap; allocates without the lock.
  PinnedEntry* grow(std::size_t bytes, std::unique_lock<std::mutex>& lock) {
    bytes_ += bytes;
    ++growing_;
    lock.unlock();
    try {
      auto entry = std::make_unique<PinnedEntry>(
          HostAllocation(bytes, options_.flags, options_.numa_node, options_.upstream));
      lock.lock();
      --growing_;
      entries_.push_back(std::move(entry));
    } catch (...) {
      if (!lock.owns_lock()) {
        lock.lock();
        --growing_;
      }
      bytes_ -= bytes;
      returned_.notify_all();
      HostAllocation::throw_refusal(bytes, bytes_, options_.max_bytes);
    }
    ++allocated_;
    mark_released(*entries_.back());
    for (auto* list : {&in_flight_, &lost_}) list->reserve(entries_.size());
    if (!polling_) asked_.reserve(entries_.size());  // Else poll_in_flight does, the next time.
    idle_.reserve(entries_.size());
    return entries_.back().get();
  }

  PoolExhausted exhausted(const std::string& why, std::size_t bytes) {
    return {why, bytes, bytes_ - idle_.bytes(), options_.max_bytes};
  }

  PoolExhausted timed_out(std::size_t bytes) {
    return exhausted("no block came back in " + std::to_string(options_.timeout.count()) + " ms, " +
                         std::to_string(in_flight_.size()) + " of " +
                         std::to_string(entries_.size()) +
                         " are still read by copies: release blocks earlier or raise max_bytes",
                     bytes);
  }

  void put_in_flight(std::vector<PinnedEntry*>& list, PinnedEntry* entry) {
    std::unique_lock lock(mutex_);
    list.push_back(entry);  // Within the capacity that grow() reserved.
    // A thread that polls finds the block itself. So while fewer than a quarter of the blocks are
    // in flight, threads are notified only where none polls: a release costs less.
    const bool few = &list == &in_flight_ && 4 * list.size() < entries_.size();
    if (waiters_.any() && (!few || !has_poller_)) returned_.notify_all();
    if (!orphaned_) return;
    --held_;
    delete_if_forgotten(lock);
  }

  /// A block came back after the pool was gone.
  void drop_orphan() noexcept {
    if (!process_.is_this()) return;
    std::unique_lock lock(mutex_);
    --held_;
    delete_if_forgotten(lock);
  }

  void delete_if_forgotten(std::unique_lock<std::mutex>& lock) {
    if (!orphaned_ || held_ != 0) return;
    lock.unlock();
    delete this;
  }

  void wake() {
    {
      const std::lock_guard lock(mutex_);
      returned_.notify_all();  // Not one: the block may be too small for the one that wakes.
    }
    wakers_.fetch_sub(1, std::memory_order_release);
  }

  const OwnerProcess process_;
  const bool checks_ = checks();
  PinnedPoolOptions options_;
  FreeBlocks<PinnedEntry> idle_;
  Callers waiters_;             // threads in acquire_slowly
  std::atomic<int> wakers_{0};  // threads in wake, or about to be

  std::mutex mutex_;  // Guards all that follows. Never held across a call of CUDA's.
  std::condition_variable returned_;
  std::vector<std::unique_ptr<PinnedEntry>> entries_;
  std::vector<PinnedEntry*> in_flight_, asked_, lost_;
  SavedError lost_to_;        // the last of them
  std::size_t bytes_ = 0;     // of the blocks that are allocated
  std::size_t promised_ = 0;  // of those that reserve() has yet to allocate
  // After orphan(): blocks that are held. Before: minus the blocks returned since idle_.close().
  std::ptrdiff_t held_ = 0;
  std::size_t growing_ = 0;  // threads that allocate a block
  std::uint64_t allocated_ = 0, waits_ = 0;
  std::chrono::nanoseconds waiting_{0};
  bool has_poller_ = false;  // of the waiters
  bool polling_ = false, orphaned_ = false;
};

}  // namespace penstock::detail
