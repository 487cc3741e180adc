// SPDX-License-Identifier: Apache-2.0
#pragma once

// number_at(): a little-endian number among the bytes of a file.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <penstock/version.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::detail {

static_assert(std::endian::native == std::endian::little);

/// Returns the number at byte `at`, which may have any alignment. All of it must be within `bytes`.
template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t at) {
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof(Number));
  return number;
}

}  // namespace penstock::detail
