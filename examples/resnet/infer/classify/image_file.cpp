// SPDX-License-Identifier: Apache-2.0

// Both libraries report errors by longjmp. So what jumps and what is jumped over has nothing with a
// destructor; memory and handles belong to the callers.

#include "image_file.hpp"

#include <cstdio>  // before jpeglib.h, which wants FILE
//
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

namespace resnet::classify {
namespace {

/// Room for the picture's pixels; throws when there are too many.
void make_room(Picture& picture, std::int64_t width, std::int64_t height) {
  if (width * height > max_pixels)
    throw ImageError("too large: " + std::to_string(width) + " x " + std::to_string(height) +
                     " pixels");
  picture.width = static_cast<std::int32_t>(width);
  picture.height = static_cast<std::int32_t>(height);
  picture.rgb.resize(static_cast<std::size_t>(3 * width * height));
}

// ---- JPEG ---------------------------------------------------------------------------------------

struct JpegErrors {
  jpeg_error_mgr manager;  // first: the library has a pointer to it
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void end_jpeg(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->manager.format_message(info, errors->message.data());
  std::longjmp(errors->back, 1);
}

/// Damage that the library can work around is no error, as to everybody else; an early end is one.
void note_jpeg_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) end_jpeg(info);
}

class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> file) : file_(file) {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = end_jpeg;
    errors_.manager.emit_message = note_jpeg_message;
    if (!create()) fail();
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  void read(Picture& picture) {
    if (!start()) fail();
    make_room(picture, info_.output_width, info_.output_height);
    if (!inks()) {
      if (!read_rows(picture.rgb.data(), std::size_t{3} * info_.output_width)) fail();
      return;
    }
    std::vector<std::uint8_t> row(std::size_t{4} * info_.output_width);
    for (std::uint8_t* out = picture.rgb.data(); info_.output_scanline < info_.output_height;) {
      if (!read_row(row.data())) fail();
      out = convert_inks(row, out);
    }
  }

 private:
  [[noreturn]] void fail() const {
    throw ImageError(std::string("broken JPEG: ") + errors_.message.data());
  }
  bool inks() const { return info_.out_color_space == JCS_CMYK; }

  bool create() {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_decompress(&info_);
    return true;
  }
  bool start() {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file_.data()), file_.size());
    jpeg_read_header(&info_, TRUE);
    const bool four = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg_calc_output_dimensions(&info_);
    // A progressive file is decoded here, whole: not before its size was looked at.
    if (std::int64_t{info_.output_width} * info_.output_height > max_pixels) return true;
    jpeg_start_decompress(&info_);
    return true;
  }
  bool read_rows(std::uint8_t* out, std::size_t stride) {
    if (setjmp(errors_.back) != 0) return false;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = out + info_.output_scanline * stride;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    return true;
  }
  bool read_row(std::uint8_t* out) {
    if (setjmp(errors_.back) != 0) return false;
    JSAMPROW row = out;
    jpeg_read_scanlines(&info_, &row, 1);
    return true;
  }

  /// As Adobe's programs write inks, and as Pillow reads them of whatever program: 255 is none.
  static std::uint8_t* convert_inks(const std::vector<std::uint8_t>& row, std::uint8_t* out) {
    for (std::size_t x = 0; x < row.size(); x += 4)
      for (std::size_t c = 0; c < 3; ++c)
        *out++ = static_cast<std::uint8_t>((row[x + c] * row[x + 3] + 127) / 255);
    return out;
  }

  std::span<const std::byte> file_;
  JpegErrors errors_{};
  jpeg_decompress_struct info_{};
};

// ---- PNG ----------------------------------------------------------------------------------------

class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> file) : file_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, note_error, [](auto, auto) {});
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ != nullptr) return;
    png_destroy_read_struct(&png_, nullptr, nullptr);
    throw std::bad_alloc();
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  void read(Picture& picture) {
    if (!start()) fail();
    const std::int64_t width = png_get_image_width(png_, info_);
    const std::int64_t height = png_get_image_height(png_, info_);
    make_room(picture, width, height);
    std::vector<png_bytep> rows;
    for (std::int64_t y = 0; y < height; ++y) rows.push_back(&picture.rgb[size(3 * y * width)]);
    if (!read_rows(rows.data())) fail();
  }

 private:
  static std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

  [[noreturn]] void fail() const {
    throw ImageError(std::string("broken PNG: ") + message_.data());
  }

  [[noreturn]] static void note_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->message_.data(), text, self->message_.size() - 1);
    png_longjmp(png, 1);
  }

  static void copy(png_structp png, png_bytep out, std::size_t bytes) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (bytes > self->file_.size()) png_error(png, "the file ends too early");
    std::memcpy(out, self->file_.data(), bytes);
    self->file_ = self->file_.subspan(bytes);
  }

  bool start() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, copy);
    png_read_info(png_, info_);
    png_set_expand(png_);  // palettes and fewer than eight bits
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != std::size_t{3} * png_get_image_width(png_, info_))
      png_error(png_, "pixels that are not three bytes");
    return true;
  }

  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  std::span<const std::byte> file_;
  std::array<char, 128> message_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

bool starts_with(std::span<const std::byte> bytes, std::initializer_list<int> wanted) {
  return bytes.size() >= wanted.size() &&
         std::equal(wanted.begin(), wanted.end(), bytes.begin(),
                    [](int a, std::byte b) { return std::byte(a) == b; });
}

}  // namespace

ImageKind kind_of(std::span<const std::byte> head) {
  if (starts_with(head, {0xff, 0xd8, 0xff})) return ImageKind::jpeg;
  if (starts_with(head, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'})) return ImageKind::png;
  return ImageKind::neither;
}

std::vector<std::byte> read_file(const std::filesystem::path& path, std::size_t most) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    throw ImageError(error ? error.message() : "No such file or directory");
  if (!std::filesystem::is_regular_file(status)) throw ImageError("no regular file");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) throw ImageError(std::generic_category().message(errno));
  constexpr std::size_t step = std::size_t{1} << 20;
  std::vector<std::byte> bytes;
  for (std::size_t there = 0;;) {
    bytes.resize(there + std::min(step, most - there));
    const std::size_t read = std::fread(bytes.data() + there, 1, bytes.size() - there, file.get());
    if (std::ferror(file.get()) != 0) throw ImageError(std::generic_category().message(errno));
    there += read;
    if (there < bytes.size() || there == most) {
      bytes.resize(there);
      return bytes;
    }
  }
}

void decode(std::span<const std::byte> file, Picture& picture) {
  if (file.empty()) throw ImageError("the file is empty");
  switch (kind_of(file)) {
    case ImageKind::jpeg:
      return JpegReader(file).read(picture);
    case ImageKind::png:
      return PngReader(file).read(picture);
    case ImageKind::neither:
      throw ImageError("neither JPEG nor PNG");
  }
}

}  // namespace resnet::classify
