// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the markers of a JPEG file say, up to its first scan: as much as decides who decodes it.

#include <cstddef>
#include <optional>
#include <penstock/images/view.hpp>
#include <span>

#include "orientation.hpp"

namespace penstock::images {

struct JpegHeader {
  ImageSize size;  ///< as stored
  Orientation orientation;
  /// Baseline, 8 bits, one scan, grey or YCbCr, and it ends where a JPEG file ends. Only of such
  /// files does a decoder that reports no damage give the same pixels as libjpeg.
  bool plain = false;
};

/// Nothing for what is no JPEG file, or is cut before the first scan.
std::optional<JpegHeader> read_jpeg_header(std::span<const std::byte> file);

}  // namespace penstock::images
