// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumerClock: splits the consumer's time into waiting (inside next) and working (between two
// calls). The first call, which fills the pipeline, is counted separately.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <penstock/detail/measure/worker_trace.hpp>

namespace penstock::detail {

class ConsumerClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// Lives as long as a call of next(). Reads the clock twice.
  class [[nodiscard]] Visit {
   public:
    explicit Visit(ConsumerClock& clock) : clock_(clock), entered_(Clock::now()) {}
    ~Visit() { clock_.leave(entered_); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    ConsumerClock& clock_;
    Clock::time_point entered_;
  };

  /// The pipeline blocked the consumer for `time` between two calls: counted as waiting. Any
  /// thread.
  void hold_up(std::chrono::nanoseconds time) {
    pending_.fetch_add(time.count(), std::memory_order_relaxed);
  }

  std::chrono::nanoseconds busy() const { return load(busy_); }
  std::chrono::nanoseconds waiting() const { return load(waiting_); }
  /// From construction to the end of the first call; 0 before that.
  std::chrono::nanoseconds first() const { return load(first_); }
  /// The part of waiting() that hold_up() added.
  std::chrono::nanoseconds held_up() const { return load(held_up_); }
  /// The longest call after the first.
  std::chrono::nanoseconds longest() const { return load(longest_); }

 private:
  static std::chrono::nanoseconds load(const std::atomic<Clock::rep>& value) {
    return std::chrono::nanoseconds(value.load(std::memory_order_relaxed));
  }

  void leave(Clock::time_point entered) {
    const auto now = Clock::now();
    if (first().count() == 0) {
      first_.store((now - constructed_).count(), std::memory_order_relaxed);
    } else {
      const Clock::rep held = take_pending((entered - left_).count());
      add_alone(busy_, (entered - left_).count() - held);
      add_alone(waiting_, (now - entered).count() + held);
      longest_.store(std::max((now - entered).count(), longest().count()),
                     std::memory_order_relaxed);
    }
    left_ = now;
  }

  /// At most `most`, the time between the two calls.
  Clock::rep take_pending(Clock::rep most) {
    if (pending_.load(std::memory_order_relaxed) == 0) return 0;
    const Clock::rep held = std::min(pending_.exchange(0, std::memory_order_relaxed), most);
    add_alone(held_up_, held);
    return held;
  }

  const Clock::time_point constructed_ = Clock::now();
  Clock::time_point left_{};  // the end of the last call
  std::atomic<Clock::rep> busy_{0}, waiting_{0}, first_{0}, longest_{0}, held_up_{0}, pending_{0};
};

}  // namespace penstock::detail
