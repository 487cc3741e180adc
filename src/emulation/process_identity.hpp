// SPDX-License-Identifier: Apache-2.0
#pragma once

// Identifies processes, and tells whether they still run: an object that processes share may
// outlive one of them.

#include <chrono>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// A process of this machine. The system reuses process numbers, so the start time is a part of the
/// identity.
struct ProcessIdentity {
  std::int32_t number = 0;
  std::uint64_t start = 0;  ///< in ticks of the kernel's clock since the machine started

  bool operator==(const ProcessIdentity&) const = default;
};

const ProcessIdentity& this_process();

/// Returns false once the process has ended, even if its parent has not collected its status. It
/// reads a file of /proc, which takes some microseconds.
bool runs(const ProcessIdentity& process);
/// The shortest time between two checks whether a process that shares an object still runs.
inline constexpr auto kLookEvery = std::chrono::milliseconds(20);

/// Returns a number that is unique to this run of the program.
std::uint64_t number_of_this_run();

/// Returns a number that is never returned again.
std::uint64_t unique_number();

}  // namespace penstock::emulation::detail
