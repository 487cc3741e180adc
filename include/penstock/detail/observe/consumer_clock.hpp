// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumerClock: splits the consumer's time into waiting (inside next) and working (between two
// calls). The first call, which fills the pipeline, is counted separately.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <penstock/detail/observe/ticks.hpp>
#include <penstock/detail/observe/worker_trace.hpp>

namespace penstock::detail {

class ConsumerClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Lives as long as a call of next(). Reads the clock twice. Several may live at a time, one
  /// for each thread that waits, but they begin and end under one lock: then the consumer waits
  /// until the last of them ends, and each end counts what was waited up to it.
  class [[nodiscard]] Visit {
   public:
    explicit Visit(ConsumerClock& clock) : clock_(clock) {
      if (clock_.visits_++ == 0) clock_.entered_ = Clock::now();
    }
    ~Visit() { clock_.leave(); }
    /// Since then a call has waited for a batch, and none has got one.
    Ticks asked() const {
      return std::chrono::nanoseconds(clock_.entered_.time_since_epoch()).count();
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    ConsumerClock& clock_;
  };

  std::chrono::nanoseconds busy() const { return load(busy_); }
  std::chrono::nanoseconds waiting() const { return load(waiting_); }
  /// From construction to the end of the first call; 0 before that.
  std::chrono::nanoseconds first() const { return load(first_); }
  /// The longest call after the first.
  std::chrono::nanoseconds longest() const { return load(longest_); }

 private:
  static std::chrono::nanoseconds load(const std::atomic<Clock::rep>& value) {
    return std::chrono::nanoseconds(value.load(std::memory_order_relaxed));
  }

  void leave() {
    const auto now = Clock::now();
    if (first().count() == 0) {
      first_.store((now - constructed_).count(), std::memory_order_relaxed);
    } else {
      add_alone(busy_, (entered_ - left_).count());
      add_alone(waiting_, (now - entered_).count());
      longest_.store(std::max((now - entered_).count(), longest().count()),
                     std::memory_order_relaxed);
    }
    left_ = entered_ = now;
    --visits_;
  }

  const Clock::time_point constructed_ = Clock::now();
  // The threads that call write these under their lock:
  int visits_ = 0;                         // that live
  Clock::time_point entered_{};            // since then the consumer waits
  Clock::time_point left_ = constructed_;  // the end of the last call
  std::atomic<Clock::rep> busy_{0}, waiting_{0}, first_{0}, longest_{0};
};

}  // namespace penstock::detail
