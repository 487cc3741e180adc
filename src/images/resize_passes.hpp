// SPDX-License-Identifier: Apache-2.0
#pragma once

// The two inner loops of Resizer, for what this processor has. All give the same bytes: sums of
// byte x weight in 32 bits, rounded by 2^(bits - 1) and shifted by `bits`.

#include <cstddef>
#include <cstdint>

#include "resize_taps.hpp"

namespace penstock::images {

struct ResizePasses {
  static constexpr std::int32_t kRowsMultiple = 2;     ///< of ResizeTaps::count, down
  static constexpr std::int32_t kColumnsMultiple = 4;  ///< the same, across
  static constexpr std::size_t kReadAhead = 16;        ///< bytes

  /// One row of `bytes` bytes of `count` rows. All are valid for `bytes` bytes; `out` is none of
  /// them.
  void (*down)(const std::uint8_t* const* rows, const std::int16_t* weights, std::int32_t count,
               int bits, std::size_t bytes, std::uint8_t* out);

  /// Two rows of pixels of two rows (which may be the same twice). Of each row bytes may be read
  /// that have a weight of 0, up to read_bytes(columns).
  void (*across)(const std::uint8_t* row_0, const std::uint8_t* row_1, const ResizeTaps& columns,
                 std::uint8_t* out_0, std::uint8_t* out_1);
};

/// How many bytes of a row `across` may read.
inline std::size_t read_bytes(const ResizeTaps& columns) {
  return static_cast<std::size_t>(std::int64_t{3} * (columns.end - columns.begin + columns.count)) +
         ResizePasses::kReadAhead;
}

/// For any processor.
extern const ResizePasses kPortablePasses;

/// The fastest for this one.
const ResizePasses& fastest_passes();

}  // namespace penstock::images
