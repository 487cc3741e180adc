// SPDX-License-Identifier: Apache-2.0
#pragma once

// SerialTask: runs a function on one thread at a time whenever any thread requests it. If another
// thread runs it already, a request is left, and that thread repeats the function. So no thread
// waits, and the function runs after each request.

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <penstock/version.hpp>
#include <thread>

namespace penstock::inline PENSTOCK_ABI::detail {

class SerialTask {
 public:
  /// Calls `step` until it returns false, here or on the thread that runs it already. Does nothing
  /// while paused. A new SerialTask is paused.
  template <class Step>
  void run(Step step) noexcept {
    if (requests_.fetch_add(1) != 0) return;
    std::uint32_t served = 1;
    do {
      runner_.store(this_thread(), std::memory_order_relaxed);
      while (!paused_.load() && step()) {
      }
      runner_.store(kNobody, std::memory_order_relaxed);  // after the next line, another thread may
                                                          // run it
      served = requests_.fetch_sub(served) - served;
    } while (served != 0);
  }

  /// Pauses the task. Returns when no thread runs `step` any more.
  void pause() noexcept {
    paused_.store(true);
    while (requests_.load() != 0) std::this_thread::yield();
  }
  /// Ends the pause. A step sees what was written during the pause. Call run() next, since requests
  /// during the pause did nothing.
  void end_pause() noexcept { paused_.store(false, std::memory_order_release); }

  /// Whether the calling thread is inside a `step`.
  bool is_run_by_this_thread() const noexcept {
    return runner_.load(std::memory_order_relaxed) == this_thread();
  }

 private:
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};
  static std::uint64_t this_thread() { return static_cast<std::uint64_t>(pthread_self()); }

  std::atomic<std::uint64_t> runner_{kNobody};  // the thread that is inside a step
  std::atomic<std::uint32_t> requests_{0};
  std::atomic<bool> paused_{true};
};

}  // namespace penstock::detail
