// SPDX-License-Identifier: Apache-2.0
#pragma once

// ConsumerClock: splits the consumer's time into waiting (inside next) and working (between two
// calls). The first call, which fills the pipeline, is counted separately. It also tells the
// consumer's pauses, in which the rest of the pipeline only waits.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
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
    explicit Visit(ConsumerClock& clock) : clock_(clock), is_first_(clock.visits_++ == 0) {
      if (!is_first_) return;
      clock_.entered_ = Clock::now();
      clock_.away_since_.store(kInside, std::memory_order_relaxed);
    }
    ~Visit() { clock_.leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    /// The pause that this call has ended; nullopt: there was none.
    std::optional<TimeSpan> ended_pause() const {
      const TimeSpan gap{clock_.left_, clock_.entered_};
      return is_first_ && clock_.is_pause(gap) ? std::optional(gap) : std::nullopt;
    }

   private:
    ConsumerClock& clock_;
    const bool is_first_;
  };

  std::chrono::nanoseconds busy() const { return load(busy_); }
  std::chrono::nanoseconds waiting() const { return load(waiting_); }
  /// The part of busy() that was pauses.
  std::chrono::nanoseconds paused() const { return load(paused_); }
  /// From construction to the end of the first call; 0 before that.
  std::chrono::nanoseconds first() const { return load(first_); }
  /// The end of the last call. For the thread that calls.
  Clock::time_point left() const { return left_; }
  /// The longest call after the first.
  std::chrono::nanoseconds longest() const { return load(longest_); }

  /// The pause that the consumer is in at `now`, until then.
  std::optional<TimeSpan> present_pause(Clock::time_point now) const {
    const Clock::rep since = away_since_.load(std::memory_order_relaxed);
    if (since == kInside) return std::nullopt;
    const TimeSpan gap{Clock::time_point(Clock::duration(since)), now};
    return is_pause(gap) ? std::optional(gap) : std::nullopt;
  }

 private:
  static constexpr Clock::rep kInside = 0;
  // What comes once in fewer batches than this belongs to the consumer's work.
  static constexpr double kFarLonger = 32;
  static constexpr std::chrono::milliseconds kShort{1};

  static std::chrono::nanoseconds load(const std::atomic<Clock::rep>& value) {
    return std::chrono::nanoseconds(value.load(std::memory_order_relaxed));
  }

  /// Before the first batch and in the first step the consumer gets ready. Later on a pause is far
  /// longer than the mean, to which pauses belong too.
  bool is_pause(const TimeSpan& gap) const {
    const std::uint64_t steps = steps_.load(std::memory_order_relaxed);
    if (steps == 0) return true;
    if (gap.length() < kShort) return false;
    const auto others = static_cast<double>(steps - 1);
    const auto all = static_cast<double>((busy() - load(first_step_)).count());
    return static_cast<double>(gap.length().count()) * others > kFarLonger * all;
  }

  void leave() {
    const auto now = Clock::now();
    if (first().count() == 0) {
      first_.store((now - constructed_).count(), std::memory_order_relaxed);
    } else {
      count_step({left_, entered_});
      add_alone(waiting_, (now - entered_).count());
      longest_.store(std::max((now - entered_).count(), longest().count()),
                     std::memory_order_relaxed);
    }
    left_ = entered_ = now;
    if (--visits_ == 0)
      away_since_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  void count_step(const TimeSpan& step) {
    if (is_pause(step)) add_alone(paused_, step.length().count());
    if (steps_.load(std::memory_order_relaxed) == 0)
      first_step_.store(step.length().count(), std::memory_order_relaxed);
    add_alone(busy_, step.length().count());
    add_alone(steps_, std::uint64_t{1});
  }

  const Clock::time_point constructed_ = Clock::now();
  // By the threads that call, under their lock:
  int visits_ = 0;                         // that live
  Clock::time_point entered_{};            // since then the consumer waits
  Clock::time_point left_ = constructed_;  // the end of the last call
  std::atomic<Clock::rep> away_since_{constructed_.time_since_epoch().count()};  // the same
  std::atomic<Clock::rep> busy_{0}, paused_{0}, waiting_{0}, first_{0}, longest_{0};
  std::atomic<Clock::rep> first_step_{0};
  std::atomic<std::uint64_t> steps_{0};  // in busy_
};

}  // namespace penstock::detail
