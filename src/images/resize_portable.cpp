// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>

#include "resize_passes.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

void down(const std::uint8_t* const* rows, const std::int16_t* weights, std::int32_t count,
          int bits, std::size_t bytes, std::uint8_t* out) {
  // A constant count lets the compiler use vector instructions.
  constexpr std::size_t kAtOnce = 64;
  for (std::size_t at = 0; at < bytes; at += kAtOnce) {
    std::array<std::int32_t, kAtOnce> sums;
    sums.fill(1 << (bits - 1));
    const std::size_t here = std::min(kAtOnce, bytes - at);
    for (std::int32_t tap = 0; tap < count; ++tap) {
      const std::uint8_t* const row = rows[tap] + at;
      const std::int32_t weight = weights[tap];
      if (here == kAtOnce)
        for (std::size_t i = 0; i < kAtOnce; ++i) sums[i] += row[i] * weight;
      else
        for (std::size_t i = 0; i < here; ++i) sums[i] += row[i] * weight;
    }
    for (std::size_t i = 0; i < here; ++i) out[at + i] = static_cast<std::uint8_t>(sums[i] >> bits);
  }
}

void one_across(const std::uint8_t* row, const ResizeTaps& columns, std::uint8_t* out) {
  for (std::size_t x = 0; x < columns.first.size(); ++x) {
    const std::uint8_t* in = row + std::ptrdiff_t{3} * columns.first[x];
    const std::int16_t* const weights = columns.weights_of(x);
    std::int32_t red = 1 << (columns.bits - 1), green = red, blue = red;
    for (std::int32_t tap = 0; tap < columns.count; ++tap, in += 3) {
      red += in[0] * weights[tap];
      green += in[1] * weights[tap];
      blue += in[2] * weights[tap];
    }
    for (const std::int32_t sum : {red, green, blue})
      *out++ = static_cast<std::uint8_t>(sum >> columns.bits);
  }
}

void across(const std::uint8_t* row_0, const std::uint8_t* row_1, const ResizeTaps& columns,
            std::uint8_t* out_0, std::uint8_t* out_1) {
  one_across(row_0, columns, out_0);
  if (out_1 != out_0) one_across(row_1, columns, out_1);
}

}  // namespace

const ResizePasses kPortablePasses{down, across};

}  // namespace penstock::images
