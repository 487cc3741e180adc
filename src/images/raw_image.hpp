// SPDX-License-Identifier: Apache-2.0
#pragma once

// Images that need no decoding: binary PPM files (P6) with 8 bits per colour, as penstock-pack
// --raw writes them. The format is described at https://netpbm.sourceforge.net/doc/ppm.html

#include <cstddef>
#include <cstdint>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <span>

namespace penstock::inline PENSTOCK_ABI::images {

/// Returns the pixels inside `file`, or no data if it is not a PPM file. Throws ImageError if the
/// file is cut, has another number of bits, or has more than `max_pixels`.
Pixels raw_pixels(std::span<const std::byte> file, std::int64_t max_pixels);

}  // namespace penstock::images
