// SPDX-License-Identifier: Apache-2.0

// This file is compiled for any x86-64. Each function declares that it needs AVX2, and is called
// only if the processor has AVX2.

#include "resize_passes.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>
#define PENSTOCK_AVX2 __attribute__((target("avx2")))

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

/// Returns two 16-bit weights, for _mm256_madd_epi16.
PENSTOCK_AVX2 inline __m256i pair(const std::int16_t* weights) {
  std::int32_t both;
  std::memcpy(&both, weights, sizeof(both));
  return _mm256_set1_epi32(both);
}

PENSTOCK_AVX2 inline __m256i load(const std::uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

/// Processes 32 bytes from `at` on.
PENSTOCK_AVX2 inline void down_32(const std::uint8_t* const* rows, const std::int16_t* weights,
                                  std::int32_t count, int bits, std::size_t at, std::uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  const __m128i shift = _mm_cvtsi32_si128(bits);
  __m256i sum_0 = _mm256_set1_epi32(1 << (bits - 1)), sum_1 = sum_0, sum_2 = sum_0, sum_3 = sum_0;
  for (std::int32_t tap = 0; tap < count; tap += 2) {
    const __m256i weight = pair(weights + tap);
    const __m256i a = load(rows[tap] + at), b = load(rows[tap + 1] + at);
    const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    const auto add = [&](__m256i sum, __m256i pairs) PENSTOCK_AVX2 {
      return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, weight));
    };
    sum_0 = add(sum_0, _mm256_unpacklo_epi8(low, zero));
    sum_1 = add(sum_1, _mm256_unpackhi_epi8(low, zero));
    sum_2 = add(sum_2, _mm256_unpacklo_epi8(high, zero));
    sum_3 = add(sum_3, _mm256_unpackhi_epi8(high, zero));
  }
  const __m256i first =
      _mm256_packs_epi32(_mm256_sra_epi32(sum_0, shift), _mm256_sra_epi32(sum_1, shift));
  const __m256i second =
      _mm256_packs_epi32(_mm256_sra_epi32(sum_2, shift), _mm256_sra_epi32(sum_3, shift));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), _mm256_packus_epi16(first, second));
}

PENSTOCK_AVX2 void down(const std::uint8_t* const* rows, const std::int16_t* weights,
                        std::int32_t count, int bits, std::size_t bytes, std::uint8_t* out) {
  constexpr std::size_t kAtOnce = 32;
  if (bytes < kAtOnce) return kPortablePasses.down(rows, weights, count, bits, bytes, out);
  for (std::size_t at = 0; at + kAtOnce <= bytes; at += kAtOnce)
    down_32(rows, weights, count, bits, at, out);
  if (bytes % kAtOnce != 0) down_32(rows, weights, count, bits, bytes - kAtOnce, out);
}

/// A shuffle that selects four pixels of each row in 16 bits: the red of two, the green of two, the
/// blue of two, and nothing.
PENSTOCK_AVX2 inline __m256i pixels(int first) {
  const auto at = [first](int byte) { return static_cast<char>(3 * first + byte); };
  const char none = -1;
  const __m128i half = _mm_setr_epi8(at(0), none, at(3), none, at(1), none, at(4), none, at(2),
                                     none, at(5), none, none, none, none, none);
  return _mm256_broadcastsi128_si256(half);
}

/// Returns the red, green and blue sums of output pixel x, for row 0 and then for row 1.
PENSTOCK_AVX2 inline __m256i sums(const std::uint8_t* row_0, const std::uint8_t* row_1,
                                  const ResizeTaps& columns, std::size_t x, __m256i pixels_01,
                                  __m256i pixels_23) {
  const auto load_half = [](const std::uint8_t* from) PENSTOCK_AVX2 {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  const std::ptrdiff_t first = std::ptrdiff_t{3} * columns.first[x];
  const std::int16_t* const weights = columns.weights_of(x);
  row_0 += first;
  row_1 += first;
  __m256i even = _mm256_set1_epi32(1 << (columns.bits - 1)), odd = _mm256_setzero_si256();
  for (std::int32_t tap = 0; tap < columns.count; tap += 4, row_0 += 12, row_1 += 12) {
    const __m256i in =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(row_0)), load_half(row_1), 1);
    even = _mm256_add_epi32(
        even, _mm256_madd_epi16(_mm256_shuffle_epi8(in, pixels_01), pair(weights + tap)));
    odd = _mm256_add_epi32(
        odd, _mm256_madd_epi16(_mm256_shuffle_epi8(in, pixels_23), pair(weights + tap + 2)));
  }
  return _mm256_sra_epi32(_mm256_add_epi32(even, odd), _mm_cvtsi32_si128(columns.bits));
}

/// Returns four output pixels from x on, as four times three bytes and four unused bytes: for row
/// 0, then for row 1.
PENSTOCK_AVX2 inline __m256i four_pixels(const std::uint8_t* row_0, const std::uint8_t* row_1,
                                         const ResizeTaps& columns, std::size_t x,
                                         __m256i pixels_01, __m256i pixels_23) {
  const auto at = [&](std::size_t i) PENSTOCK_AVX2 {
    return sums(row_0, row_1, columns, x + i, pixels_01, pixels_23);
  };
  const __m256i first = _mm256_packs_epi32(at(0), at(1)), second = _mm256_packs_epi32(at(2), at(3));
  const __m128i without_fourth = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 3, 3, 3);
  return _mm256_shuffle_epi8(_mm256_packus_epi16(first, second),
                             _mm256_broadcastsi128_si256(without_fourth));
}

PENSTOCK_AVX2 void across(const std::uint8_t* row_0, const std::uint8_t* row_1,
                          const ResizeTaps& columns, std::uint8_t* out_0, std::uint8_t* out_1) {
  const __m256i pixels_01 = pixels(0), pixels_23 = pixels(2);
  const std::size_t outputs = columns.first.size();
  std::size_t x = 0;
  for (; x + 6 <= outputs; x += 4) {  // It writes 16 bytes; the last four are written again later.
    const __m256i bytes = four_pixels(row_0, row_1, columns, x, pixels_01, pixels_23);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out_0 + 3 * x), _mm256_castsi256_si128(bytes));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out_1 + 3 * x), _mm256_extracti128_si256(bytes, 1));
  }
  for (; x < outputs; ++x) {
    __m256i bytes = sums(row_0, row_1, columns, x, pixels_01, pixels_23);
    bytes = _mm256_packs_epi32(bytes, bytes);
    bytes = _mm256_packus_epi16(bytes, bytes);
    const std::int32_t pixel_0 = _mm256_cvtsi256_si32(bytes);
    const std::int32_t pixel_1 = _mm_cvtsi128_si32(_mm256_extracti128_si256(bytes, 1));
    std::memcpy(out_0 + 3 * x, &pixel_0, 3);
    std::memcpy(out_1 + 3 * x, &pixel_1, 3);
  }
}

constexpr ResizePasses kAvx2Passes{down, across};

}  // namespace

const ResizePasses& fastest_passes() {
  return __builtin_cpu_supports("avx2") != 0 ? kAvx2Passes : kPortablePasses;
}

}  // namespace penstock::images

#else

namespace penstock::inline PENSTOCK_ABI::images {
const ResizePasses& fastest_passes() {
  return kPortablePasses;
}
}  // namespace penstock::images

#endif
