// SPDX-License-Identifier: Apache-2.0
#pragma once

// Image files to pixels: JPEG by libjpeg, PNG by libpng, told apart by their first bytes and never
// by their names.
//
//   Picture picture;                                       // its memory is used again and again
//   decode(read_file("cat.jpg"), picture);                 // throws ImageError, in one sentence
//   decode(file, picture, {.pixels = 1 << 20}, stop);      // foreign files: see DecodeLimits
//
// Pixels are what Pillow's convert("RGB") makes of a file: grey and palettes become RGB, alpha is
// dropped, 16 bits keep their upper eight (of which grey ones are white to Pillow, nearly all),
// inks of a JPEG are as Adobe writes them. Neither EXIF's orientation nor gamma nor colour profiles
// are looked at. A file that ends too early is an error, not a picture that is grey below.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

namespace resnet::classify {

/// The image cannot be had; what() says why, without the file's name.
class ImageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Picture {
  std::int32_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< height x width x 3
};

enum class ImageKind { jpeg, png, neither };

/// By the first eight bytes, or what there is of them.
ImageKind kind_of(std::span<const std::byte> head);

/// Limits of decode: a file that exceeds one is an ImageError. Pixels and memory are checked by the
/// headers, before memory is taken.
struct DecodeLimits {
  std::int64_t pixels = 178'956'970;  ///< as Pillow's; 537 MB of red, green and blue
  /// Bytes for the coefficients of a JPEG in several scans (progressive), which stay in memory
  /// until the last scan is read: 6 for each pixel with colours in full resolution, 3 with a
  /// quarter of it.
  std::int64_t coefficient_bytes = std::int64_t{1} << 29;
  int scans = 100;      ///< of a JPEG; encoders write about ten
  double seconds = 60;  ///< CPU time of the thread
};

/// Files of more bytes are an error.
inline constexpr std::uint64_t max_file_bytes = std::uint64_t{1} << 30;

/// decode was asked to stop.
class DecodeStopped : public std::runtime_error {
 public:
  DecodeStopped() : std::runtime_error("stopped") {}
};

/// The first `most` bytes of a regular file. Throws ImageError.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::size_t most = SIZE_MAX);

/// `file`: all of it. Throws ImageError; `picture` is then of no use. `stop`, which must not throw,
/// is called after every few rows of each scan; when it returns true, decode throws DecodeStopped.
/// From any thread.
void decode(std::span<const std::byte> file, Picture& picture, const DecodeLimits& limits = {},
            const std::function<bool()>& stop = {});

}  // namespace resnet::classify
