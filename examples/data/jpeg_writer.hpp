// SPDX-License-Identifier: Apache-2.0
#pragma once

// JPEG files of the kinds that data sets have: baseline and progressive, grey, in inks, turned.
//
//   const std::vector<std::byte> file = jpeg_writer::write(picture, {.quality = 88});

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jpeg_writer {

struct Picture {
  std::int32_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< height x width x 3
};

enum class Sampling { s420, s422, s444 };  ///< of the colours: 4:2:0, 4:2:2, 4:4:4

struct Format {
  int quality = 88;  ///< 1 to 100
  Sampling sampling = Sampling::s420;
  bool progressive = false;
  bool grey = false;
  bool inks = false;  ///< CMYK as Adobe's programs write it
  /// EXIF's: 1, 3, 6 or 8. The file holds the picture turned, and the tag that turns it upright.
  int orientation = 1;
};

/// Any number of threads may call it. Throws std::runtime_error when libjpeg fails.
std::vector<std::byte> write(const Picture& picture, const Format& format);

}  // namespace jpeg_writer
