// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recoder: makes a JPEG file smaller by fewer pixels and another quality, or decodes it to a PPM
// file.

#include <cstddef>
#include <cstdint>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>
#include <span>
#include <vector>

#include "packing.hpp"

namespace pack {

/// Use each object on one thread at a time.
class Recoder {
 public:
  explicit Recoder(const RecodeOptions& options);

  /// Returns the file scaled (antialiased) to a longer side of max_side, with its EXIF data, or
  /// `file` itself if its sides are not longer. With `raw` it returns a binary PPM file of the
  /// pixels as they are stored, without EXIF data. The result is valid until the next call and as
  /// long as `file` is. Throws penstock::images::ImageError if the file is not JPEG or is damaged,
  /// and std::runtime_error if libjpeg cannot write.
  std::span<const std::byte> operator()(std::span<const std::byte> file);

 private:
  void write_raw(const penstock::images::Pixels& pixels);
  void encode(penstock::images::ImageSize size, std::span<const std::byte> exif);

  RecodeOptions options_;
  penstock::images::JpegDecoder decoder_;
  penstock::images::Resizer resizer_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::byte> file_;
};

}  // namespace pack
