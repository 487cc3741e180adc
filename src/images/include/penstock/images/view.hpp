// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sizes, rectangles and views of images, which decoders, crops and resizers exchange.
//
// A View says which part of an image becomes the output, and at which scale. Decoders use it to
// decode no more than the output needs; resizers and the kernel compute the output from it.

#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::images {

/// Size of an image in pixels.
struct ImageSize {
  std::int32_t height = 0, width = 0;  ///< pixels
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// A rectangle of whole pixels.
struct Region {
  /// Pixels, from the image's corner at the top left.
  std::int32_t top = 0, left = 0, height = 0, width = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

/// Interleaved red, green and blue, 3 bytes per pixel. Rows begin `stride` bytes apart. The creator
/// owns the memory.
struct Pixels {
  const std::uint8_t* data = nullptr;  ///< the pixel at the top left
  ImageSize size;                      ///< in pixels
  std::int64_t stride = 0;             ///< bytes
};

/// How an output of output.height x output.width pixels is made from an image. Pixel (r, c) of the
/// image covers [r, r + 1) x [c, c + 1). The centre of output pixel (y, x) lies at
///
///     (origin_y + (y + 0.5) * step_y, origin_x + (x + 0.5) * step_x)
///
/// in the image; with `flip`, x counts from the right. Values are weighted means by triangle
/// filters of half-width max(step, 1) (antialiased bilinear). Only pixels of `region` are used, and
/// the weights are renormalised at its border. So a view whose region is the crop crops first and
/// then resizes; a view whose region is the whole image resizes first and then crops.
struct View {
  Region region;  ///< pixels of the image from which the output is made
  /// The position of the output's top left corner in the image.
  double origin_y = 0, origin_x = 0;
  double step_y = 1, step_x = 1;  ///< pixels of the image for each pixel of the output
  ImageSize output;               ///< size of the output in pixels
  bool flip = false;              ///< mirrors the output, left to right
};

/// The view of all pixels of an image, unchanged.
constexpr View whole(ImageSize size) {
  return {.region = {0, 0, size.height, size.width}, .output = size};
}

/// The part of an image that is in memory, and the view in its coordinates. A decoder may have
/// decoded fewer rows and columns than the image has, at a smaller scale.
struct Decoded {
  Pixels pixels;  ///< the pixels in memory
  View view;      ///< how the output is made, in coordinates of `pixels`
};

}  // namespace penstock::images
