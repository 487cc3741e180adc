// SPDX-License-Identifier: Apache-2.0

#include "recode.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>
#include <cstdio>  // before jpeglib.h, which wants FILE
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
//
#include <jpeglib.h>

#include "programs/interrupt.hpp"

namespace pack {
namespace {

using penstock::images::ImageSize;
using penstock::images::View;

/// The output of libjpeg, and the jump target for its errors.
struct Output {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
  unsigned char* bytes;
  unsigned long size;
};

[[noreturn]] void end(j_common_ptr info) {
  auto& output = *static_cast<Output*>(info->client_data);
  info->err->format_message(info, output.message.data());
  std::longjmp(output.back, 1);
}

/// Returns false if libjpeg has failed. No object here has a destructor, because a jump may leave
/// the function.
bool try_encode(Output& output, const std::uint8_t* pixels, ImageSize size, int quality,
                std::span<const std::byte> exif) {
  output.jpeg.err = jpeg_std_error(&output.errors);
  output.errors.error_exit = end;
  output.jpeg.client_data = &output;
  if (setjmp(output.back) != 0) return false;
  jpeg_create_compress(&output.jpeg);
  output.jpeg.client_data = &output;
  jpeg_mem_dest(&output.jpeg, &output.bytes, &output.size);
  output.jpeg.image_width = static_cast<JDIMENSION>(size.width);
  output.jpeg.image_height = static_cast<JDIMENSION>(size.height);
  output.jpeg.input_components = 3;
  output.jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&output.jpeg);
  jpeg_set_quality(&output.jpeg, quality, TRUE);
  output.jpeg.optimize_coding = TRUE;
  jpeg_start_compress(&output.jpeg, TRUE);
  if (!exif.empty())
    jpeg_write_marker(&output.jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  while (output.jpeg.next_scanline < output.jpeg.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels) +
                std::size_t{3} * output.jpeg.image_width * output.jpeg.next_scanline;
    jpeg_write_scanlines(&output.jpeg, &row, 1);
  }
  jpeg_finish_compress(&output.jpeg);
  return true;
}

/// Returns the EXIF segment of a JPEG file without its marker and length, or nothing if there is
/// none. A decoder must have accepted the file.
std::span<const std::byte> exif_of(std::span<const std::byte> file) {
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(file[i]); };
  for (std::size_t place = 2; place + 10 <= file.size() && at(place) == 0xff;) {
    if (at(place + 1) == 0xff) {  // a fill byte
      ++place;
      continue;
    }
    const std::size_t length = at(place + 2) * 256 + at(place + 3), end = place + 2 + length;
    const unsigned marker = at(place + 1);
    if (marker == 0xda || length < 2 || end > file.size()) break;
    if (marker == 0xe1 && length >= 8 && std::memcmp(&file[place + 4], "Exif\0", 6) == 0)
      return file.subspan(place + 4, length - 2);
    place = end;
  }
  return {};
}

View whole(ImageSize image, std::int32_t max_side) {
  const double scale = static_cast<double>(max_side) / std::max(image.height, image.width);
  const auto scaled = [&](std::int32_t side) {
    return std::max(1, static_cast<std::int32_t>(std::lround(side * scale)));
  };
  View view;
  view.region = {0, 0, image.height, image.width};
  view.output = {scaled(image.height), scaled(image.width)};
  view.step_y = static_cast<double>(image.height) / view.output.height;
  view.step_x = static_cast<double>(image.width) / view.output.width;
  return view;
}

}  // namespace

Recoder::Recoder(const RecodeOptions& options)
    : options_(options),
      decoder_({.scaled_dct = false, .interrupted = penstock::programs::interrupted}) {}

std::span<const std::byte> Recoder::operator()(std::span<const std::byte> file) {
  const ImageSize size = decoder_.open(file);
  if (options_.max_side == 0 || std::max(size.height, size.width) <= options_.max_side) {
    if (!options_.raw) return file;
    write_raw(decoder_.decode(penstock::images::whole(size)).pixels);
    return file_;
  }
  const View view = whole(size, options_.max_side);
  pixels_.resize(std::size_t{3} * static_cast<std::size_t>(view.output.height) *
                 static_cast<std::size_t>(view.output.width));
  resizer_(decoder_.decode(view), pixels_);
  if (options_.raw)
    write_raw({pixels_.data(), view.output, std::int64_t{3} * view.output.width});
  else
    encode(view.output, exif_of(file));
  return file_;
}

void Recoder::write_raw(const penstock::images::Pixels& pixels) {
  const std::string header = "P6\n" + std::to_string(pixels.size.width) + " " +
                             std::to_string(pixels.size.height) + "\n255\n";
  const auto* const begin = reinterpret_cast<const std::byte*>(header.data());
  file_.assign(begin, begin + header.size());
  const std::ptrdiff_t row = std::ptrdiff_t{3} * pixels.size.width;
  for (std::int32_t y = 0; y < pixels.size.height; ++y) {
    const auto* const from = reinterpret_cast<const std::byte*>(pixels.data + y * pixels.stride);
    file_.insert(file_.end(), from, from + row);
  }
}

void Recoder::encode(ImageSize size, std::span<const std::byte> exif) {
  Output output{};
  const bool good = try_encode(output, pixels_.data(), size, options_.quality, exif);
  if (good) {
    const auto* const begin = reinterpret_cast<const std::byte*>(output.bytes);
    file_.assign(begin, begin + output.size);
    std::free(output.bytes);  // After an error, libjpeg does not say which memory it allocated.
  }
  jpeg_destroy_compress(&output.jpeg);
  if (!good) throw std::runtime_error(std::string("libjpeg: ") + output.message.data());
}

}  // namespace pack
