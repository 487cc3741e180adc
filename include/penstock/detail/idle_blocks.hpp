// SPDX-License-Identifier: Apache-2.0
#pragma once

// IdleBlocks: the free list of a pool, split into shards so that threads do not meet. A thread
// pushes to and pops from the shard that its own identity picks; only when that is empty does it
// look at the others. A busy shard is passed over, never waited for.

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/event_count.hpp>
#include <vector>

namespace penstock::detail {

/// `Block` has `std::size_t bytes() const`.
template <class Block>
class IdleBlocks {
 public:
  /// Takes a block of at least `bytes` that wastes at most an eighth of it; nullptr: there is none.
  /// Sequentially consistent with `push`: a pop that comes after an announcement by this thread
  /// finds what was pushed by any thread that has not seen the announcement.
  Block* pop(std::size_t bytes) {
    const std::size_t home = home_shard();
    for (;;) {
      bool passed_over = false;
      for (std::size_t i = 0; i < kShards; ++i) {
        Shard& shard = shards_[(home + i) % kShards];
        if (!shard.try_lock()) {
          passed_over = true;
          continue;
        }
        Block* block = shard.take(bytes);
        shard.unlock();
        if (block != nullptr) return block;
      }
      if (!passed_over) return nullptr;
      cpu_relax();
    }
  }

  /// Takes whatever there is.
  Block* pop_any() {
    Block* block = nullptr;
    for_each_shard([&](Shard& shard) {
      if (block != nullptr || shard.blocks.empty()) return;
      block = shard.blocks.back();
      shard.blocks.pop_back();
    });
    return block;
  }

  /// Gives `block` back; false, and not taken, once the list is closed. `before_unlock` runs while
  /// the block is here and nobody can take it.
  template <class Hook>
  bool push(Block* block, Hook before_unlock) {
    for (std::size_t i = home_shard();; i = (i + 1) % kShards) {
      Shard& shard = shards_[i];
      if (!shard.try_lock()) continue;
      const bool open = !shard.closed;
      if (open) {
        shard.blocks.push_back(block);
        before_unlock();
      }
      shard.unlock();
      return open;
    }
  }

  /// From now on push never allocates, as long as there are at most `count` blocks.
  void reserve(std::size_t count) {
    for_each_shard([&](Shard& shard) { shard.blocks.reserve(count); });
  }

  /// Refuses every later push, and returns how many blocks are here.
  std::size_t close() {
    for_each_shard([](Shard& shard) { shard.closed = true; });
    return count();
  }

  std::size_t count() {
    std::size_t blocks = 0;
    for_each_shard([&](const Shard& shard) { blocks += shard.blocks.size(); });
    return blocks;
  }

  std::size_t bytes() {
    std::size_t sum = 0;
    for_each_shard([&](const Shard& shard) {
      for (const Block* block : shard.blocks) sum += block->bytes();
    });
    return sum;
  }

  /// How often pop found a block.
  std::uint64_t hits() {
    std::uint64_t sum = 0;
    for_each_shard([&](const Shard& shard) { sum += shard.hits; });
    return sum;
  }

 private:
  static constexpr std::size_t kShards = 8;

  struct alignas(64) Shard {
    bool try_lock() { return !locked.exchange(true, std::memory_order_seq_cst); }
    void unlock() { locked.store(false, std::memory_order_seq_cst); }

    Block* take(std::size_t bytes) {
      // The newest first: its memory is the likeliest to be in this core's cache.
      for (std::size_t i = blocks.size(); i-- > 0;) {
        Block* block = blocks[i];
        if (block->bytes() < bytes || block->bytes() - bytes > bytes / 8) continue;
        blocks[i] = blocks.back();
        blocks.pop_back();
        ++hits;
        return block;
      }
      return nullptr;
    }

    std::atomic<bool> locked{false};
    bool closed = false;
    std::uint64_t hits = 0;
    std::vector<Block*> blocks;
  };

  static std::size_t home_shard() {
    // Thread identities are addresses that differ in their upper bits: multiply, then take the top.
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>((static_cast<std::uint64_t>(pthread_self()) * kGolden) >> 61);
  }
  static_assert(kShards == 8, "home_shard takes three bits");

  template <class Visit>
  void for_each_shard(Visit visit) {
    for (Shard& shard : shards_) {
      while (!shard.try_lock()) cpu_relax();
      visit(shard);
      shard.unlock();
    }
  }

  std::array<Shard, kShards> shards_;
};

}  // namespace penstock::detail
