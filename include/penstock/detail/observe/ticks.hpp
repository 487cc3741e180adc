// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ticks: the type of the time stamps of batches.

#include <chrono>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Nanoseconds of std::chrono::steady_clock. 0 stands for "not yet".
using Ticks = std::int64_t;

/// Reads the clock.
inline Ticks ticks() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace penstock::detail
