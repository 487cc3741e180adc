// SPDX-License-Identifier: Apache-2.0
#pragma once

// HostBlocks: a fixed set of page-locked blocks of one size, from which batches are copied on one
// stream. A worker acquires a block, and the thread that stages queues its copy. The block becomes
// free again when a query of CUDA shows that the copy is done; blocks become free in the order of
// their copies. Among the workers that wait for a block, one queries CUDA and the others sleep.
//
// Each block is in exactly one state: free, held by a worker or a batch, being copied from, or lost
// (the end of its copy cannot be found out).

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <penstock/cuda.hpp>
#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/host_allocation.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/detail/sync/index_stack.hpp>
#include <penstock/error.hpp>
#include <penstock/pinned_pool.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

class HostBlocks {
 public:
  static constexpr std::uint32_t kNone = IndexStack::kNone;

  struct Block {
    HostBlocks& owner;
    std::uint32_t index;
    HostAllocation memory;
    Event copied;  // recorded after the block's last copy
  };
  struct Release {
    void operator()(Block* block) const noexcept { block->owner.release(block->index); }
  };
  using Owned = std::unique_ptr<Block, Release>;

  /// Uses the flags, the NUMA node and the upstream of `options`, and the current device. Does not
  /// allocate blocks yet.
  HostBlocks(std::size_t count, std::size_t bytes, const PinnedPoolOptions& options)
      : count_(count),
        bytes_(bytes),
        options_(options),
        device_(current_device()),
        blocks_(std::make_unique<std::optional<Block>[]>(count)),
        copying_(std::make_unique<std::uint32_t[]>(count)),
        free_(count) {
    HostAllocation::require(options.flags, options.numa_node, options.upstream);
  }
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;

  /// Waits until the device has stopped reading the blocks, then frees them. No other thread may
  /// use the object.
  ~HostBlocks() {
    const CaptureModeGuard guard;
    for (std::uint64_t copy = polled(); copy != issued_.load(std::memory_order_relaxed); ++copy)
      cudaEventSynchronize(blocks_[copying_[copy % count_]]->copied.get());
    if (lost_.load(std::memory_order_relaxed) != 0) wait_for_device(device_);
  }

  /// Allocates the blocks and their events. The device must be current. Calls `after_first` after
  /// the first block: workers may start then, and wait for the other blocks. Throws PoolExhausted
  /// if the system refuses memory.
  template <class AfterFirst>
  void allocate(AfterFirst after_first) {
    for (std::size_t i = 0; i < count_; ++i) {
      add_block(static_cast<std::uint32_t>(i));
      if (i == 0) after_first();
    }
  }

  std::size_t count() const noexcept { return count_; }
  /// The size of a block in bytes.
  std::size_t bytes() const noexcept { return bytes_; }
  /// The bytes of all blocks that are allocated. Any thread may call this.
  std::size_t allocated_bytes() const noexcept {
    return allocated_.load(std::memory_order_relaxed) * bytes_;
  }
  std::byte* data(std::uint32_t block) const noexcept { return blocks_[block]->memory.data(); }

  /// Returns an owner that releases the block when it is destroyed; empty for kNone.
  Owned own(std::uint32_t block) const noexcept {
    return Owned(block == kNone ? nullptr : &*blocks_[block]);
  }

  // ---- Called by workers, in relaxed capture mode

  /// Returns a block that is free now, or kNone. Does not call CUDA. With PENSTOCK_CHECKS it throws
  /// std::logic_error if the block was written after its release.
  std::uint32_t try_acquire() { return checked(free_.pop()); }

  /// Like try_acquire, but waits for a block. Returns kNone if `stopped()` is true; call wake()
  /// when that changes. Throws CudaError if all blocks are lost. `guard` shows that the capture
  /// mode is relaxed.
  template <class Stopped>
  std::uint32_t acquire(const CaptureModeGuard& guard, Stopped stopped) {
    while (true) {
      std::uint32_t block = kNone;
      bool polls = false;
      changed_.wait([&] {
        return (block = free_.pop()) != kNone || stopped() || all_lost() ||
               (polls = begin_polling());
      });
      if (polls) block = poll_for_block(guard, stopped);
      if (block != kNone) return checked(block);
      if (stopped()) return kNone;
      if (all_lost()) raise_lost();
    }
  }

  /// Makes a block free that no copy reads. Any thread may call this.
  void release(std::uint32_t block) noexcept {
    if (checks_) std::memset(data(block), poison, bytes_);
    free_.push(block);
    changed_.notify_one();
  }

  /// Makes waiting threads call `stopped` again.
  void wake() noexcept { changed_.notify_all(); }

  // ---- Called by the thread that stages, one at a time

  /// Calls `queue`, which queues copies of the block on `stream`. The block becomes free after the
  /// copies, also if `queue` throws, since some copies may be queued then. Returns the number of
  /// the copy, from 1. Call it on the thread that has resolved the stream, which must belong to the
  /// blocks' device.
  template <class Queue>
  std::uint64_t copy(std::uint32_t block, const ResolvedStream& stream, Queue queue) {
    return release_behind(queue, [&] { return release_after(block, stream); });
  }

  // ---- Called by any thread

  /// Returns true if the copy with this number is known to be done. False: it may be done or not.
  bool is_done(std::uint64_t copy) const noexcept {
    return seen_.load(std::memory_order_acquire) >= copy;
  }

 private:
  static constexpr std::chrono::microseconds kFirstPoll{20}, kLastPoll{200};

  void add_block(std::uint32_t block) {
    HostAllocation memory = [this] {
      try {
        return HostAllocation(bytes_, options_.flags, options_.numa_node, options_.upstream);
      } catch (...) {
        HostAllocation::throw_refusal(bytes_, allocated_bytes(), count_ * bytes_);
      }
    }();
    const CaptureModeGuard guard;
    blocks_[block].emplace(Block{*this, block, std::move(memory), Event()});
    allocated_.fetch_add(1, std::memory_order_relaxed);
    release(block);
  }

  std::uint32_t checked(std::uint32_t block) {
    if (!checks_ || block == kNone) return block;
    try {
      check_poison(data(block), bytes_);
    } catch (...) {
      lose(SavedError::current());
      throw;
    }
    return block;
  }

  // ---- Copies

  std::uint64_t release_after(std::uint32_t block, const ResolvedStream& stream) {
    try {
      blocks_[block]->copied.record(stream.handle);
    } catch (...) {
      if (stream.wait_on_host())
        release(block);
      else
        lose(SavedError::current());
      throw;
    }
    const std::uint64_t issued = issued_.load(std::memory_order_relaxed);
    copying_[issued % count_] = block;
    issued_.store(issued + 1, std::memory_order_release);
    changed_.notify_one();  // if no thread polls, a waiting one must begin
    return issued + 1;
  }

  /// Returns true if there are copies to query and no other thread does so; then this thread must
  /// poll.
  bool begin_polling() noexcept {
    return polled() != issued_.load(std::memory_order_relaxed) &&
           !polling_.load(std::memory_order_relaxed) &&
           !polling_.exchange(true, std::memory_order_acquire);
  }
  void end_polling() noexcept {
    polling_.store(false, std::memory_order_release);
    changed_.notify_one();  // another thread may have to continue
  }

  template <class Stopped>
  std::uint32_t poll_for_block(const CaptureModeGuard& guard, Stopped stopped) {
    std::uint32_t block = kNone;
    auto pause = kFirstPoll;
    while (!poll(guard) && polled() != issued_.load(std::memory_order_relaxed)) {
      const auto until = EventCount::Clock::now() + pause;
      if (changed_.wait_until(until, [&] { return (block = free_.pop()) != kNone || stopped(); }))
        break;
      pause = std::min(2 * pause, kLastPoll);
    }
    end_polling();
    return block;
  }

  /// Makes the blocks free whose copies are done, the oldest first. Returns false if there were
  /// none.
  bool poll(const CaptureModeGuard& guard) {
    const std::uint64_t first = polled();
    std::uint64_t copy = first;
    for (; copy != issued_.load(std::memory_order_acquire); ++copy) {
      const std::uint32_t block = copying_[copy % count_];
      const cudaError_t status = query_twice(blocks_[block]->copied.get(), guard);
      if (status == cudaErrorNotReady) break;
      polled_.store(copy + 1, std::memory_order_relaxed);
      if (status == cudaSuccess) {
        if (lost_copies_ == 0) seen_.store(copy + 1, std::memory_order_release);
        release(block);
      } else {
        ++lost_copies_;  // From now on, it is unknown whether all copies up to a number are done.
        lose(HostAllocation::lost_to(status));
      }
    }
    return copy != first;
  }
  std::uint64_t polled() const noexcept { return polled_.load(std::memory_order_relaxed); }

  // ---- Lost blocks

  /// Counts a block as lost: it is never reused.
  void lose(SavedError error) {
    {
      const std::lock_guard lock(mutex_);
      lost_to_ = std::move(error);
    }
    lost_.fetch_add(1, std::memory_order_relaxed);
    changed_.notify_all();
  }
  bool all_lost() const noexcept { return lost_.load(std::memory_order_relaxed) == count_; }
  [[noreturn]] void raise_lost() {
    const std::lock_guard lock(mutex_);
    lost_to_.raise();
  }

  const std::size_t count_, bytes_;
  const PinnedPoolOptions options_;
  const bool checks_ = checks();
  const int device_;
  const std::unique_ptr<std::optional<Block>[]> blocks_;
  std::atomic<std::size_t> allocated_{0};

  // A ring of the blocks that are being copied from, by the number of the copy. It has as many
  // elements as there are blocks, so when an element is overwritten, its earlier block has become
  // free.
  const std::unique_ptr<std::uint32_t[]> copying_;
  alignas(64) std::atomic<std::uint64_t> issued_{0};  // copies that were queued; written by the
                                                      // thread that stages
  alignas(64) std::atomic<bool> polling_{false};      // guards the next three members, which only
                                                      // the polling thread writes
  std::uint64_t lost_copies_ = 0;
  std::atomic<std::uint64_t> polled_{0};  // copies that were found done or lost
  std::atomic<std::uint64_t> seen_{0};    // all copies up to this number are done

  IndexStack free_;
  EventCount changed_;

  std::mutex mutex_;
  SavedError lost_to_;                // the error of the block that was lost last
  std::atomic<std::size_t> lost_{0};  // number of lost blocks
};

using HostBlock = HostBlocks::Owned;

}  // namespace penstock::detail
