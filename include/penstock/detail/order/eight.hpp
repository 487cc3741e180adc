// SPDX-License-Identifier: Apache-2.0
#pragma once

// Eight: eight 64-bit numbers in two vectors of AVX2. Only functions that are compiled for AVX2
// (PENSTOCK_FOR_AVX2) may use it, and they may be called only if has_avx2(). Where PENSTOCK_AVX2 is
// not defined, the processor is of another kind.

#ifdef __x86_64__
#define PENSTOCK_FOR_AVX2 __attribute__((target("avx2")))
#define PENSTOCK_AVX2 __attribute__((target("avx2"), always_inline))

#include <immintrin.h>

#include <cstdint>
#include <penstock/detail/mix.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

inline bool has_avx2() noexcept {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

/// Each operation is one instruction for either vector, so that a processor finds two chains of
/// instructions side by side.
struct Eight {
  __m256i a, b;
};
PENSTOCK_AVX2 inline Eight eight_of(std::uint64_t number) noexcept {
  const __m256i four = _mm256_set1_epi64x(static_cast<long long>(number));
  return {four, four};
}
PENSTOCK_AVX2 inline Eight eight_at(const std::uint64_t* numbers) noexcept {
  const auto* const fours = reinterpret_cast<const __m256i*>(numbers);
  return {_mm256_loadu_si256(fours), _mm256_loadu_si256(fours + 1)};
}
PENSTOCK_AVX2 inline void store(Eight x, std::uint64_t* numbers) noexcept {
  auto* const fours = reinterpret_cast<__m256i*>(numbers);
  _mm256_storeu_si256(fours, x.a);
  _mm256_storeu_si256(fours + 1, x.b);
}
PENSTOCK_AVX2 inline Eight operator+(Eight x, Eight y) noexcept {
  return {_mm256_add_epi64(x.a, y.a), _mm256_add_epi64(x.b, y.b)};
}
PENSTOCK_AVX2 inline Eight operator-(Eight x, Eight y) noexcept {
  return {_mm256_sub_epi64(x.a, y.a), _mm256_sub_epi64(x.b, y.b)};
}
PENSTOCK_AVX2 inline Eight operator^(Eight x, Eight y) noexcept {
  return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}
PENSTOCK_AVX2 inline Eight operator&(Eight x, Eight y) noexcept {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
PENSTOCK_AVX2 inline Eight operator|(Eight x, Eight y) noexcept {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
PENSTOCK_AVX2 inline Eight operator<<(Eight x, Eight bits) noexcept {
  return {_mm256_sllv_epi64(x.a, bits.a), _mm256_sllv_epi64(x.b, bits.b)};
}
PENSTOCK_AVX2 inline Eight operator>>(Eight x, Eight bits) noexcept {
  return {_mm256_srlv_epi64(x.a, bits.a), _mm256_srlv_epi64(x.b, bits.b)};
}
PENSTOCK_AVX2 inline Eight operator<<(Eight x, int bits) noexcept {
  return {_mm256_slli_epi64(x.a, bits), _mm256_slli_epi64(x.b, bits)};
}
PENSTOCK_AVX2 inline Eight operator>>(Eight x, int bits) noexcept {
  return {_mm256_srli_epi64(x.a, bits), _mm256_srli_epi64(x.b, bits)};
}
/// All ones where x > y, which are below 2^63.
PENSTOCK_AVX2 inline Eight greater(Eight x, Eight y) noexcept {
  return {_mm256_cmpgt_epi64(x.a, y.a), _mm256_cmpgt_epi64(x.b, y.b)};
}
/// The lesser of each half.
PENSTOCK_AVX2 inline Eight min_halves(Eight x, Eight y) noexcept {
  return {_mm256_min_epu32(x.a, y.a), _mm256_min_epu32(x.b, y.b)};
}
/// The products of the lower halves.
PENSTOCK_AVX2 inline Eight lower_product(Eight x, Eight y) noexcept {
  return {_mm256_mul_epu32(x.a, y.a), _mm256_mul_epu32(x.b, y.b)};
}
PENSTOCK_AVX2 inline Eight times(Eight x, std::uint64_t factor) noexcept {
  const Eight low = eight_of(factor), high = eight_of(factor >> 32);
  return lower_product(x, low) + ((lower_product(x >> 32, low) + lower_product(x, high)) << 32);
}

PENSTOCK_AVX2 inline Eight mix64(Eight x, std::uint64_t add = 0) noexcept {
  x = x + eight_of(add + golden_ratio);
  x = times(x ^ (x >> 30), 0xbf58476d1ce4e5b9);
  x = times(x ^ (x >> 27), 0x94d049bb133111eb);
  return x ^ (x >> 31);
}

}  // namespace penstock::detail
#endif
