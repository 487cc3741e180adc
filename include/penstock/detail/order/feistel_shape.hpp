// SPDX-License-Identifier: Apache-2.0
#pragma once

// FeistelShape: the sides of the rectangle that a Feistel network of a size works on, and its
// rounds (feistel.hpp).

#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

struct FeistelShape {
  static constexpr std::uint64_t max_rounds = 48;

  std::uint64_t size = 1;
  std::uint32_t highs = 1;    // b, at most 2^31
  std::uint8_t low_bits = 0;  // a = 2^low_bits, at most 2^32
  std::uint8_t rounds = 0;    // even
};

}  // namespace penstock::detail
