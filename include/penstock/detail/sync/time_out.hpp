// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <penstock/version.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Throws std::invalid_argument, which names the `option`, if the time-out is negative.
inline void require_time_out(const char* option, std::chrono::milliseconds time_out) {
  if (time_out.count() < 0)
    throw std::invalid_argument(std::string(option) + " is " + std::to_string(time_out.count()) +
                                " ms, must not be negative");
}

/// Counts down a time-out from its construction on, but only while this process runs. A deadline
/// would also count the time in which the process is stopped (SIGSTOP, a suspended machine). Wait
/// in steps: a wait that takes longer than its step counts as one step.
class TimeOut {
 public:
  using Clock = std::chrono::steady_clock;

  /// A time-out that is too long for the clock, such as milliseconds::max(), never ends.
  explicit TimeOut(std::chrono::milliseconds time_out)
      : for_ever_(time_out > std::chrono::duration_cast<std::chrono::milliseconds>(
                                 Clock::time_point::max() - counted_)) {
    if (for_ever_) return;
    left_ = time_out;
    step_ = std::max<Clock::duration>(left_ / 16, std::chrono::milliseconds(1));
  }

  /// Returns how long to wait before the next call of `over`; time_point::max(): without limit.
  Clock::time_point next_step() const {
    return for_ever_ ? Clock::time_point::max() : counted_ + std::min(left_, step_);
  }

  /// Counts the time since the last call. Returns whether the time-out has ended.
  bool over() {
    if (for_ever_) return false;
    const Clock::time_point now = Clock::now();
    left_ -= std::min({now - counted_, left_, step_});
    counted_ = now;
    return left_ == Clock::duration::zero();
  }

 private:
  Clock::time_point counted_ = Clock::now();  // the time up to this point is counted
  bool for_ever_;
  Clock::duration left_{0}, step_{0};
};

}  // namespace penstock::detail
