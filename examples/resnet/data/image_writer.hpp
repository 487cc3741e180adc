// SPDX-License-Identifier: Apache-2.0
#pragma once

// ImageWriter: whole images on the CPU, each value the one that normalised_pixel gives, bit for
// bit, in a small part of its time. A row of an image lies between two rows of the record; those,
// 32 of them whatever the size, are resized to the image's width once, and not again for each row
// between.
//
//   const ImageWriter write{224};
//   write(record, view, pixels);   // 3 x 224 x 224 floats

#include <cstdint>
#include <vector>

#include "augment.hpp"

namespace resnet {

/// Any number of threads may use one.
class ImageWriter {
 public:
  /// For images of size x size pixels.
  explicit ImageWriter(std::int32_t size);

  /// Writes channel x height x width values, as `view` of `record` shows them, and returns where
  /// they end. Allocates nothing.
  float* operator()(const std::uint8_t* record, const View& view, float* pixels) const;
  /// The same, not normalised: each value rounded to one of 0 ... 255.
  std::uint8_t* operator()(const std::uint8_t* record, const View& view,
                           std::uint8_t* pixels) const;

 private:
  template <class T>
  T* write(const std::uint8_t* record, const View& view, T* pixels) const;

  std::vector<detail::Neighbours>
      neighbours_;  // of each column, and of each row: images are square
};

}  // namespace resnet
