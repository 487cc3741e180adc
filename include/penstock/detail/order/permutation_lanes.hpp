// SPDX-License-Identifier: Apache-2.0
#pragma once

// PermutationLanes: images of permutations of which each has a size and a key of its own, as of a
// Permutation(size, mix64(seed)) for each value, several at a time.
//
//   penstock::detail::PermutationLanes lanes;
//   lanes.add(penstock::detail::feistel_shape(size), seed, position);  // until lanes.full()
//   for (const std::uint64_t image : lanes.apply()) ...               // in the same order

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/order/eight.hpp>
#include <penstock/detail/order/feistel.hpp>
#include <penstock/detail/order/feistel_eight.hpp>
#include <penstock/detail/order/feistel_shape.hpp>
#include <span>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

class PermutationLanes {
 public:
  static constexpr std::size_t most = 64;

  bool full() const noexcept { return count_ == most; }

  /// Requires that it is not full, and value < shape.size.
  void add(const FeistelShape& shape, std::uint64_t seed, std::uint64_t value) noexcept {
    const std::size_t i = count_;
    count_ = i + 1;
    rounds_[i] = shape.rounds;
    sizes_[i] = shape.size;
    low_bits_[i] = shape.low_bits;
    highs_[i] = shape.highs;
    seeds_[i] = seed;
    values_[i] = value;
  }

  /// Returns the images of the values, which it forgets. They stay until the next call of add().
  std::span<const std::uint64_t> apply() noexcept {
#ifdef PENSTOCK_AVX2
    if (has_avx2()) {
      prepare();
      make_keys_avx2();
      for (std::size_t i = 0; i < count_; i += step) feistel_avx2(Part(*this, i), &values_[i]);
      return walk();
    }
#endif
    return apply_portably();
  }
  /// The same without AVX2.
  std::span<const std::uint64_t> apply_portably() noexcept {
    prepare();
    for (std::size_t i = 0; i < count_; ++i) keys_[i] = mix64(seeds_[i]);
    for (std::size_t i = 0; i < count_; i += 4) feistel<4>(Part(*this, i), &values_[i]);
    return walk();
  }

 private:
  static constexpr std::size_t step = 16;
  using Numbers = std::array<std::uint64_t, most>;

  /// The lanes from `begin` on. A round that a lane does not have gets the key 0, which changes
  /// nothing.
  class Part {
   public:
    Part(const PermutationLanes& all, std::size_t begin) noexcept : all_(all), begin_(begin) {}
    std::uint64_t rounds() const noexcept { return all_.most_rounds_; }
    std::uint64_t key(std::uint64_t round, std::size_t i) const noexcept {
      const std::uint64_t key = feistel_key(all_.keys_[begin_ + i], round);
      return round < all_.rounds_[begin_ + i] ? key : 0;
    }
    std::uint64_t low_bits(std::size_t i) const noexcept { return all_.low_bits_[begin_ + i]; }
    std::uint32_t low_mask(std::size_t i) const noexcept {
      return static_cast<std::uint32_t>((std::uint64_t{1} << low_bits(i)) - 1);
    }
    std::uint32_t highs(std::size_t i) const noexcept {
      return static_cast<std::uint32_t>(all_.highs_[begin_ + i]);
    }
#ifdef PENSTOCK_AVX2
    PENSTOCK_AVX2 Eight eight_keys(std::uint64_t round, std::size_t i) const noexcept {
      const Eight keys = feistel_keys(eight_at(&all_.keys_[begin_ + i]), round);
      if (round < all_.fewest_rounds_) return keys;
      return keys & greater(eight_at(&all_.rounds_[begin_ + i]), eight_of(round));
    }
    PENSTOCK_AVX2 Eight eight_low_bits(std::size_t i) const noexcept {
      return eight_at(&all_.low_bits_[begin_ + i]);
    }
    PENSTOCK_AVX2 Eight low_masks(std::size_t i) const noexcept {
      return (eight_of(1) << eight_low_bits(i)) - eight_of(1);
    }
    PENSTOCK_AVX2 Eight eight_highs(std::size_t i) const noexcept {
      return eight_at(&all_.highs_[begin_ + i]);
    }
#endif

   private:
    const PermutationLanes& all_;
    std::size_t begin_;
  };

  /// The lanes are used `step` at a time; those behind the last value have nothing to do.
  void prepare() noexcept {
    fewest_rounds_ = FeistelShape::max_rounds, most_rounds_ = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      fewest_rounds_ = std::min(fewest_rounds_, rounds_[i]);
      most_rounds_ = std::max(most_rounds_, rounds_[i]);
    }
    for (std::size_t i = count_; i % step != 0; ++i)
      seeds_[i] = keys_[i] = rounds_[i] = low_bits_[i] = highs_[i] = values_[i] = 0;
  }
#ifdef PENSTOCK_AVX2
  PENSTOCK_FOR_AVX2 void make_keys_avx2() noexcept {
    for (std::size_t i = 0; i < count_; i += 8) store(mix64(eight_at(&seeds_[i])), &keys_[i]);
  }
#endif

  /// Terminates as in Permutation.
  std::span<const std::uint64_t> walk() noexcept {
    for (std::size_t i = 0; i < count_; ++i)
      while (values_[i] >= sizes_[i]) [[unlikely]] feistel<1>(Part(*this, i), &values_[i]);
    return std::span(values_).first(std::exchange(count_, 0));
  }

  Numbers seeds_, keys_, rounds_, sizes_, low_bits_, highs_, values_;
  std::uint64_t fewest_rounds_ = 0, most_rounds_ = 0;
  std::size_t count_ = 0;
};

}  // namespace penstock::detail
