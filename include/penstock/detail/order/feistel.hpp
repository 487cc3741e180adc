// SPDX-License-Identifier: Apache-2.0
#pragma once

// The network of which Permutation and PermutationLanes are made: a generalised Feistel network on
// [0, a) x [0, b) with a * b >= size. a is the power of two next to the square root of size, and
// b = ceil(size / a): splitting and half of the reductions are masks, and a * b - size < a. Rounds
// add modulo a and b: with exclusive or, for a >= 4, every permutation would be even.
//
// The round function folds a 32 x 32 -> 64 bit product onto itself, twice; the multiply is the one
// of Philox (Salmon et al.: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), whose use for
// shuffling is from Mitchell et al.: "Bandwidth-Optimal Random Shuffling for GPUs", TOPC 2022.
// It is not meant for cryptography.
//
// Values are enciphered several at a time, because each waits for several multiplies; with AVX2 by
// feistel_eight.hpp. `Lanes` says what the key of a round and the sides are: of all values
// together, or of each.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/order/feistel_shape.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Two rounds reduce the bias between pairs of values to about 1 / sqrt(size), so small sizes
/// need more rounds. From 2^20 on, 6 rounds showed no bias in 4 million images; the minimum is
/// 10, as a margin, because the round function is not ideal.
constexpr std::uint64_t feistel_rounds(std::uint64_t bits) noexcept {
  bits = std::max<std::uint64_t>(1, bits);
  return std::clamp<std::uint64_t>(2 * ((64 + bits - 1) / bits), 10, FeistelShape::max_rounds);
}

/// Requires 1 <= size <= 2^63.
constexpr FeistelShape feistel_shape(std::uint64_t size) noexcept {
  const auto bits = static_cast<std::uint64_t>(std::bit_width(size - 1));
  const std::uint64_t low_bits = (bits + 1) / 2;
  return {size, static_cast<std::uint32_t>(((size - 1) >> low_bits) + 1),
          static_cast<std::uint8_t>(low_bits), static_cast<std::uint8_t>(feistel_rounds(bits))};
}

inline constexpr std::uint32_t feistel_multiplier = 0xd2511f53;

/// The key of a round: what is added is in the lower half, what multiplies, an odd number, in the
/// upper one.
constexpr std::uint64_t feistel_key(std::uint64_t key, std::uint64_t round) noexcept {
  return mix64(key + round * golden_ratio) | std::uint64_t{1} << 32;
}

constexpr std::uint32_t feistel_fold(std::uint32_t x, std::uint32_t multiplier) noexcept {
  const std::uint64_t product = std::uint64_t{x} * multiplier;
  return static_cast<std::uint32_t>(product) ^ static_cast<std::uint32_t>(product >> 32);
}
constexpr std::uint32_t feistel_scramble(std::uint32_t x, std::uint64_t key) noexcept {
  const std::uint32_t sum = x + static_cast<std::uint32_t>(key);
  return feistel_fold(feistel_fold(sum, static_cast<std::uint32_t>(key >> 32)), feistel_multiplier);
}

/// Applies the network once to `Count` values, each below its a * b, so that the inner loops may
/// become vector instructions.
template <std::size_t Count, class Lanes>
void feistel(const Lanes& lanes, std::uint64_t* values) noexcept {
  std::array<std::uint32_t, Count> low, high;
  for (std::size_t i = 0; i < Count; ++i) {
    low[i] = static_cast<std::uint32_t>(values[i]) & lanes.low_mask(i);
    high[i] = static_cast<std::uint32_t>(values[i] >> lanes.low_bits(i));
  }
  for (std::uint64_t round = 0; round < lanes.rounds(); round += 2) {
    for (std::size_t i = 0; i < Count; ++i)
      low[i] = (low[i] + feistel_scramble(high[i], lanes.key(round, i))) & lanes.low_mask(i);
    for (std::size_t i = 0; i < Count; ++i) {
      const std::uint32_t highs = lanes.highs(i);
      const std::uint64_t scaled =
          std::uint64_t{feistel_scramble(low[i], lanes.key(round + 1, i))} * highs;
      const std::uint32_t sum = high[i] + static_cast<std::uint32_t>(scaled >> 32);
      high[i] = std::min(sum, sum - highs);  // Modulo highs: sum < 2 * highs <= 2^32.
    }
  }
  for (std::size_t i = 0; i < Count; ++i)
    values[i] = std::uint64_t{high[i]} << lanes.low_bits(i) | low[i];
}

}  // namespace penstock::detail
