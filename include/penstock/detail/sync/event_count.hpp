// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventCount: blocks a thread until a condition on atomics holds that other threads write. Without
// a waiter, a notification costs one atomic operation. Thus a lock-free queue can block without a
// lock.
//
//   producer: cell.store(full, release); ready.notify_one();
//   consumer: ready.wait([&] { return cell.load(acquire) == full; });
//
// notify_one() wakes one thread. If a woken thread has not checked its condition yet, a further
// notification costs no system call: that thread finds the change, and passes on the notifications
// that it did not need.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <penstock/version.hpp>
#include <thread>

namespace penstock::inline PENSTOCK_ABI::detail {

/// A hint to the processor that this thread spins.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class EventCount {
 public:
  using Clock = std::chrono::steady_clock;

  /// Blocks until `ready()` is true. `ready` is called often, and with the lock held, so it must be
  /// cheap and must not block.
  template <class Condition>
  void wait(Condition&& ready) {
    wait_until(Clock::time_point::max(), ready);
  }

  /// Like `wait`, but at most until `deadline`. Returns the last result of `ready()`.
  template <class Condition>
  bool wait_until(Clock::time_point deadline, Condition&& ready) {
    if (ready() || spin(ready)) return true;
    // This waiter is counted before it takes the calls. A notifier that does not see the count has
    // made its change and its call before, so take_calls() makes the change visible to ready().
    state_.fetch_add(kWaiter, std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    std::uint64_t calls = 0;
    bool holds = false, in_time = true;
    while (true) {
      calls = take_calls();
      holds = ready();
      if (holds || !in_time) break;
      in_time = sleep(lock, deadline);
    }
    state_.fetch_sub(kWaiter, std::memory_order_relaxed);
    lock.unlock();
    if (holds && calls > 1) call_one(calls - 1);
    return holds;
  }

  /// Call it after the change that the condition depends on. Wakes one waiter; which one must not
  /// matter.
  void notify_one() { call_one(1); }

  void notify_all() {
    if (waiters(add_calls(0)) == 0) return;
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }

 private:
  // These are numbers of calls of cpu_relax(), which takes 10 to 50 ns. The smallest patience
  // suffices for a hand-over between two running threads; the largest costs about as much as
  // sleeping and waking up.
  static constexpr int kFirstPause = 16, kLastPause = 32;
  static constexpr int kLeastPatience = 96, kMostPatience = 1024;

  /// Polls the condition, longer if polling has succeeded recently. If the other thread runs on
  /// another core, this saves a system call in both. If it waits for this core, or needs
  /// milliseconds, polling wastes time. Polls are separated by pauses, since each takes the cache
  /// line from the thread that is about to write it.
  template <class Condition>
  bool spin(Condition& ready) {
    const int patience = patience_.load(std::memory_order_relaxed);
    int pause = kFirstPause;
    for (int spent = 0; spent < patience; spent += pause) {
      for (int i = 0; i < pause; ++i) cpu_relax();
      if (ready()) {
        set_patience(patience, std::min(2 * patience, kMostPatience));
        return true;
      }
      pause = kLastPause;
    }
    set_patience(patience, std::max(patience / 2, kLeastPatience));
    return false;
  }

  void set_patience(int now, int next) {
    if (next != now) patience_.store(next, std::memory_order_relaxed);
  }

  // The lower half of state_ counts the waiters, the upper half the calls that no waiter has taken.
  // Each operation on it is a read-modify-write, not a load, so the operations of a waiter and of a
  // notifier are ordered. If the notifier's is later, it sees the waiter; if the waiter's is later,
  // the waiter sees the change.
  static constexpr std::uint64_t kWaiter = 1, kCall = std::uint64_t{1} << 32;
  static std::uint64_t waiters(std::uint64_t state) { return state & (kCall - 1); }
  static std::uint64_t calls(std::uint64_t state) { return state / kCall; }

  /// Returns the previous state.
  std::uint64_t add_calls(std::uint64_t times) {
    return state_.fetch_add(times * kCall, std::memory_order_release);
  }
  /// Adds calls. Only the first call since a waiter has taken the calls wakes a thread.
  void call_one(std::uint64_t times) {
    const std::uint64_t before = add_calls(times);
    if (waiters(before) == 0 || calls(before) != 0) return;
    const std::lock_guard lock(mutex_);
    wake_.notify_one();
  }
  /// Takes all calls. A waiter does so before it checks its condition, so it sees every change that
  /// was made before these calls.
  std::uint64_t take_calls() {
    return calls(state_.fetch_and(kCall - 1, std::memory_order_acquire));
  }

  bool sleep(std::unique_lock<std::mutex>& lock, Clock::time_point deadline) {
    if (deadline == Clock::time_point::max()) {
      wake_.wait(lock);
      return true;
    }
    return wake_.wait_until(lock, deadline) == std::cv_status::no_timeout;
  }

  std::atomic<std::uint64_t> state_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  // Only waiters use it. It is the last member, so that it is not on the cache line that notifiers
  // write.
  std::atomic<int> patience_{kMostPatience};
};

}  // namespace penstock::detail
