// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which process something belongs to, and whether that process still runs: what one process shares
// with another may outlive it.

#include <chrono>
#include <cstdint>

namespace penstock::emulation::detail {

/// A process of this machine. Numbers of processes are used again, so the time of its start is a
/// part of it.
struct ProcessIdentity {
  std::int32_t number = 0;
  std::uint64_t start = 0;  ///< in ticks of the kernel's clock since the machine started

  bool operator==(const ProcessIdentity&) const = default;
};

const ProcessIdentity& this_process();

/// False once the process has ended, also while its parent has not asked how. Reads a file of
/// /proc, which takes some microseconds.
bool runs(const ProcessIdentity& process);
/// So often at most it is asked about a process with which something is shared.
inline constexpr auto kLookEvery = std::chrono::milliseconds(20);

/// A number that no other run of a program has.
std::uint64_t number_of_this_run();

/// A number that is not used twice.
std::uint64_t unique_number();

}  // namespace penstock::emulation::detail
