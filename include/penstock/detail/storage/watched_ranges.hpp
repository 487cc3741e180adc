// SPDX-License-Identifier: Apache-2.0
#pragma once

// WatchedRanges: the mappings in whose pages a SIGBUS is expected. A signal handler searches them
// at any moment, on any thread, without a lock, while other threads add and remove.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace penstock::detail {

/// The addresses of a mapping's pages.
class WatchedRange {
 public:
  static constexpr std::size_t nothing = std::numeric_limits<std::size_t>::max();

  /// Offset of the first page that was lost, or `nothing`. All threads see it before they can see
  /// the zeros.
  std::size_t lost_from() const noexcept { return lost_from_.load(std::memory_order_acquire); }

  /// The page at `address` is about to be replaced. Async-signal-safe.
  void lose(std::uintptr_t address) noexcept {
    const std::size_t offset = address - begin_.load(std::memory_order_relaxed);
    std::size_t lost = lost_from_.load(std::memory_order_relaxed);
    while (offset < lost &&
           !lost_from_.compare_exchange_weak(lost, offset, std::memory_order_release)) {
    }
  }

 private:
  friend class WatchedRanges;

  bool has(std::uintptr_t address) const noexcept {
    // Read between two looks at the same end, the beginning belongs to it: see WatchedRanges::add.
    const std::uintptr_t end = end_.load(std::memory_order_acquire);
    const std::uintptr_t begin = begin_.load(std::memory_order_acquire);
    return address >= begin && address < end && end == end_.load(std::memory_order_relaxed);
  }

  std::atomic<std::uintptr_t> begin_{0}, end_{0};  // end 0: not in use
  std::atomic<std::size_t> lost_from_{nothing};
  std::atomic<WatchedRange*> next_{nullptr};  // in the list of all; never changes once it is in
  WatchedRange* next_idle_ = nullptr;         // of those that are not in use
};

class WatchedRanges {
 public:
  /// Ranges do not overlap. `add` and `remove` belong to one thread at a time.
  WatchedRange& add(std::uintptr_t begin, std::uintptr_t end) {
    WatchedRange& range = idle_range();
    range.lost_from_.store(WatchedRange::nothing, std::memory_order_relaxed);
    range.begin_.store(begin, std::memory_order_release);  // Who sees it sees that end was 0.
    range.end_.store(end, std::memory_order_release);      // Who sees it sees the beginning.
    return range;
  }

  /// Nobody may be reading the mapping any more.
  void remove(WatchedRange& range) noexcept {
    range.end_.store(0, std::memory_order_relaxed);
    range.next_idle_ = idle_;
    idle_ = &range;
  }

  /// The range that `address` is in, or nullptr. It must have been added before, as far as the
  /// calling thread can tell, or not at all. Async-signal-safe.
  WatchedRange* find(std::uintptr_t address) const noexcept {
    WatchedRange* range = all_.load(std::memory_order_acquire);
    while (range != nullptr && !range->has(address))
      range = range->next_.load(std::memory_order_relaxed);
    return range;
  }

 private:
  /// Ranges are never freed, since a handler may be looking at them: there are as many as were ever
  /// in use at once.
  WatchedRange& idle_range() {
    if (WatchedRange* range = idle_; range != nullptr) {
      idle_ = range->next_idle_;
      return *range;
    }
    auto* range = new WatchedRange;
    range->next_.store(all_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    all_.store(range, std::memory_order_release);
    return *range;
  }

  std::atomic<WatchedRange*> all_{nullptr};
  WatchedRange* idle_ = nullptr;
};

}  // namespace penstock::detail
