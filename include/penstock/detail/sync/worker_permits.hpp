// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerPermits: how many of the workers run. The others are parked: they hold nothing, and sleep.
// A worker looks between two batches (or pieces of them), so none is parked that others wait for.

#include <atomic>
#include <penstock/detail/sync/event_count.hpp>

namespace penstock::detail {

class WorkerPermits {
 public:
  explicit WorkerPermits(int workers) : allowed_(workers) {}

  /// For a worker without a permit: waits for one. False: `ended()`, which wake() follows.
  template <class Ended>
  bool take(Ended ended) {
    bool taken = false;
    changed_.wait([&] { return ended() || (taken = try_take()); });
    return taken;
  }

  /// For a worker with a permit. Gives it up if more workers run than may; true: it did.
  bool lose() {
    int running = running_.load(std::memory_order_relaxed);
    while (running > allowed_.load(std::memory_order_relaxed))
      if (running_.compare_exchange_weak(running, running - 1, std::memory_order_relaxed))
        return true;
    return false;
  }
  /// For a worker with a permit that ends.
  void give_back() { running_.fetch_sub(1, std::memory_order_relaxed); }

  /// So many may run from now on.
  void allow(int workers) {
    allowed_.store(workers, std::memory_order_relaxed);
    changed_.notify_all();
  }
  int running() const { return running_.load(std::memory_order_relaxed); }

  /// Threads in take() call `ended` again.
  void wake() { changed_.notify_all(); }

 private:
  bool try_take() {
    int running = running_.load(std::memory_order_relaxed);
    while (running < allowed_.load(std::memory_order_relaxed))
      if (running_.compare_exchange_weak(running, running + 1, std::memory_order_relaxed))
        return true;
    return false;
  }

  // They count, and order nothing. Read for each piece, and seldom written.
  std::atomic<int> running_{0}, allowed_;
  EventCount changed_;
};

}  // namespace penstock::detail
