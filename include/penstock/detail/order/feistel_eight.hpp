// SPDX-License-Identifier: Apache-2.0
#pragma once

// FeistelEight: eight values in the network of feistel.hpp, with AVX2.

#include <penstock/detail/order/eight.hpp>
#ifdef PENSTOCK_AVX2

#include <cstddef>
#include <cstdint>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/order/feistel.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// feistel_key() of eight keys.
PENSTOCK_AVX2 inline Eight feistel_keys(Eight keys, std::uint64_t round) noexcept {
  return mix64(keys, round * golden_ratio) | eight_of(std::uint64_t{1} << 32);
}
/// The lower halves are those of feistel_fold(); those of x and the multiplier count.
PENSTOCK_AVX2 inline Eight feistel_fold(Eight x, Eight multiplier) noexcept {
  const Eight product = lower_product(x, multiplier);
  return product ^ (product >> 32);
}
PENSTOCK_AVX2 inline Eight feistel_scramble(Eight x, Eight key) noexcept {
  return feistel_fold(feistel_fold(x + key, key >> 32), eight_of(feistel_multiplier));
}

/// The values from `begin` on.
template <class Lanes>
class FeistelEight {
 public:
  PENSTOCK_AVX2 FeistelEight(const Lanes& lanes, std::size_t begin,
                             const std::uint64_t* values) noexcept
      : begin_(begin),
        low_(eight_at(values + begin) & lanes.low_masks(begin)),
        high_(eight_at(values + begin) >> lanes.eight_low_bits(begin)) {}

  PENSTOCK_AVX2 void change_low(const Lanes& lanes, std::uint64_t round) noexcept {
    const Eight scrambled = feistel_scramble(high_, lanes.eight_keys(round, begin_));
    low_ = (low_ + scrambled) & lanes.low_masks(begin_);
  }
  PENSTOCK_AVX2 void change_high(const Lanes& lanes, std::uint64_t round) noexcept {
    const Eight highs = lanes.eight_highs(begin_);
    const Eight scrambled = feistel_scramble(low_, lanes.eight_keys(round, begin_));
    const Eight sum = high_ + (lower_product(scrambled, highs) >> 32);
    high_ = min_halves(sum, sum - highs);  // The upper halves of the sum are 0.
  }
  PENSTOCK_AVX2 void put(const Lanes& lanes, std::uint64_t* values) const noexcept {
    store(high_ << lanes.eight_low_bits(begin_) | low_, values + begin_);
  }

 private:
  std::size_t begin_;
  Eight low_, high_;
};

/// feistel<16>() with AVX2. `Lanes` has besides: what key() and so on give for eight values.
template <class Lanes>
PENSTOCK_FOR_AVX2 void feistel_avx2(const Lanes& lanes, std::uint64_t* values) noexcept {
  FeistelEight<Lanes> first(lanes, 0, values), second(lanes, 8, values);
  for (std::uint64_t round = 0; round < lanes.rounds(); round += 2) {
    first.change_low(lanes, round);
    second.change_low(lanes, round);
    first.change_high(lanes, round + 1);
    second.change_high(lanes, round + 1);
  }
  first.put(lanes, values);
  second.put(lanes, values);
}

}  // namespace penstock::detail
#endif
