// SPDX-License-Identifier: Apache-2.0
#pragma once

// Callers: counts the threads that are inside the members of an object, so that its destructor can
// wait until they have left. No call may begin once the destructor has.

#include <atomic>
#include <cstdint>
#include <thread>

namespace penstock::detail {

class Callers {
 public:
  /// Lives as long as a call of a member. Its end is the last that the call does to the object.
  class [[nodiscard]] Call {
   public:
    explicit Call(Callers& callers) : count_(callers.count_) {
      count_.fetch_add(1, std::memory_order_release);
    }
    ~Call() { count_.fetch_sub(1, std::memory_order_release); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    std::atomic<std::uint32_t>& count_;
  };

  /// Whether there is one. Orders nothing.
  bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  /// What the threads that are inside did before their calls is seen from here on: they have read
  /// the handle of this object, which may now be changed.
  void see_entries() const noexcept { static_cast<void>(count_.load(std::memory_order_acquire)); }
  /// Returns when no call lives; what they did is seen then. Wake those that wait before.
  void wait_until_left() const noexcept {
    while (count_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  }

 private:
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace penstock::detail
