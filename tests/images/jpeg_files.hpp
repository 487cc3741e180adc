// SPDX-License-Identifier: Apache-2.0
#pragma once

// JPEG files in memory, for tests: what libjpeg makes of pixels, and of files.
//
//   const auto bytes = jpeg_file(pixels, 40, 30, {.quality = 95, .across = 2, .down = 2});

#include <cstdio>  // before jpeglib.h, which wants FILE
//
#include <jpeglib.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <penstock/version.hpp>
#include <random>
#include <stdexcept>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::images::test {

using Bytes = std::vector<std::byte>;

struct JpegFile {
  int channels = 3;  ///< 1: grey, 3: RGB, 4: CMYK
  int quality = 95;
  bool progressive = false, adobe = false;  ///< adobe: with its marker
  int scans = 0;                            ///< of RGB, up to 190; 0: as the library writes them
  int across = 1, down = 1;                 ///< pixels for each value of colour
  int restart_rows = 0;                     ///< a restart marker for every so many rows of blocks
  std::vector<std::uint8_t> app1{};         ///< the contents of a marker
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

/// `pixels`: height x width x channels.
inline Bytes jpeg_file(const std::vector<std::uint8_t>& pixels, int width, int height,
                       const JpegFile& options = {}) {
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
  if (options.channels == 4 && options.across * options.down > 1)
    jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, options.quality, TRUE);
  for (int i = 0; i < info.num_components; ++i)
    info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
  for (int i = 0; i < info.num_components; i += 3) {  // brightness, and black
    info.comp_info[i].h_samp_factor = options.across;
    info.comp_info[i].v_samp_factor = options.down;
  }
  info.write_Adobe_marker = options.adobe ? TRUE : FALSE;
  info.restart_in_rows = options.restart_rows;
  if (options.progressive) jpeg_simple_progression(&info);
  const std::vector<jpeg_scan_info> scans = scans_of_one_frequency(options.scans);
  if (options.scans > 0) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  if (!options.app1.empty())
    jpeg_write_marker(&info, JPEG_APP0 + 1, options.app1.data(),
                      static_cast<unsigned>(options.app1.size()));
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

/// Each value at random: height x width x channels.
inline std::vector<std::uint8_t> noisy_pixels(int width, int height, int channels) {
  std::mt19937_64 random(static_cast<unsigned>(width * 31 + height));
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(width * height * channels));
  for (std::uint8_t& value : pixels) value = static_cast<std::uint8_t>(random());
  return pixels;
}

struct DecodedFile {
  int width = 0, height = 0;
  std::vector<std::uint8_t> pixels;  ///< height x width x channels
};

/// All rows at `eighths`/8 of the size, as libjpeg's manual says; inks as they are.
inline DecodedFile decode_all(const Bytes& file, int eighths = 8) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  info.scale_num = static_cast<unsigned>(eighths);
  info.scale_denom = 8;
  jpeg_start_decompress(&info);
  DecodedFile result{static_cast<int>(info.output_width), static_cast<int>(info.output_height), {}};
  const std::size_t stride =
      std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components);
  result.pixels.resize(stride * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = &result.pixels[info.output_scanline * stride];
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_destroy_decompress(&info);
  return result;
}

/// Position of a marker's 0xff, of those before the first scan.
inline std::size_t find_marker(const Bytes& jpeg, std::initializer_list<int> wanted) {
  for (std::size_t at = 2; at + 4 < jpeg.size();) {
    const int marker = std::to_integer<int>(jpeg[at + 1]);
    for (const int one : wanted)
      if (marker == one) return at;
    at += 2 + (std::to_integer<std::size_t>(jpeg[at + 2]) << 8 |
               std::to_integer<std::size_t>(jpeg[at + 3]));
  }
  throw std::logic_error("the file has no such marker");
}

/// The same file without the first marker of this kind.
inline Bytes without_marker(Bytes jpeg, int marker) {
  const std::size_t at = find_marker(jpeg, {marker});
  const std::size_t length = 2 + (std::to_integer<std::size_t>(jpeg[at + 2]) << 8 |
                                  std::to_integer<std::size_t>(jpeg[at + 3]));
  const auto begin = jpeg.begin() + static_cast<std::ptrdiff_t>(at);
  jpeg.erase(begin, begin + static_cast<std::ptrdiff_t>(length));
  return jpeg;
}

/// The same file with another height and width in its frame's header.
inline Bytes with_size(Bytes jpeg, int height, int width) {
  std::size_t at = find_marker(jpeg, {0xc0, 0xc1, 0xc2}) + 5;
  for (const int size : {height, width})
    for (const int shift : {8, 0}) jpeg[at++] = static_cast<std::byte>(size >> shift & 255);
  return jpeg;
}

}  // namespace penstock::images::test
