// SPDX-License-Identifier: Apache-2.0
#pragma once

// Image files to pixels: JPEG by libjpeg, PNG by libpng, told apart by their first bytes and never
// by their names.
//
//   Picture picture;                                       // its memory is used again and again
//   decode(read_file("cat.jpg"), picture);                 // throws ImageError, in one sentence
//
// Pixels are what Pillow's convert("RGB") makes of a file: grey and palettes become RGB, alpha is
// dropped, 16 bits keep their upper eight (of which grey ones are white to Pillow, nearly all),
// inks of a JPEG are as Adobe writes them. Neither EXIF's orientation nor gamma nor colour profiles
// are looked at. A file that ends too early is an error, not a picture that is grey below.

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

/// Larger ones are an error, before memory is taken for them: 400 MB of pixels.
inline constexpr std::int64_t max_pixels = std::int64_t{1} << 27;

/// The first `most` bytes of a regular file. Throws ImageError.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::size_t most = SIZE_MAX);

/// `file`: all of it. Throws ImageError; `picture` is then of no use. From any thread.
void decode(std::span<const std::byte> file, Picture& picture);

}  // namespace resnet::classify
