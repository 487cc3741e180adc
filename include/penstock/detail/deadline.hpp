// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// `time_out` from now on; time_point::max(), which is for ever, where the clock cannot tell it.
inline std::chrono::steady_clock::time_point deadline_in(std::chrono::milliseconds time_out) {
  using Clock = std::chrono::steady_clock;
  const auto now = Clock::now();
  const auto most =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
  return time_out < most ? now + time_out : Clock::time_point::max();
}

}  // namespace penstock::detail
