// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

namespace penstock::detail {

/// Throws std::invalid_argument, which names the `option`, where the time-out is negative.
inline void require_time_out(const char* option, std::chrono::milliseconds time_out) {
  if (time_out.count() < 0)
    throw std::invalid_argument(std::string(option) + " is " + std::to_string(time_out.count()) +
                                " ms, must not be negative");
}

/// Counts a time-out down, from its construction on, while this process runs. A deadline would also
/// count the time in which the process is stopped (SIGSTOP, a suspended machine). Wait in steps; a
/// wait that takes longer than its step counts as one step.
class TimeOut {
 public:
  using Clock = std::chrono::steady_clock;

  /// One that the clock cannot tell, such as milliseconds::max(), is for ever.
  explicit TimeOut(std::chrono::milliseconds time_out)
      : for_ever_(time_out > std::chrono::duration_cast<std::chrono::milliseconds>(
                                 Clock::time_point::max() - counted_)) {
    if (for_ever_) return;
    left_ = time_out;
    step_ = std::max<Clock::duration>(left_ / 16, std::chrono::milliseconds(1));
  }

  /// How long to wait before asking `over` again; time_point::max(): for ever.
  Clock::time_point next_step() const {
    return for_ever_ ? Clock::time_point::max() : counted_ + std::min(left_, step_);
  }

  /// Counts the time since the last call.
  bool over() {
    if (for_ever_) return false;
    const Clock::time_point now = Clock::now();
    left_ -= std::min({now - counted_, left_, step_});
    counted_ = now;
    return left_ == Clock::duration::zero();
  }

 private:
  Clock::time_point counted_ = Clock::now();  // up to here
  bool for_ever_;
  Clock::duration left_{0}, step_{0};
};

}  // namespace penstock::detail
