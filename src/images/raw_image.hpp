// SPDX-License-Identifier: Apache-2.0
#pragma once

// Images that need no decoding: binary PPM files (P6) with 8 bits a colour, as penstock-pack --raw
// writes them. The format: https://netpbm.sourceforge.net/doc/ppm.html

#include <cstddef>
#include <cstdint>
#include <penstock/images/view.hpp>
#include <span>

namespace penstock::images {

/// The pixels within `file`; without data if it is no PPM file. Throws ImageError for one that is
/// cut, has another number of bits, or has more than `max_pixels`.
Pixels raw_pixels(std::span<const std::byte> file, std::int64_t max_pixels);

}  // namespace penstock::images
