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

inline float rounded_to_half(float value) {
  if (!std::isfinite(value)) return value;
  const float size = std::fabs(value);
  if (size < 0x1p-14f) return std::nearbyint(value * 0x1p24f) * 0x1p-24f;  // subnormal
  if (size >= 65520.0f) return std::copysign(std::numeric_limits<float>::infinity(), value);
  return detail::without_bits(value, 13);
}

inline float rounded_to_bfloat(float value) {
  return std::isfinite(value) ? detail::without_bits(value, 16) : value;
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
