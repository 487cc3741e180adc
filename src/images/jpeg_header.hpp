// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the markers of a JPEG file up to its first scan. They decide which decoder decodes the
// file.

#include <cstddef>
#include <optional>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <span>

#include "orientation.hpp"

namespace penstock::inline PENSTOCK_ABI::images {

struct JpegHeader {
  ImageSize size;  ///< as stored
  Orientation orientation;
  /// Baseline, 8 bits, one scan, grey or YCbCr, and the file ends with the end marker. Only for
  /// such files does a decoder that reports no damage give the same pixels as libjpeg.
  bool plain = false;
};

/// Returns nothing if the file is not JPEG, or if it is cut before the first scan.
std::optional<JpegHeader> read_jpeg_header(std::span<const std::byte> file);

}  // namespace penstock::images
