// SPDX-License-Identifier: Apache-2.0
#pragma once

// IdleBlocks: the free list of a pool, split into shards so that threads do not meet. A thread
// takes blocks from the shard that its own identity picks, and looks at the others only when that
// has none; a block goes back to the shard of the thread that took it last, whoever gives it back.
// So a worker that fills blocks and a consumer that returns them meet in one place, and nobody else
// is there.

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/event_count.hpp>
#include <thread>

namespace penstock::detail {

template <class Block>
class IdleBlocks;

/// What a block derives from: its place in the list.
template <class Block>
class IdleLink {
  friend class IdleBlocks<Block>;
  Block* next_ = nullptr;  // while the block is idle
  std::size_t shard_ = 0;  // where the block goes when it comes back
};

/// `Block` derives from IdleLink<Block> and has `std::size_t bytes() const`. Nothing here allocates
/// or throws.
template <class Block>
class IdleBlocks {
 public:
  /// Takes a block of at least `bytes` that wastes at most an eighth of it; nullptr: a quick look
  /// found none. Passes over shards that other threads are busy with.
  Block* try_pop(std::size_t bytes) {
    return pop_where([](Shard& shard) { return !shard.looks_empty() && shard.try_lock(); }, bytes);
  }

  /// As try_pop, but passes over nothing. Of this look and a push to the same shard, one comes
  /// first: either the look finds the block, or the push's hook sees all that this thread wrote
  /// before the look.
  Block* pop(std::size_t bytes) {
    return pop_where([](Shard& shard) { return shard.lock(), true; }, bytes);
  }

  /// Takes whatever there is.
  Block* pop_any() {
    Block* block = nullptr;
    for_each_shard([&](Shard& shard) {
      if (block == nullptr) block = shard.take([](const Block&) { return true; });
    });
    return block;
  }

  /// Gives `block` back; false, and not taken, once the list is closed. `before_unlock` runs while
  /// the block is here and nobody can take it.
  template <class Hook>
  bool push(Block* block, Hook before_unlock) {
    std::size_t i = block->shard_;
    while (!shards_[i].try_lock()) i = (i + 1) % kShards;
    Shard& shard = shards_[i];
    const bool open = !shard.closed;
    if (open) {
      block->next_ = shard.first();
      shard.head.store(block, std::memory_order_relaxed);
      before_unlock();
    }
    shard.unlock();
    return open;
  }

  /// Refuses every later push, and returns how many blocks are here.
  std::size_t close() {
    for_each_shard([](Shard& shard) { shard.closed = true; });
    return count();
  }

  std::size_t count() {
    std::size_t blocks = 0;
    for_each_block([&](const Block&) { ++blocks; });
    return blocks;
  }

  std::size_t bytes() {
    std::size_t sum = 0;
    for_each_block([&](const Block& block) { sum += block.bytes(); });
    return sum;
  }

  /// How often a block was found that fits.
  std::uint64_t hits() {
    std::uint64_t sum = 0;
    for_each_shard([&](const Shard& shard) { sum += shard.hits; });
    return sum;
  }

 private:
  static constexpr std::size_t kShards = 16;

  struct alignas(64) Shard {
    /// Patient for about as long as another thread needs to push or pop, if it runs.
    bool try_lock() {
      constexpr int kSpins = 32;
      for (int spin = 0; spin < kSpins; ++spin) {
        if (!locked.load(std::memory_order_relaxed) &&
            !locked.exchange(true, std::memory_order_acquire))
          return true;
        cpu_relax();
      }
      return false;
    }
    void lock() {
      while (!try_lock()) std::this_thread::yield();  // Its owner may wait for this processor.
    }
    void unlock() { locked.store(false, std::memory_order_release); }

    Block* first() const { return head.load(std::memory_order_relaxed); }
    /// A hint, without the lock.
    bool looks_empty() const { return first() == nullptr; }

    /// Unlinks the newest block that fits: its memory is the likeliest to be in a near cache.
    template <class Fits>
    Block* take(Fits fits) {
      Block* previous = nullptr;
      for (Block* block = first(); block != nullptr; previous = block, block = block->next_) {
        if (!fits(*block)) continue;
        if (previous == nullptr)
          head.store(block->next_, std::memory_order_relaxed);
        else
          previous->next_ = block->next_;
        return block;
      }
      return nullptr;
    }

    std::atomic<bool> locked{false};
    bool closed = false;
    std::atomic<Block*> head{nullptr};  // written under the lock
    std::uint64_t hits = 0;
  };

  /// Looks at every shard that `lock` locks, this thread's own first.
  template <class Lock>
  Block* pop_where(Lock lock, std::size_t bytes) {
    const std::size_t home = home_shard();
    for (std::size_t i = 0; i < kShards; ++i) {
      Shard& shard = shards_[(home + i) % kShards];
      if (!lock(shard)) continue;
      Block* const block = shard.take([bytes](const Block& candidate) {
        return candidate.bytes() >= bytes && candidate.bytes() - bytes <= bytes / 8;
      });
      if (block != nullptr) ++shard.hits;
      shard.unlock();
      if (block == nullptr) continue;
      block->shard_ = home;
      return block;
    }
    return nullptr;
  }

  static std::size_t home_shard() {
    // Thread identities are addresses that differ in their upper bits: multiply, then take the top.
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>((static_cast<std::uint64_t>(pthread_self()) * kGolden) >> 60);
  }
  static_assert(kShards == 16, "home_shard takes four bits");

  template <class Visit>
  void for_each_shard(Visit visit) {
    for (Shard& shard : shards_) {
      shard.lock();
      visit(shard);
      shard.unlock();
    }
  }

  template <class Visit>
  void for_each_block(Visit visit) {
    for_each_shard([&](const Shard& shard) {
      for (const Block* block = shard.first(); block != nullptr; block = block->next_)
        visit(*block);
    });
  }

  std::array<Shard, kShards> shards_;
};

}  // namespace penstock::detail
