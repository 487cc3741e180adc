// SPDX-License-Identifier: Apache-2.0
#pragma once

// Permutation: a keyed bijection on [0, size). It is computed, not stored, so the cost of a part of
// a shuffled order is proportional to that part.
//
//   penstock::detail::Permutation permutation(size, key);
//   permutation.apply(positions);                  // each position becomes its image, in place
//
// Method. A Feistel network (feistel.hpp) on a rectangle that has at least `size` places, walking
// the cycle until the image is below size (Black, Rogaway: "Ciphers with Arbitrary Finite Domains",
// CT-RSA 2002). An image has to walk with a probability of about 1 / sqrt(size). A cipher on the
// next power of two would walk with a probability of up to 1 / 2.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/order/feistel.hpp>
#include <penstock/detail/order/feistel_eight.hpp>
#include <penstock/detail/order/feistel_shape.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::detail {

class Permutation {
 public:
  static constexpr std::uint64_t max_size = std::uint64_t{1} << 63;

  /// Requires 1 <= size <= max_size.
  Permutation(std::uint64_t size, std::uint64_t key) noexcept : lanes_(feistel_shape(size), key) {}

  /// Replaces each value by its image. All values must be below size.
  void apply(std::span<std::uint64_t> values) const noexcept {
#ifdef PENSTOCK_AVX2
    if (has_avx2()) return apply_together<16>(values, feistel_avx2<Lanes>);
#endif
    apply_portably(values);
  }
  /// The same without AVX2.
  void apply_portably(std::span<std::uint64_t> values) const noexcept {
    constexpr std::size_t kMany = 32;
    const std::size_t many = values.size() / kMany * kMany;
    apply_together<kMany>(values.first(many), feistel<kMany, Lanes>);
    apply_together<8>(values.subspan(many), feistel<8, Lanes>);
  }

 private:
  /// All values have the same key and sides.
  class Lanes {
   public:
    Lanes(const FeistelShape& shape, std::uint64_t key) noexcept : shape_(shape) {
      for (std::uint64_t i = 0; i < shape.rounds; ++i)
        keys_[static_cast<std::size_t>(i)] = feistel_key(key, i);
    }
    std::uint64_t size() const noexcept { return shape_.size; }
    std::uint64_t rounds() const noexcept { return shape_.rounds; }
    std::uint64_t key(std::uint64_t round, std::size_t = 0) const noexcept {
      return keys_[static_cast<std::size_t>(round)];
    }
    std::uint64_t low_bits(std::size_t = 0) const noexcept { return shape_.low_bits; }
    std::uint32_t low_mask(std::size_t = 0) const noexcept {
      return static_cast<std::uint32_t>((std::uint64_t{1} << shape_.low_bits) - 1);
    }
    std::uint32_t highs(std::size_t = 0) const noexcept {
      return static_cast<std::uint32_t>(shape_.highs);
    }
#ifdef PENSTOCK_AVX2
    PENSTOCK_AVX2 Eight eight_keys(std::uint64_t round, std::size_t) const noexcept {
      return eight_of(key(round));
    }
    PENSTOCK_AVX2 Eight eight_low_bits(std::size_t) const noexcept {
      return eight_of(low_bits());
    }
    PENSTOCK_AVX2 Eight low_masks(std::size_t) const noexcept {
      return eight_of(low_mask());
    }
    PENSTOCK_AVX2 Eight eight_highs(std::size_t) const noexcept {
      return eight_of(highs());
    }
#endif

   private:
    FeistelShape shape_;
    std::array<std::uint64_t, FeistelShape::max_rounds> keys_;
  };

  /// Replaces the values by their images, `Count` at a time, which `encipher` does.
  template <std::size_t Count, class Encipher>
  void apply_together(std::span<std::uint64_t> values, Encipher* encipher) const noexcept {
    for (; values.size() >= Count; values = values.subspan(Count)) {
      encipher(lanes_, values.data());
      for (std::size_t i = 0; i < Count; ++i) walk(values[i]);
    }
    if (values.size() < 5) {  // These take less time one by one.
      for (std::uint64_t& value : values) {
        feistel<1>(lanes_, &value);
        walk(value);
      }
      return;
    }
    std::array<std::uint64_t, Count> padded{};
    std::copy(values.begin(), values.end(), padded.begin());
    encipher(lanes_, padded.data());
    for (std::size_t i = 0; i < values.size(); ++i) walk(values[i] = padded[i]);
  }

  /// Terminates: the cycle of a value that began below size returns to it.
  void walk(std::uint64_t& value) const noexcept {
    while (value >= lanes_.size()) [[unlikely]] feistel<1>(lanes_, &value);
  }

  Lanes lanes_;
};

}  // namespace penstock::detail
