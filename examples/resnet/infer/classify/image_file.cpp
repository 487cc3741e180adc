// SPDX-License-Identifier: Apache-2.0

// libpng reports errors by longjmp. So what jumps and what is jumped over has nothing with a
// destructor; memory and handles belong to the callers.

#include "image_file.hpp"

#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <ctime>
#include <string>

#include "../../../common/read_file.hpp"

namespace resnet::classify {
namespace {

std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + " x " + std::to_string(height) + " pixels";
}

void make_room(Picture& picture, std::int64_t width, std::int64_t height) {
  picture.width = static_cast<std::int32_t>(width);
  picture.height = static_cast<std::int32_t>(height);
  picture.rgb.resize(static_cast<std::size_t>(3 * width * height));
}

/// Whether decoding may go on. libpng calls it while it decodes.
class DecodeWatch {
 public:
  DecodeWatch(const DecodeLimits& limits, const std::function<bool()>& stop)
      : limits_(limits), stop_(stop), start_(seconds()) {}

  bool may_go_on() {
    if (stop_ && stop_())
      end_ = End::stopped;
    else if (questions_++ % 16 == 0 &&
             seconds() - start_ > limits_.seconds)  // It is a system call.
      end_ = End::too_long;
    return end_ == End::none;
  }

  /// Throws if may_go_on has returned false.
  void require_no_end() const {
    if (end_ == End::stopped) throw DecodeStopped();
    if (end_ == End::too_long)
      throw ImageError("decoding takes too long: more than " +
                       std::to_string(std::lround(limits_.seconds)) + " s");
  }

  void require_pixels(std::int64_t width, std::int64_t height) const {
    if (width * height > limits_.pixels)
      throw ImageError("too large: " + size_text(width, height) + ", and at most " +
                       std::to_string(limits_.pixels) + " are decoded");
  }

 private:
  enum class End { none, stopped, too_long };

  /// Of this thread: how busy the machine is must not decide what is decoded.
  static double seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  const DecodeLimits& limits_;
  const std::function<bool()>& stop_;
  const double start_;
  std::uint64_t questions_ = 0;
  End end_ = End::none;
};

/// Throws when the file is too short for its pixels: no memory is taken for them. `wanted_bytes`:
/// what the best compression would need.
void require_bytes(std::size_t file_bytes, std::int64_t wanted_bytes, std::int64_t width,
                   std::int64_t height) {
  if (wanted_bytes > static_cast<std::int64_t>(file_bytes))
    throw ImageError("cut short: " + std::to_string(file_bytes) + " bytes cannot hold " +
                     size_text(width, height));
}

class PngReader {
 public:
  PngReader(std::span<const std::byte> file, DecodeWatch& watch)
      : file_(file), file_bytes_(file.size()), watch_(watch) {
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
    watch_.require_pixels(width, height);
    // Deflate makes at most 1032 bytes of one.
    require_bytes(file_bytes_, bits_of_pixel_ * width * height / 8 / 1032, width, height);
    make_room(picture, width, height);
    std::vector<png_bytep> rows;
    for (std::int64_t y = 0; y < height; ++y) rows.push_back(&picture.rgb[size(3 * y * width)]);
    if (!read_rows(rows.data())) fail();
  }

 private:
  static std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

  [[noreturn]] void fail() const {
    watch_.require_no_end();
    throw ImageError(std::string("broken PNG: ") + message_.data());
  }

  [[noreturn]] static void note_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->message_.data(), text, self->message_.size() - 1);
    png_longjmp(png, 1);
  }

  static void copy(png_structp png, png_bytep out, std::size_t bytes) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    // It reads a few thousand bytes at a time, which become some millions at most.
    if (!self->watch_.may_go_on()) png_longjmp(png, 1);
    if (bytes > self->file_.size()) png_error(png, "the file ends too early");
    std::memcpy(out, self->file_.data(), bytes);
    self->file_ = self->file_.subspan(bytes);
  }

  bool start() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, copy);
    // What is of no use is not even inflated.
    constexpr png_byte unused[] = "iCCP\0iTXt\0sPLT\0tEXt\0zTXt";
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, unused, sizeof(unused) / 5);
    png_read_info(png_, info_);
    bits_of_pixel_ = std::int64_t{png_get_bit_depth(png_, info_)} * png_get_channels(png_, info_);
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

  std::span<const std::byte> file_;  // what is yet to be read
  std::size_t file_bytes_;
  DecodeWatch& watch_;
  std::int64_t bits_of_pixel_ = 0;
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
  try {
    return most == SIZE_MAX ? examples::read_file(path, max_file_bytes)
                            : examples::read_head(path, most);
  } catch (const examples::ReadError& error) {
    throw ImageError(error.what());
  }
}

void decode_png(std::span<const std::byte> file, Picture& picture, const DecodeLimits& limits,
                const std::function<bool()>& stop) {
  DecodeWatch watch(limits, stop);
  PngReader(file, watch).read(picture);
}

}  // namespace resnet::classify
