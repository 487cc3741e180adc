// SPDX-License-Identifier: Apache-2.0
#pragma once

// The clocks of this process, which wild_clock.cpp puts in place of the system's: clock_gettime,
// gettimeofday, time, and the waits of condition variables. Linked into a program, they serve the
// libraries that it uses, too.

#include <chrono>
#include <cstdint>

namespace penstock::test::wild_clock {

/// Whoever reads CLOCK_REALTIME gets another year each time.
void make_realtime_jump();

/// CLOCK_MONOTONIC goes on from a later time, as it does for a process that was stopped, or a
/// machine that was suspended.
void leap(std::chrono::nanoseconds forward);

/// CLOCK_MONOTONIC stands still, until it goes on.
void stand_still(bool still);

/// Reads of CLOCK_REALTIME, and waits for a time on it, by anyone, so far.
std::uint64_t realtime_reads();
std::uint64_t realtime_waits();

}  // namespace penstock::test::wild_clock
