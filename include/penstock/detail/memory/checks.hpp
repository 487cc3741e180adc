// SPDX-License-Identifier: Apache-2.0
#pragma once

// The debug option PENSTOCK_CHECKS: finds sources that write where they may not, or not at all, and
// programs that use memory after they gave it back. It is on for a whole program, or off: on where
// any of its sources was compiled with PENSTOCK_CHECKS defined (the CMake option of this name does
// so), and where the environment variable PENSTOCK_CHECKS is 1. It makes every batch a little
// larger and a lot slower.
//
//   Around each part of a batch stand field_guard bytes that nobody may write.
//   A pinned block is filled with a pattern, new each time, before the source gets it (see
//   detail/memory/fill_checks.hpp): what still has the pattern was not written, and a guard that
//   has it no more was overrun.
//   Memory that was released, on the host and on the device, reads as `poison`; a released pinned
//   block that does not when it is handed out again was written meanwhile.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace penstock::detail {

#ifndef PENSTOCK_CHECKS
[[gnu::weak]] bool
checks_are_compiled_in() noexcept;  // Its address is null where no source has it.
#endif

/// `value`: of the environment variable PENSTOCK_CHECKS; nullptr: it is not set.
inline bool checks_are_wanted(const char* value) noexcept {
  return value != nullptr && std::strcmp(value, "1") == 0;
}

/// Are the checks on? The same answer for the life of the process.
inline bool checks() noexcept {
#ifdef PENSTOCK_CHECKS
  return true;
#else
  static const bool on = [] {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, and nothing here writes it.
    const char* const wanted = std::getenv("PENSTOCK_CHECKS");
    return checks_are_compiled_in != nullptr || checks_are_wanted(wanted);
  }();
  return on;
#endif
}

inline constexpr std::size_t field_guard = 256;
inline constexpr unsigned char poison = 0xDB;

/// The first of `bytes` bytes that is not `value`; `bytes` if all are.
inline std::size_t first_other(const std::byte* memory, std::size_t bytes, unsigned char value) {
  return static_cast<std::size_t>(
      std::find_if(memory, memory + bytes, [value](std::byte b) { return b != std::byte{value}; }) -
      memory);
}

/// Throws std::logic_error unless a released block of `bytes` is as it was left.
inline void check_poison(const std::byte* block, std::size_t bytes) {
  const std::size_t at = first_other(block, bytes, poison);
  if (at != bytes)
    throw std::logic_error("a pinned block was written after its release, at byte " +
                           std::to_string(at) + " of " + std::to_string(bytes));
}

}  // namespace penstock::detail
