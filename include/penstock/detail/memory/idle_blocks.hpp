// SPDX-License-Identifier: Apache-2.0
#pragma once

// IdleBlocks: the free list of a pool, split so that threads do not meet. A thread takes blocks
// from the shard that its own identity picks, and looks at the others only when that has none. A
// block goes back to the shard of the thread that took it last, whoever gives it back; blocks that
// others give back pile up in a list beside, which the shard's own thread takes over as a whole.
// So a worker that fills blocks and a consumer that returns them share one cache line now and then,
// not several for each block.

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/pipeline/event_count.hpp>
#include <thread>
#include <vector>

namespace penstock::detail {

template <class Block>
class IdleBlocks;

/// What a block derives from: who took it last.
template <class Block>
class IdleLink {
  friend class IdleBlocks<Block>;
  std::uint64_t taker_ = 0;
};

/// `Block` derives from IdleLink<Block> and has `std::size_t bytes() const`.
template <class Block>
class IdleBlocks {
  struct Never {
    bool operator()() const { return false; }
  };

 public:
  /// Takes a block of at least `bytes` that wastes at most an eighth of it; nullptr: a quick look
  /// found none. Passes over lists that other threads are busy with.
  Block* try_pop(std::size_t bytes) {
    const std::uint64_t self = this_thread();
    Shard& home = shards_[shard_of(self)];
    if (Block* block = home.own.try_take(bytes)) return taken_by(self, block);
    if (home.take_over())
      if (Block* block = home.own.try_take(bytes)) return taken_by(self, block);
    return pop_where(self, [bytes](List& list) { return list.try_take(bytes); });
  }

  /// As try_pop, but passes over nothing: each list is locked once. Of that lock and the one of a
  /// push to the same list, one comes first: either this look finds the block, or the push's hook
  /// sees all that this thread wrote before the look.
  Block* pop(std::size_t bytes) {
    return pop_where(this_thread(), [bytes](List& list) {
      list.lock();
      return list.take_and_unlock(bytes);
    });
  }

  /// Takes whatever there is.
  Block* pop_any() {
    Block* block = nullptr;
    for_each_list([&](List& list) {
      if (block == nullptr && !list.blocks.empty()) block = list.remove(list.blocks.size() - 1);
    });
    return block;
  }

  /// Gives `block` back; false, and not taken, once the list is closed, or where every list is busy
  /// and `give_up()` says that this will last. `before_unlock` runs while the block is here and
  /// nobody can take it.
  template <class Hook, class GiveUp = Never>
  bool push(Block* block, Hook before_unlock, GiveUp give_up = {}) {
    const std::size_t home = shard_of(block->taker_);
    List* list = block->taker_ == this_thread() ? &shards_[home].own : &shards_[home].returned;
    for (std::size_t i = home; !list->try_lock(); list = &shards_[i].returned) {
      i = (i + 1) % kShards;
      if (i != home) continue;
      if (give_up()) return false;
      std::this_thread::yield();  // Somebody who has them all needs a processor.
    }
    const bool open = !list->closed;
    if (open) {
      list->add(block);
      before_unlock();
    }
    list->unlock();
    return open;
  }

  /// From now on push never allocates, as long as there are at most `count` blocks.
  void reserve(std::size_t count) {
    // The first few places are the busy ones. With some idle ones behind them, those of two lists
    // share no cache line.
    constexpr std::size_t kLeast = 64;
    const std::size_t places = std::bit_ceil(std::max(count, kLeast));
    for_each_list([&](List& list) { list.blocks.reserve(places); });
  }

  /// Refuses every later push, and returns how many blocks are here.
  std::size_t close() {
    for_each_list([](List& list) { list.closed = true; });
    return count();
  }

  std::size_t count() {
    std::size_t blocks = 0;
    for_each_list([&](const List& list) { blocks += list.blocks.size(); });
    return blocks;
  }

  std::size_t bytes() {
    std::size_t sum = 0;
    for_each_list([&](const List& list) {
      for (const Block* block : list.blocks) sum += block->bytes();
    });
    return sum;
  }

  /// How often a block was found that fits.
  std::uint64_t hits() {
    std::uint64_t sum = 0;
    for_each_list([&](const List& list) { sum += list.hits; });
    return sum;
  }

 private:
  static constexpr std::size_t kShards = 16;

  struct alignas(64) List {
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
      while (!try_lock()) std::this_thread::yield();  // Whoever has it may wait for this processor.
    }
    void unlock() { locked.store(false, std::memory_order_release); }

    /// A hint, without the lock.
    bool looks_empty() const { return size.load(std::memory_order_relaxed) == 0; }

    // ---- Under the lock

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
    /// The newest block that fits: its memory is the likeliest to be in this core's cache.
    Block* take_and_unlock(std::size_t bytes) {
      Block* block = nullptr;
      for (std::size_t i = blocks.size(); i-- > 0 && block == nullptr;)
        if (blocks[i]->bytes() >= bytes && blocks[i]->bytes() - bytes <= bytes / 8)
          block = remove(i);
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
    std::atomic<std::size_t> size{0};  // of blocks
    std::uint64_t hits = 0;
    std::vector<Block*> blocks;
  };

  struct Shard {
    List own;       // given back by the thread that had taken them
    List returned;  // given back by others

    /// Moves what others gave back to the own list; false: there was nothing, or somebody is busy.
    bool take_over() {
      if (returned.looks_empty() || !own.try_lock()) return false;
      const bool mine = returned.try_lock();
      if (mine) {
        for (Block* block : returned.blocks) own.add(block);
        returned.blocks.clear();
        returned.size.store(0, std::memory_order_relaxed);
        returned.unlock();
      }
      own.unlock();
      return mine;
    }
  };

  /// What `take` takes from the first list that has it, this thread's shard first. Within a shard
  /// in the direction in which take_over moves blocks, so that none slips by.
  template <class Take>
  Block* pop_where(std::uint64_t self, Take take) {
    const std::size_t home = shard_of(self);
    for (std::size_t i = 0; i < kShards; ++i) {
      Shard& shard = shards_[(home + i) % kShards];
      for (List* list : {&shard.returned, &shard.own})
        if (Block* block = take(*list)) return taken_by(self, block);
    }
    return nullptr;
  }

  static Block* taken_by(std::uint64_t self, Block* block) {
    if (block->taker_ != self) block->taker_ = self;  // Else its cache line stays shared.
    return block;
  }

  static std::uint64_t this_thread() { return static_cast<std::uint64_t>(pthread_self()); }

  static std::size_t shard_of(std::uint64_t thread) {
    // Thread identities are addresses that differ in their upper bits: multiply, then take the top.
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>((thread * kGolden) >> 60);
  }
  static_assert(kShards == 16, "shard_of takes four bits");

  /// Has all lists locked during its life: blocks move, so that looking at one list after the other
  /// would count some twice or never.
  class [[nodiscard]] AllLocked {
   public:
    explicit AllLocked(IdleBlocks& blocks) : blocks_(blocks) {
      for_each([](List& list) { list.lock(); });
    }
    ~AllLocked() {
      for_each([](List& list) { list.unlock(); });
    }
    AllLocked(const AllLocked&) = delete;
    AllLocked& operator=(const AllLocked&) = delete;

    template <class Visit>
    void for_each(Visit visit) {
      for (Shard& shard : blocks_.shards_) {
        visit(shard.own);
        visit(shard.returned);
      }
    }

   private:
    IdleBlocks& blocks_;
  };

  template <class Visit>
  void for_each_list(Visit visit) {
    AllLocked(*this).for_each(visit);
  }

  std::array<Shard, kShards> shards_;
};

}  // namespace penstock::detail
