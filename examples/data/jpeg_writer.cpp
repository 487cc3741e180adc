// SPDX-License-Identifier: Apache-2.0

// libjpeg reports errors by longjmp: what is jumped over has no destructor.

#include "jpeg_writer.hpp"

#include <cstdio>  // before jpeglib.h, which wants FILE
//
#include <jpeglib.h>

#include <array>
#include <csetjmp>
#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace jpeg_writer {
namespace {

/// The picture as the file holds it, so that its orientation turns it upright.
Picture turned(const Picture& upright, int orientation) {
  const std::int32_t width = upright.width, height = upright.height;
  const bool across = orientation == 6 || orientation == 8;
  Picture stored{across ? height : width, across ? width : height, {}};
  stored.rgb.resize(upright.rgb.size());
  for (std::int32_t y = 0; y < stored.height; ++y)
    for (std::int32_t x = 0; x < stored.width; ++x) {
      const std::int32_t from_x = orientation == 3   ? width - 1 - x
                                  : orientation == 6 ? width - 1 - y
                                                     : y;
      const std::int32_t from_y = orientation == 3   ? height - 1 - y
                                  : orientation == 6 ? x
                                                     : height - 1 - x;
      const auto from = 3 * (std::size_t(from_y) * std::size_t(width) + std::size_t(from_x));
      const auto to = 3 * (std::size_t(y) * std::size_t(stored.width) + std::size_t(x));
      for (std::size_t c = 0; c < 3; ++c) stored.rgb[to + c] = upright.rgb[from + c];
    }
  return stored;
}

/// One value or four for each pixel, in place of three.
std::vector<std::uint8_t> samples(const Picture& picture, const Format& format) {
  if (!format.grey && !format.inks) return picture.rgb;
  std::vector<std::uint8_t> out;
  out.reserve(picture.rgb.size() / 3 * (format.grey ? 1 : 4));
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) {
    const int r = picture.rgb[i], g = picture.rgb[i + 1], b = picture.rgb[i + 2];
    if (format.grey) {
      out.push_back(static_cast<std::uint8_t>((r * 299 + g * 587 + b * 114 + 500) / 1000));
      continue;
    }
    for (const int ink : {r, g, b, 255})  // 255 is no ink.
      out.push_back(static_cast<std::uint8_t>(ink));
  }
  return out;
}

struct Errors {
  jpeg_error_mgr manager;  // first: the library has a pointer to it
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

class Writer {
 public:
  explicit Writer(const Format& format) : format_(format) {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = [](j_common_ptr info) {
      auto* errors = reinterpret_cast<Errors*>(info->err);
      errors->manager.format_message(info, errors->message.data());
      std::longjmp(errors->back, 1);
    };
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    jpeg_destroy_compress(&info_);
    std::free(file_);
  }

  std::vector<std::byte> write(const std::uint8_t* samples, const Picture& picture) {
    if (!compress(samples, picture.width, picture.height))
      throw std::runtime_error(std::string("libjpeg: ") + errors_.message.data());
    const auto* bytes = reinterpret_cast<const std::byte*>(file_);
    return {bytes, bytes + bytes_};
  }

 private:
  bool compress(const std::uint8_t* samples, std::int32_t width, std::int32_t height) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &file_, &bytes_);
    info_.image_width = static_cast<JDIMENSION>(width);
    info_.image_height = static_cast<JDIMENSION>(height);
    info_.input_components = format_.grey ? 1 : format_.inks ? 4 : 3;
    info_.in_color_space = format_.grey ? JCS_GRAYSCALE : format_.inks ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&info_);
    if (format_.inks) jpeg_set_colorspace(&info_, JCS_YCCK);
    jpeg_set_quality(&info_, format_.quality, TRUE);
    if (!format_.grey) set_sampling();
    if (format_.progressive) jpeg_simple_progression(&info_);
    jpeg_start_compress(&info_, TRUE);
    if (format_.orientation != 1) write_exif();
    const auto stride =
        static_cast<std::size_t>(width) * static_cast<std::size_t>(info_.input_components);
    while (info_.next_scanline < info_.image_height) {
      auto* row = const_cast<JSAMPROW>(samples + info_.next_scanline * stride);
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  void set_sampling() {
    info_.comp_info[0].h_samp_factor = format_.sampling == Sampling::s444 ? 1 : 2;
    info_.comp_info[0].v_samp_factor = format_.sampling == Sampling::s420 ? 2 : 1;
    if (format_.inks) {  // The black is as fine as the brightness.
      info_.comp_info[3].h_samp_factor = info_.comp_info[0].h_samp_factor;
      info_.comp_info[3].v_samp_factor = info_.comp_info[0].v_samp_factor;
    }
  }

  /// The shortest EXIF there is: one directory, with the orientation alone.
  void write_exif() {
    const std::array<JOCTET, 32> exif = {
        'E', 'x',  'i',  'f', 0,
        0,   'I',  'I',  42,  0,
        8,   0,    0,    0,   1,
        0,   0x12, 0x01, 3,   0,
        1,   0,    0,    0,   static_cast<JOCTET>(format_.orientation),
        0,   0,    0,    0,   0,
        0,   0};
    jpeg_write_marker(&info_, JPEG_APP0 + 1, exif.data(), exif.size());
  }

  const Format& format_;
  Errors errors_{};
  jpeg_compress_struct info_{};
  unsigned char* file_ = nullptr;
  unsigned long bytes_ = 0;
};

}  // namespace

std::vector<std::byte> write(const Picture& picture, const Format& format) {
  if (format.orientation == 1)
    return Writer(format).write(samples(picture, format).data(), picture);
  const Picture stored = turned(picture, format.orientation);
  return Writer(format).write(samples(stored, format).data(), stored);
}

}  // namespace jpeg_writer
