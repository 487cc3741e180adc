// SPDX-License-Identifier: Apache-2.0
#pragma once

// FreeBlocks: the free list of a pool, in 16 shards to avoid contention. A thread takes blocks from
// the shard that its id hashes to, and from other shards if that one is empty. A block returns to
// the shard of the thread that took it last: to the list `local` if that thread returns it, else to
// `remote`. When `local` is empty, all of `remote` moves there. Thus a worker that fills blocks and
// a consumer that returns them seldom write the same cache line.

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/version.hpp>
#include <thread>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// `Block` has `std::size_t bytes() const`, and `std::uint64_t taker = 0`, which only this class
/// uses: the thread that took the block last.
template <class Block>
class FreeBlocks {
 public:
  /// Takes a block of at least `bytes` and at most an eighth more. Skips lists that other threads
  /// have locked. Returns nullptr if no other list has such a block.
  Block* try_pop(std::size_t bytes) {
    const std::uint64_t self = this_thread();
    const std::size_t home = shard_of(self);
    if (Block* block = local(home).try_take(bytes)) return taken_by(self, block);
    if (take_over(home))
      if (Block* block = local(home).try_take(bytes)) return taken_by(self, block);
    return pop_where(self, [bytes](List& list) { return list.try_take(bytes); });
  }

  /// Like try_pop, but waits for the lock of each list. A push to a list locks it before or after
  /// this call does: either this call finds the block, or the hook of the push sees all that this
  /// thread wrote before the call.
  Block* pop(std::size_t bytes) {
    return pop_where(this_thread(), [bytes](List& list) {
      list.lock();
      return list.take_and_unlock(bytes);
    });
  }

  /// Takes a block that try_pop(bytes) would not take.
  Block* pop_other(std::size_t bytes) {
    Block* block = nullptr;
    for_each_list([&](List& list) {
      for (std::size_t i = list.blocks.size(); i-- > 0 && block == nullptr;)
        if (!fits(*list.blocks[i], bytes)) block = list.remove(i);
    });
    return block;
  }

  /// Returns `block` to the free list. Returns false, without any effect, if the list is closed.
  /// `before_unlock` runs when the block is in the list and no thread can take it yet.
  template <class Hook>
  bool push(Block* block, Hook before_unlock) {
    const std::size_t home = shard_of(block->taker);
    List* list = block->taker == this_thread() ? &local(home) : &remote(home);
    for (std::size_t i = home; !list->try_lock(); list = &remote(i)) {
      i = (i + 1) % kShards;
      // All lists are locked, so their owners need the processor.
      if (i == home) std::this_thread::yield();
    }
    const bool open = !list->closed;
    if (open) {
      list->add(block);
      before_unlock();
    }
    list->unlock();
    return open;
  }

  /// After this, push does not allocate while there are at most `count` blocks.
  void reserve(std::size_t count) {
    // Mostly the first elements are used. The unused ones after them keep the elements of two lists
    // on different cache lines.
    constexpr std::size_t kLeast = 64;
    const std::size_t places = std::bit_ceil(std::max(count, kLeast));
    for_each_list([&](List& list) { list.blocks.reserve(places); });
  }

  struct Totals {
    std::size_t blocks = 0, bytes = 0;  ///< in the free list
    std::uint64_t hits = 0;             ///< blocks that were taken by size
  };
  Totals totals() {
    Totals all;
    for_each_list([&](const List& list) {
      all.blocks += list.blocks.size();
      for (const Block* block : list.blocks) all.bytes += block->bytes();
      all.hits += list.hits;
    });
    return all;
  }

  /// Rejects every later push.
  void close() {
    for_each_list([](List& list) { list.closed = true; });
  }

 private:
  static constexpr std::size_t kShards = 16;

  static bool fits(const Block& block, std::size_t bytes) {
    return block.bytes() >= bytes && block.bytes() - bytes <= bytes / 8;
  }

  struct alignas(64) List {
    /// Spins for about as long as a running thread needs to push or pop.
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
      while (!try_lock())
        std::this_thread::yield();  // The owner may be waiting for this
                                    // processor.
    }
    void unlock() { locked.store(false, std::memory_order_release); }

    /// This is a hint, which does not need the lock.
    bool looks_empty() const { return size.load(std::memory_order_relaxed) == 0; }

    // ---- Called with the lock held

    void add(Block* block) {
      blocks.push_back(block);
      size.store(blocks.size(), std::memory_order_relaxed);
    }
    Block* remove(std::size_t i) {
      Block* const block = blocks[i];
      blocks[i] = blocks.back();
      blocks.pop_back();
      size.store(blocks.size(), std::memory_order_relaxed);
      return block;
    }
    /// Takes the newest block that fits, since its memory is most likely in this core's cache.
    Block* take_and_unlock(std::size_t bytes) {
      Block* block = nullptr;
      for (std::size_t i = blocks.size(); i-- > 0 && block == nullptr;)
        if (fits(*blocks[i], bytes)) block = remove(i);
      if (block != nullptr) ++hits;
      unlock();
      return block;
    }

    // ----

    Block* try_take(std::size_t bytes) {
      return !looks_empty() && try_lock() ? take_and_unlock(bytes) : nullptr;
    }

    std::atomic<bool> locked{false};
    bool closed = false;
    std::atomic<std::size_t> size{0};  // blocks.size(), for looks_empty()
    std::uint64_t hits = 0;
    std::vector<Block*> blocks;
  };

  /// The blocks that were returned by the thread that had taken them.
  List& local(std::size_t shard) { return lists_[2 * shard + 1]; }
  /// The blocks that were returned by other threads.
  List& remote(std::size_t shard) { return lists_[2 * shard]; }

  /// Moves all blocks from remote to local. Returns false if there are none, or if a list is
  /// locked.
  bool take_over(std::size_t shard) {
    List &from = remote(shard), &to = local(shard);
    if (from.looks_empty() || !to.try_lock()) return false;
    const bool mine = from.try_lock();
    if (mine) {
      for (Block* block : from.blocks) to.add(block);
      from.blocks.clear();
      from.size.store(0, std::memory_order_relaxed);
      from.unlock();
    }
    to.unlock();
    return mine;
  }

  /// Tries the lists one after the other, this thread's shard first. Within a shard it follows the
  /// order in which take_over moves blocks, so that no block is missed.
  template <class Take>
  Block* pop_where(std::uint64_t self, Take take) {
    const std::size_t home = 2 * shard_of(self);
    for (std::size_t i = 0; i < lists_.size(); ++i)
      if (Block* block = take(lists_[(home + i) % lists_.size()])) return taken_by(self, block);
    return nullptr;
  }

  static Block* taken_by(std::uint64_t self, Block* block) {
    if (block->taker != self) block->taker = self;  // without a write, its cache line stays shared
    return block;
  }

  static std::uint64_t this_thread() { return static_cast<std::uint64_t>(pthread_self()); }

  static std::size_t shard_of(std::uint64_t thread) {
    // Thread identities are addresses that differ in their upper bits: multiply, then take the top.
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>((thread * kGolden) >> 60);
  }
  static_assert(kShards == 16, "shard_of takes four bits");

  /// Visits all lists while all of them are locked. Blocks move between lists, so otherwise some
  /// would be counted twice or never.
  template <class Visit>
  void for_each_list(Visit visit) {
    std::array<std::unique_lock<List>, 2 * kShards> locks;
    for (std::size_t i = 0; i < lists_.size(); ++i) locks[i] = std::unique_lock(lists_[i]);
    for (List& list : lists_) visit(list);
  }

  std::array<List, 2 * kShards> lists_;  // the remote and the local list of each shard
};

}  // namespace penstock::detail
