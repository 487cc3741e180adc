// SPDX-License-Identifier: Apache-2.0
#pragma once

// The two inner loops of Resizer, chosen for this processor. All versions give the same bytes: sums
// of byte x weight in 32 bits, rounded by 2^(bits - 1) and shifted by `bits`.

#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>

#include "resize_taps.hpp"

namespace penstock::inline PENSTOCK_ABI::images {

struct ResizePasses {
  static constexpr std::int32_t kRowsMultiple = 2;     ///< multiple of ResizeTaps::count for down
  static constexpr std::int32_t kColumnsMultiple = 4;  ///< multiple of ResizeTaps::count for across
  static constexpr std::size_t kReadAhead = 16;        ///< bytes

  /// Makes one row of `bytes` bytes from `count` rows. Each row has at least `bytes` bytes; `out`
  /// must not be one of them.
  void (*down)(const std::uint8_t* const* rows, const std::int16_t* weights, std::int32_t count,
               int bits, std::size_t bytes, std::uint8_t* out);

  /// Makes two rows of pixels from two rows, which may be the same row. It may read bytes of each
  /// row that have a weight of 0, up to read_bytes(columns).
  void (*across)(const std::uint8_t* row_0, const std::uint8_t* row_1, const ResizeTaps& columns,
                 std::uint8_t* out_0, std::uint8_t* out_1);
};

/// The number of bytes of a row that `across` may read.
inline std::size_t read_bytes(const ResizeTaps& columns) {
  return static_cast<std::size_t>(std::int64_t{3} * (columns.end - columns.begin + columns.count)) +
         ResizePasses::kReadAhead;
}

/// The version for any processor.
extern const ResizePasses kPortablePasses;

/// Returns the fastest version for this processor.
const ResizePasses& fastest_passes();

}  // namespace penstock::images
