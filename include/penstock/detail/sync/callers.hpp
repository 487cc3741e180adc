// SPDX-License-Identifier: Apache-2.0
#pragma once

// Callers: counts the threads that are inside member functions of an object, so that its destructor
// can wait until they have returned. No call may begin after the destructor has begun.

#include <atomic>
#include <cstdint>
#include <penstock/version.hpp>
#include <thread>

namespace penstock::inline PENSTOCK_ABI::detail {

class Callers {
 public:
  /// Counts one call of a member function. Its destructor must be the last access of the call to
  /// the object.
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

  /// Whether there is a call. Does not order memory.
  bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }
  /// Synchronises with the beginning of all calls: the calling thread then sees what the callers
  /// did before, such as their reads of the handle of this object. The handle may be changed
  /// afterwards.
  void see_entries() const noexcept { static_cast<void>(count_.load(std::memory_order_acquire)); }
  /// Returns when all calls have ended, and synchronises with them. Wake waiting threads before.
  void wait_until_left() const noexcept {
    while (count_.load(std::memory_order_acquire) != 0) std::this_thread::yield();
  }

 private:
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace penstock::detail
