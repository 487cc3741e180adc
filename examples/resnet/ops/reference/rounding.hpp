// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a number becomes when it is stored in fewer bits, to the nearest, ties to even:
//
//   rounded(Precision::fp16, 0.1f)       // the float that is 0.1 in fp16
//   quantised(-3.5f)                     // -4
//
// fp32 and tf32 are stored as floats: they stay as they are.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "../ops.hpp"

namespace resnet::reference {

namespace detail {

/// Without the last `bits` of the significand. A carry into the exponent is right as it is.
inline float without_bits(float value, int bits) {
  auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t last = word >> bits & 1;
  word += (std::uint32_t{1} << (bits - 1)) - 1 + last;
  return std::bit_cast<float>(word >> bits << bits);
}

}  // namespace detail

/// By integers without a branch: a loop over it becomes a vector loop.
inline float rounded_to_half(float value) {
  const auto word = std::bit_cast<std::int32_t>(value);
  const std::int32_t sign = word & std::numeric_limits<std::int32_t>::min(), size = word & ~sign;
  const float magnitude = std::bit_cast<float>(size);
  const auto normal = std::bit_cast<std::int32_t>(detail::without_bits(magnitude, 13));
  // A multiple of 2^-24, which is the distance of the floats beside 0.75.
  const auto subnormal = std::bit_cast<std::int32_t>((magnitude + 0.75f) - 0.75f);
  constexpr auto least = std::bit_cast<std::int32_t>(0x1p-14f);  // that is not subnormal
  constexpr auto most = std::bit_cast<std::int32_t>(65520.0f);   // and all above: infinite
  constexpr auto infinity = std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity());
  std::int32_t result = size < least ? subnormal : normal;
  result = size >= most ? infinity : result;
  result = size > infinity ? size : result;  // NaN
  return std::bit_cast<float>(result | sign);
}

inline float rounded_to_bfloat(float value) {
  const float finite = detail::without_bits(value, 16);
  return std::isfinite(value) ? finite : value;
}

/// Whether it rounds at all.
inline bool is_narrow(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16;
}

inline float rounded(Precision precision, float value) {
  if (precision == Precision::fp16) return rounded_to_half(value);
  if (precision == Precision::bf16) return rounded_to_bfloat(value);
  return value;
}

/// The nearest of -128 ... 127; 0 for NaN.
inline std::int8_t quantised(float value) {
  if (std::isnan(value)) return 0;
  return static_cast<std::int8_t>(std::nearbyint(std::clamp(value, -128.0f, 127.0f)));
}

}  // namespace resnet::reference
