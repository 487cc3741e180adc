// SPDX-License-Identifier: Apache-2.0
#pragma once

// HostBlocks: a fixed set of page-locked blocks of one size, from which batches are copied on one
// stream. A worker acquires a block; the thread that stages queues its copy, and the block comes
// back behind that: in the order of the copies, when somebody has asked CUDA. Of the workers that
// wait for a block, one asks, and the others sleep.
//
// Each block is in one place: free, with a worker or a batch, being copied from, or lost (nobody
// can tell when its copy is done).

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

namespace penstock::detail {

class HostBlocks {
 public:
  static constexpr std::uint32_t kNone = IndexStack::kNone;

  struct Block {
    HostBlocks& owner;
    std::uint32_t index;
    HostAllocation memory;
    Event copied;  // recorded behind the block's last copy
  };
  struct Release {
    void operator()(Block* block) const noexcept { block->owner.release(block->index); }
  };
  using Owned = std::unique_ptr<Block, Release>;

  /// Takes the flags, the NUMA node and the upstream of `options`, and is for the current device.
  /// Allocates no block yet.
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

  /// No thread may use it. The device may still read the blocks: waits, then frees them.
  ~HostBlocks() {
    const CaptureModeGuard guard;
    for (std::uint64_t copy = polled(); copy != issued_.load(std::memory_order_relaxed); ++copy)
      cudaEventSynchronize(blocks_[copying_[copy % count_]]->copied.get());
    if (lost_.load(std::memory_order_relaxed) != 0) wait_for_device(device_);
  }

  /// Allocates the blocks and their events, with the device current. `after_first` is called when
  /// the first one is there: workers may start, and wait for the others. Throws PoolExhausted where
  /// the system refuses memory.
  template <class AfterFirst>
  void allocate(AfterFirst after_first) {
    for (std::size_t i = 0; i < count_; ++i) {
      add_block(static_cast<std::uint32_t>(i));
      if (i == 0) after_first();
    }
  }

  std::size_t count() const noexcept { return count_; }
  /// The size of a block.
  std::size_t bytes() const noexcept { return bytes_; }
  /// The size of all blocks that are allocated. Any thread may ask.
  std::size_t allocated_bytes() const noexcept {
    return allocated_.load(std::memory_order_relaxed) * bytes_;
  }
  std::byte* data(std::uint32_t block) const noexcept { return blocks_[block]->memory.data(); }

  /// A block that is given back unless it is copied; empty for kNone.
  Owned own(std::uint32_t block) const noexcept {
    return Owned(block == kNone ? nullptr : &*blocks_[block]);
  }

  // ---- For workers, in relaxed capture mode

  /// A block that is free now, or kNone. Asks CUDA nothing. With PENSTOCK_CHECKS it throws
  /// std::logic_error if the block was written after its release.
  std::uint32_t try_acquire() { return checked(free_.pop()); }

  /// The same, waiting for one. kNone: `stopped()` is true, which wake() follows. Throws CudaError
  /// where all blocks are lost. `guard`: of the capture mode.
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

  /// Gives back a block that no copy reads. Any thread.
  void release(std::uint32_t block) noexcept {
    if (checks_) std::memset(data(block), poison, bytes_);
    free_.push(block);
    changed_.notify_one();
  }

  /// Whoever waits asks again whether it is stopped.
  void wake() noexcept { changed_.notify_all(); }

  // ---- For the thread that stages: one at a time

  /// Calls `queue`, which queues copies of the block on `stream`; the block comes back behind them,
  /// also if it throws, since some of them may be queued. Returns the number of the copy, from 1.
  /// Call it on the thread that has resolved the stream, of the blocks' device.
  template <class Queue>
  std::uint64_t copy(std::uint32_t block, const ResolvedStream& stream, Queue queue) {
    return release_behind(queue, [&] { return release_after(block, stream); });
  }

  // ---- On any thread

  /// Somebody has seen that this copy, of copy(), is done. False says nothing.
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
    changed_.notify_one();  // If nobody polls, one of those that wait has to.
    return issued + 1;
  }

  /// There are copies to ask about, and this thread is the one that does.
  bool begin_polling() noexcept {
    return polled() != issued_.load(std::memory_order_relaxed) &&
           !polling_.load(std::memory_order_relaxed) &&
           !polling_.exchange(true, std::memory_order_acquire);
  }
  void end_polling() noexcept {
    polling_.store(false, std::memory_order_release);
    changed_.notify_one();  // Another one may have to go on.
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

  /// Gives back the blocks whose copies are done, the oldest first. False: there were none.
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
        ++lost_copies_;  // From here on nobody can say that all copies up to a number are done.
        lose(HostAllocation::lost_to(status));
      }
    }
    return copy != first;
  }
  std::uint64_t polled() const noexcept { return polled_.load(std::memory_order_relaxed); }

  // ---- Lost blocks

  /// Never hands a block out again.
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

  // Copies have numbers, and are in a ring of as many places as there are blocks. So when a place
  // is written, the block that was there has come back.
  const std::unique_ptr<std::uint32_t[]> copying_;
  alignas(64) std::atomic<std::uint64_t> issued_{0};  // by the thread that stages
  alignas(64) std::atomic<bool> polling_{false};      // What follows is that thread's.
  std::uint64_t lost_copies_ = 0;
  std::atomic<std::uint64_t> polled_{0};  // so many were done, or are lost
  std::atomic<std::uint64_t> seen_{0};    // All copies up to this one are done.

  IndexStack free_;
  EventCount changed_;

  std::mutex mutex_;
  SavedError lost_to_;                // the last one
  std::atomic<std::size_t> lost_{0};  // blocks
};

using HostBlock = HostBlocks::Owned;

}  // namespace penstock::detail
