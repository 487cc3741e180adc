// SPDX-License-Identifier: Apache-2.0
#pragma once

// mix64: a bijection of 64-bit numbers in which every input bit changes every output bit with
// probability one half. It is the step of SplitMix64 (Steele, Lea, Flood: "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014), so that mix64(k), mix64(k + golden_ratio), ... is
// its stream.

#include <cstdint>
#include <penstock/detail/inline.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

inline constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15;  // 2^64 / 1.618..., made odd

PENSTOCK_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x += golden_ratio;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace penstock::detail
