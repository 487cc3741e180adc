// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerPermits: limits how many of the workers run. The others are parked: they hold no resource
// and sleep. A worker checks its permit between two batches (or pieces of them), so no other thread
// waits for a parked worker.

#include <atomic>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

class WorkerPermits {
 public:
  explicit WorkerPermits(int workers) : allowed_(workers) {}

  /// Waits for a permit. Call it on a worker without one. Returns false if `ended()` is true; call
  /// wake() when that changes.
  template <class Ended>
  bool take(Ended ended) {
    bool taken = false;
    changed_.wait([&] { return ended() || (taken = try_take()); });
    return taken;
  }

  /// Gives the permit of a worker up if more workers run than are allowed. Returns whether it did.
  bool lose() {
    int running = running_.load(std::memory_order_relaxed);
    while (running > allowed_.load(std::memory_order_relaxed))
      if (running_.compare_exchange_weak(running, running - 1, std::memory_order_relaxed))
        return true;
    return false;
  }
  /// Gives the permit of a worker up that ends.
  void give_back() { running_.fetch_sub(1, std::memory_order_relaxed); }

  /// Sets how many workers may run from now on.
  void allow(int workers) {
    allowed_.store(workers, std::memory_order_relaxed);
    changed_.notify_all();
  }
  int running() const { return running_.load(std::memory_order_relaxed); }

  /// Makes threads in take() call `ended` again.
  void wake() { changed_.notify_all(); }

 private:
  bool try_take() {
    int running = running_.load(std::memory_order_relaxed);
    while (running < allowed_.load(std::memory_order_relaxed))
      if (running_.compare_exchange_weak(running, running + 1, std::memory_order_relaxed))
        return true;
    return false;
  }

  // These only count and do not order memory. They are read for each piece and seldom written.
  std::atomic<int> running_{0}, allowed_;
  EventCount changed_;
};

}  // namespace penstock::detail
