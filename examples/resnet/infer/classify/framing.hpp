// SPDX-License-Identifier: Apache-2.0
#pragma once

// Framer: from a picture of any size to the square that a network reads, as torchvision's
// Resize(resize), CenterCrop(crop) do with a PIL image: the shorter side becomes `resize`, by
// triangle filters as wide as the picture is scaled down (PIL's BILINEAR, antialiased), across
// first, then down, each rounded to a byte; then the middle. Only what the crop shows is computed.
//
//   Framer frame({.resize = 256, .crop = 224});
//   frame(picture, pixels);                        // 224 x 224 x 3 bytes

#include <cstdint>
#include <vector>

#include "image_file.hpp"

namespace resnet::classify {

struct Framing {
  std::int32_t resize = 256;  ///< the shorter side, at least `crop`
  std::int32_t crop = 224;    ///< height and width
};

/// One thread at a time: it has memory of its own, which grows to the largest picture's needs.
class Framer {
 public:
  explicit Framer(const Framing& framing) : framing_(framing) {}

  /// `out`: crop x crop x 3.
  void operator()(const Picture& picture, std::uint8_t* out);

 private:
  /// What output pixels of one axis are made of.
  struct Taps {
    std::vector<std::int32_t> first;   // by output pixel: the first input pixel
    std::vector<std::size_t> offsets;  // and where its weights begin; one more
    std::vector<float> weights;        // sum to 1
  };
  void find_taps(Taps& taps, std::int32_t in, std::int64_t out) const;
  void across(const Picture& picture);
  void down(std::uint8_t* out);

  Framing framing_;
  Taps columns_, rows_;
  std::vector<std::uint8_t> narrow_;  // the picture's rows from first_row_ on, `crop` wide
  std::int32_t first_row_ = 0;
  std::vector<float> sums_;
};

}  // namespace resnet::classify
