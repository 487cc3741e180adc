// SPDX-License-Identifier: Apache-2.0
#pragma once

// The clock of all times of requests.

#include <chrono>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::remote {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

}  // namespace penstock::remote
