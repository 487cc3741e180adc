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

  void leave(Clock::time_point entered) {
    const auto now = Clock::now();
    if (first().count() == 0) {
      first_.store((now - constructed_).count(), std::memory_order_relaxed);
    } else {
      add_alone(busy_, (entered - left_).count());
      add_alone(waiting_, (now - entered).count());
      longest_.store(std::max((now - entered).count(), longest().count()),
                     std::memory_order_relaxed);
    }
    left_ = now;
  }

  const Clock::time_point constructed_ = Clock::now();
  Clock::time_point left_{};  // the end of the last call
  std::atomic<Clock::rep> busy_{0}, waiting_{0}, first_{0}, longest_{0};
};

}  // namespace penstock::detail
