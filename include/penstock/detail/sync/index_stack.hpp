// SPDX-License-Identifier: Apache-2.0
#pragma once

// IndexStack: a lock-free stack of the numbers 0 ... capacity - 1, each of which is in it at most
// once. A thread that pops a number sees what the pushing thread wrote before the push.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Thread-safe. Only the constructor allocates.
class IndexStack {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  /// Creates an empty stack.
  explicit IndexStack(std::size_t capacity)
      : links_(std::make_unique<std::atomic<std::uint32_t>[]>(capacity)) {}

  /// Adds a number that is not in the stack.
  void push(std::uint32_t index) noexcept {
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      links_[index].store(top(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, next_tag(head) | index, std::memory_order_release));
  }

  /// Removes and returns the number that was pushed last; kNone: the stack is empty.
  std::uint32_t pop() noexcept {
    // The first load and a failed exchange acquire, so the link is at least as new as the head. If
    // the link is newer, its number has been pushed again; then the tag has changed and the
    // exchange fails.
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (top(head) != kNone) {
      const std::uint32_t below = links_[top(head)].load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, tag(head) | below, std::memory_order_acquire))
        return top(head);
    }
    return kNone;
  }

 private:
  static std::uint32_t top(std::uint64_t head) { return static_cast<std::uint32_t>(head); }
  static std::uint64_t tag(std::uint64_t head) { return head & ~std::uint64_t{kNone}; }
  static std::uint64_t next_tag(std::uint64_t head) { return tag(head) + (std::uint64_t{1} << 32); }

  // The lower half is the number on top. The upper half is a tag that each push changes, so that a
  // head with the same number on top again is a different value. Every change is a
  // read-modify-write, so a thread that acquires any later head sees what was released by each push
  // before it.
  alignas(64) std::atomic<std::uint64_t> head_{kNone};
  const std::unique_ptr<std::atomic<std::uint32_t>[]> links_;  // for each number: the number below
                                                               // it
};

}  // namespace penstock::detail
