// SPDX-License-Identifier: Apache-2.0
#pragma once

// room_in(): memory for the bytes of a sample, in the scratch memory of the thread that reads it.

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/usable_memory.hpp>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace penstock::detail {

/// The first `bytes` bytes of `scratch`, which grows if it is too small and never shrinks. Throws
/// std::system_error for more than half of the memory that this process may use: what a damaged
/// index asks for must not end the process.
inline std::span<std::byte> room_in(std::vector<std::byte>& scratch, std::uint64_t bytes) {
  static const std::uint64_t most = usable_memory() / 2;
  if (bytes > most)
    throw std::system_error(ENOMEM, std::generic_category(),
                            std::to_string(bytes) + " bytes are more than half of the memory");
  if (scratch.size() < bytes) scratch.resize(static_cast<std::size_t>(bytes));
  return std::span(scratch).first(static_cast<std::size_t>(bytes));
}

}  // namespace penstock::detail
