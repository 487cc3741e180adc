// SPDX-License-Identifier: Apache-2.0
#pragma once

// Image files: their bytes, what they are, by their first bytes and never by their names, and PNG
// to pixels by libpng. JPEG is for penstock::images.
//
//   Picture picture;                                          // its memory is used again and again
//   decode_png(read_file("cat.png"), picture);                // throws ImageError, in one sentence
//   decode_png(file, picture, {.pixels = 1 << 20}, stop);     // foreign files: see DecodeLimits
//
// Pixels are what Pillow's convert("RGB") makes of a PNG: grey and palettes become RGB, alpha is
// dropped, 16 bits keep their upper eight (of which grey ones are white to Pillow, nearly all).
// Neither gamma nor colour profiles are looked at. A file that ends too early is an error, not a
// picture that is grey below.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <penstock/images/image_error.hpp>
#include <span>
#include <vector>

namespace resnet::classify {

using penstock::images::DecodeStopped;
using penstock::images::ImageError;

struct Picture {
  std::int32_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< height x width x 3
};

enum class ImageKind { jpeg, png, neither };

/// By the first eight bytes, or what there is of them.
ImageKind kind_of(std::span<const std::byte> head);

/// A file that exceeds one is an ImageError. Pixels are checked by the header, before memory is
/// taken.
struct DecodeLimits {
  std::int64_t pixels = 178'956'970;  ///< as Pillow's; 537 MB of red, green and blue
  double seconds = 60;                ///< CPU time of the thread
};

/// Files of more bytes are an error.
inline constexpr std::uint64_t max_file_bytes = std::uint64_t{1} << 30;

/// The first `most` bytes of a regular file. Throws ImageError.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::size_t most = SIZE_MAX);

/// `file`: all of it. Throws ImageError; `picture` is then of no use. `stop`, which must not throw,
/// is called after every few rows; when it returns true, DecodeStopped is thrown. From any thread.
void decode_png(std::span<const std::byte> file, Picture& picture, const DecodeLimits& limits = {},
                const std::function<bool()>& stop = {});

}  // namespace resnet::classify
