// SPDX-License-Identifier: Apache-2.0
#pragma once

// The debug option PENSTOCK_CHECKS (docs/checks.md): finds sources that write outside of their
// fields or leave rows unwritten, and programs that use memory after its release. It is on for a
// whole program: if any source file was compiled with PENSTOCK_CHECKS defined (the CMake option of
// this name does so), or if the environment variable PENSTOCK_CHECKS is 1.
//
//   Each part of a batch is surrounded by field_guard unused bytes.
//   A block is filled with a pattern, a new one each time, before the source gets it (see
//   detail/memory/fill_checks.hpp). A row that still has the pattern was not written; a guard that
//   does not have it was overwritten.
//   Released memory, on the host and on the device, is filled with `poison`. If a released pinned
//   block has other contents when it is acquired again, it was written in between.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <penstock/version.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

#ifndef PENSTOCK_CHECKS
[[gnu::weak]] bool
checks_are_compiled_in() noexcept;  // Its address is null if no source file defines it.
#endif

/// `value`: the value of the environment variable PENSTOCK_CHECKS, or nullptr if it is not set.
inline bool checks_are_wanted(const char* value) noexcept {
  return value != nullptr && std::strcmp(value, "1") == 0;
}

/// Whether the checks are on. Never changes in a process.
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

/// Returns the offset of the first byte that is not `value`, or `bytes` if there is none.
inline std::size_t first_other(const std::byte* memory, std::size_t bytes, unsigned char value) {
  return static_cast<std::size_t>(
      std::find_if(memory, memory + bytes, [value](std::byte b) { return b != std::byte{value}; }) -
      memory);
}

/// Throws std::logic_error if a released block of `bytes` was written.
inline void check_poison(const std::byte* block, std::size_t bytes) {
  const std::size_t at = first_other(block, bytes, poison);
  if (at != bytes)
    throw std::logic_error("a pinned block was written after its release, at byte " +
                           std::to_string(at) + " of " + std::to_string(bytes));
}

}  // namespace penstock::detail
