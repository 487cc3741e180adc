// SPDX-License-Identifier: Apache-2.0
#pragma once

// Image files in memory, for tests: what libjpeg and libpng make of pixels.
//
//   const auto bytes = jpeg_file(pixels, 40, 30, {.channels = 3, .quality = 95});
//   const auto other = png_file(pixels, 40, 30, {.colour_type = PNG_COLOR_TYPE_RGB});

#include <cstdio>  // before jpeglib.h, which wants FILE
//
#include <jpeglib.h>
#include <png.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace resnet::classify::test {

using Bytes = std::vector<std::byte>;

struct JpegOptions {
  int channels = 3;  ///< 1: grey, 3: RGB, 4: CMYK
  int quality = 95;
  bool progressive = false, adobe = false;  ///< adobe: with its marker
  int scans = 0;                            ///< of RGB, up to 190; 0: as the library writes them
};

/// The lowest frequency of all colours together, then one frequency of one colour each.
inline std::vector<jpeg_scan_info> scans_of_one_frequency(int count) {
  std::vector<jpeg_scan_info> scans{{3, {0, 1, 2}, 0, 0, 0, 0}};
  for (int frequency = 1; frequency < DCTSIZE2; ++frequency)
    for (int colour = 0; colour < 3; ++colour)
      if (static_cast<int>(scans.size()) < count)
        scans.push_back({1, {colour}, frequency, frequency, 0, 0});
  return scans;
}

/// `pixels`: height x width x channels. Colours are not subsampled.
inline Bytes jpeg_file(const std::vector<std::uint8_t>& pixels, int width, int height,
                       const JpegOptions& options = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};  // an error ends the program: the pixels are ours
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = options.channels;
  info.in_color_space = options.channels == 1   ? JCS_GRAYSCALE
                        : options.channels == 3 ? JCS_RGB
                                                : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  for (int i = 0; i < info.num_components; ++i)
    info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
  info.write_Adobe_marker = options.adobe ? TRUE : FALSE;
  if (options.progressive) jpeg_simple_progression(&info);
  const std::vector<jpeg_scan_info> scans = scans_of_one_frequency(options.scans);
  if (options.scans > 0) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels.data() +
                                     std::size_t{info.next_scanline} *
                                         static_cast<std::size_t>(width * options.channels));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* bytes = reinterpret_cast<const std::byte*>(memory);
  Bytes file(bytes, bytes + size);
  std::free(memory);  // libjpeg's own allocation
  return file;
}

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

/// Smooth, so that JPEG keeps it: height x width x channels.
inline std::vector<std::uint8_t> smooth_pixels(int width, int height, int channels,
                                               int variant = 0) {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        pixels.push_back(static_cast<std::uint8_t>(
            (40 + 37 * variant + 150 * x / width * (c + 1) / 3 + 60 * y / height) % 256));
  return pixels;
}

}  // namespace resnet::classify::test
