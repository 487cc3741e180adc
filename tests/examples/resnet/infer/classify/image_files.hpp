// SPDX-License-Identifier: Apache-2.0
#pragma once

// Image files in memory, for tests: what libjpeg and libpng make of pixels.
//
//   const auto bytes = jpeg_file(pixels, 40, 30, {.channels = 3, .quality = 95});
//   const auto other = png_file(pixels, 40, 30, {.colour_type = PNG_COLOR_TYPE_RGB});

#include <png.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../../../images/jpeg_files.hpp"

namespace resnet::classify::test {

using penstock::images::test::Bytes;
using penstock::images::test::jpeg_file;
using penstock::images::test::smooth_pixels;

struct PngOptions {
  int colour_type = PNG_COLOR_TYPE_RGB;
  int depth = 8;
  bool interlaced = false;
  std::vector<png_color> palette{};
};

/// `rows`: as PNG has them, one behind the other.
inline Bytes png_file(const std::vector<std::uint8_t>& rows, int width, int height,
                      const PngOptions& options = {}) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  Bytes file;
  png_set_write_fn(
      png, &file,
      [](png_structp writer, png_bytep data, std::size_t size) {
        auto* out = static_cast<Bytes*>(png_get_io_ptr(writer));
        const auto* bytes = reinterpret_cast<const std::byte*>(data);
        out->insert(out->end(), bytes, bytes + size);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               options.depth, options.colour_type,
               options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!options.palette.empty())
    png_set_PLTE(png, info, options.palette.data(), static_cast<int>(options.palette.size()));
  png_write_info(png, info);
  const std::size_t stride = rows.size() / static_cast<std::size_t>(height);
  std::vector<png_bytep> pointers;
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y)
    pointers.push_back(const_cast<png_bytep>(rows.data() + y * stride));
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

}  // namespace resnet::classify::test
