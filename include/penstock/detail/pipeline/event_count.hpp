// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventCount: sleep until a condition on other threads' atomics holds; waking nobody costs one
// atomic operation. The queue itself needs no lock then.
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

/// Tells the processor that this thread spins.
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

  /// Blocks until `ready()` holds. `ready` may be called often and while other threads wait: it
  /// must be cheap and must not wait for anything itself.
  template <class Condition>
  void wait(Condition&& ready) {
    wait_until(Clock::time_point::max(), ready);
  }

  /// As `wait`, at most until `deadline`; returns what `ready()` said last.
  template <class Condition>
  bool wait_until(Clock::time_point deadline, Condition&& ready) {
    if (ready() || spin(ready)) return true;
    // Announce first, look second: a notifier that does not see the announcement made its change
    // before it, and the read-modify-write below then makes that change visible to ready().
    waiters_.fetch_add(1, std::memory_order_acq_rel);
    std::unique_lock lock(mutex_);
    bool holds = ready();
    while (!holds && sleep(lock, deadline)) holds = ready();
    waiters_.fetch_sub(1, std::memory_order_relaxed);
    return holds || ready();
  }

  /// Call after the change that the condition looks at. Wakes one waiter: right where any waiter
  /// will do.
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
  // Counts of cpu_relax(), 10 to 50 ns each. The least patience bridges a hand-over between two
  // running threads; the most costs about what going to sleep and being woken does.
  static constexpr int kFirstPause = 16, kLastPause = 32;
  static constexpr int kLeastPatience = 96, kMostPatience = 1024;

  /// Looks again and again, for as long as that has paid lately: where the other side runs on
  /// another core, it spares both sides a system call; where the other side waits for this very
  /// core, or takes milliseconds, it would only burn time. There are pauses between the looks,
  /// since each takes the cache line from the thread that is about to write it.
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

  // A read-modify-write, not a load: of the two sides' operations on waiters_ one comes second, and
  // that side sees what the other did before.
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
  // Of waiters: behind the rest, so not on the cache line that notifiers write.
  std::atomic<int> patience_{kMostPatience};
};

}  // namespace penstock::detail
