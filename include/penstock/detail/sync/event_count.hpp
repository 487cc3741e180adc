// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventCount: blocks a thread until a condition on atomics holds, which other threads write.
// Without a waiter, a notification costs one atomic operation. So a queue of atomics needs no lock.
//
//   producer: cell.store(full, release); ready.notify_one();
//   consumer: ready.wait([&] { return cell.load(acquire) == full; });

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace penstock::detail {

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

  /// Blocks until `ready()` is true. `ready` is called often, and while other threads wait: it must
  /// be cheap and must not block.
  template <class Condition>
  void wait(Condition&& ready) {
    wait_until(Clock::time_point::max(), ready);
  }

  /// As `wait`, but at most until `deadline`; returns the last result of `ready()`.
  template <class Condition>
  bool wait_until(Clock::time_point deadline, Condition&& ready) {
    if (ready() || spin(ready)) return true;
    // This waiter is counted before it checks the condition: a notifier that does not see the count
    // has made its change before, and this read-modify-write makes the change visible to ready().
    waiters_.fetch_add(1, std::memory_order_acq_rel);
    std::unique_lock lock(mutex_);
    bool holds = ready();
    while (!holds && sleep(lock, deadline)) holds = ready();
    waiters_.fetch_sub(1, std::memory_order_relaxed);
    return holds || ready();
  }

  /// Call it after the change that the condition depends on. Wakes one waiter; which one must not
  /// matter.
  void notify_one() {
    if (nobody_waits()) return;
    const std::lock_guard lock(mutex_);
    wake_.notify_one();
  }

  void notify_all() {
    if (nobody_waits()) return;
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }

 private:
  // In calls of cpu_relax(), of 10 to 50 ns each. The least patience suffices for a hand-over
  // between two running threads; the most costs about as much as sleeping and waking up.
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

  // A read-modify-write, not a load: of the operations of the waiter and the notifier on waiters_,
  // one is the second, and its thread sees what the other one did before.
  bool nobody_waits() { return waiters_.fetch_add(0, std::memory_order_acq_rel) == 0; }

  bool sleep(std::unique_lock<std::mutex>& lock, Clock::time_point deadline) {
    if (deadline == Clock::time_point::max()) {
      wake_.wait(lock);
      return true;
    }
    return wake_.wait_until(lock, deadline) == std::cv_status::no_timeout;
  }

  std::atomic<std::uint32_t> waiters_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  // Used by waiters. The last member, so that it is not on the cache line that notifiers write.
  std::atomic<int> patience_{kMostPatience};
};

}  // namespace penstock::detail
