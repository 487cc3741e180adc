// SPDX-License-Identifier: Apache-2.0
#pragma once

// HeldBack: keeps reserved memory out of use. A thread offers each block that it acquires to
// takes(). want() with a smaller number destroys held blocks, which returns them to their pool.

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <penstock/version.hpp>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Any thread may call any member. Nothing allocates.
template <class Memory>
class HeldBack {
 public:
  /// `most`: that can be wanted.
  explicit HeldBack(std::size_t most) { held_.reserve(most); }

  /// Sets how many blocks are held back. Gives back those that are held beyond, and returns whether
  /// there were any.
  bool want(std::size_t count) {
    bool gave_back = false;
    while (next_beyond(count)) gave_back = true;  // Destroyed without the lock.
    return gave_back;
  }

  /// True: `memory` is held back from now on, and empty.
  bool takes(Memory& memory) {
    if (missing_.load(std::memory_order_relaxed) == 0) return false;  // Mostly.
    const std::lock_guard lock(mutex_);
    if (held_.size() >= wanted_) return false;
    held_.push_back(std::move(memory));
    count_missing();
    return true;
  }

 private:
  /// Sets what is wanted. nullopt: no more than that are held.
  std::optional<Memory> next_beyond(std::size_t count) {
    const std::lock_guard lock(mutex_);
    wanted_ = count;
    std::optional<Memory> memory;
    if (held_.size() > wanted_) {
      memory.emplace(std::move(held_.back()));
      held_.pop_back();
    }
    count_missing();
    return memory;
  }
  void count_missing() {
    missing_.store(wanted_ > held_.size() ? wanted_ - held_.size() : 0, std::memory_order_relaxed);
  }

  std::atomic<std::size_t> missing_{0};  // a hint at what is under the lock
  std::mutex mutex_;
  std::size_t wanted_ = 0;
  std::vector<Memory> held_;
};

}  // namespace penstock::detail
