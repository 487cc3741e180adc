// SPDX-License-Identifier: Apache-2.0
#pragma once

// Floats as they lie in memory: 4 bytes, or 2 of fp16 or bf16, rounded to the nearest, ties to
// even.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../../ops/ops.hpp"

namespace resnet {

inline std::size_t bytes_of(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16 ? 2 : 4;
}

inline float from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  const std::uint32_t rest = bits & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest >= 0x400) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000));
  const float size = static_cast<float>(rest) * 0x1p-24f;
  return sign != 0 ? -size : size;
}

inline std::uint16_t to_half(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(word >> 16 & 0x8000);
  const float size = std::fabs(value);
  const auto with_sign = [sign](std::uint32_t bits) {
    return static_cast<std::uint16_t>(sign | bits);
  };
  if (std::isnan(value)) return with_sign(0x7e00);
  if (size >= 65520.0f) return with_sign(0x7c00);
  if (size < 0x1p-14f) return with_sign(static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24f)));
  const std::uint32_t bits = word & 0x7fffffff;
  return with_sign((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13);
}

inline float from_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_bfloat(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((word >> 16) | 0x40);
  return static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

inline float load(const std::byte* memory, Precision precision) {
  if (bytes_of(precision) == 4) {
    float value = 0;
    std::memcpy(&value, memory, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, memory, sizeof bits);
  return precision == Precision::fp16 ? from_half(bits) : from_bfloat(bits);
}

inline void store(float value, std::byte* memory, Precision precision) {
  if (bytes_of(precision) == 4) {
    std::memcpy(memory, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = precision == Precision::fp16 ? to_half(value) : to_bfloat(value);
  std::memcpy(memory, &bits, sizeof bits);
}

}  // namespace resnet
