// SPDX-License-Identifier: Apache-2.0
#pragma once

// Chooses the part of an image that becomes the output: torchvision's transforms of the same names,
// as pure functions of the sample's seed and the image's size.
//
//   const penstock::images::RandomResizedCrop crop{.output = {224, 224}};
//   const penstock::images::RandomHorizontalFlip flip;
//   const penstock::images::View training = flip(sample.seed, crop(sample.seed, {375, 500}));
//
//   const penstock::images::ResizeCenterCrop centre{.resize = 256, .output = {224, 224}};
//   const penstock::images::View evaluation = centre(sample.seed, {375, 500});
//
// They are plain values, and any thread may call one. Each throws std::invalid_argument if a member
// or the image's size is invalid.

#include <cstdint>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::images {

/// A part of random area and shape, somewhere in the image, resized to `output`.
///
/// Ten times, an area is drawn from [min_area, max_area] of the image's, uniformly, and a ratio of
/// width to height from [min_ratio, max_ratio], uniformly in its logarithm. The first such
/// rectangle that fits is used, at a position drawn uniformly. If none fits, the largest centred
/// rectangle whose ratio is in the range is used.
struct RandomResizedCrop {
  ImageSize output{224, 224};                       ///< size of the output in pixels
  double min_area = 0.08, max_area = 1;             ///< parts of the image's area
  double min_ratio = 3.0 / 4, max_ratio = 4.0 / 3;  ///< width to height

  /// The view of an image of size `image` for the sample with this seed.
  View operator()(std::uint64_t sample_seed, ImageSize image) const;
};

/// Scales the shorter side to `resize` and the longer one in proportion, rounded down; then cuts
/// `output` out of the centre. `output` must not be larger than `resize` in either direction.
struct ResizeCenterCrop {
  std::int32_t resize = 256;   ///< length of the shorter side in pixels
  ImageSize output{224, 224};  ///< size of the output in pixels

  /// The view of an image of size `image`.
  View operator()(ImageSize image) const;
  /// The seed is ignored, because nothing is random here.
  View operator()(std::uint64_t, ImageSize image) const { return (*this)(image); }
};

/// Mirrors a view, left to right, with this probability. The draw is independent of that of
/// RandomResizedCrop with the same seed.
struct RandomHorizontalFlip {
  double probability = 0.5;  ///< 0 ... 1

  /// `view`, mirrored or as it is.
  View operator()(std::uint64_t sample_seed, View view) const;
};

}  // namespace penstock::images
