// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the elements of an activation and of a convolution's weights lie, in either format. The
// pixels of a channel are evenly spaced in both, so a channel of an image is one strided row.

#include <cstdint>

#include "../ops.hpp"

namespace resnet::reference {

/// Element (n, c, h, w) lies at n * image + c * channel + (h * extents.w + w) * pixel.
struct ActivationLayout {
  ActivationLayout(const Extents& e, Format format)
      : extents(e),
        image(e.c * e.h * e.w),
        channel(format == Format::nchw ? e.h * e.w : 1),
        pixel(format == Format::nchw ? 1 : e.c) {}

  std::int64_t pixels() const { return extents.h * extents.w; }
  std::int64_t row(std::int64_t n, std::int64_t c) const { return n * image + c * channel; }

  Extents extents;
  std::int64_t image, channel, pixel;
};

/// Element (k, c, tap) lies at k * filter + c * channel + tap * step, tap = r * kernel + s.
struct WeightLayout {
  WeightLayout(const ConvolutionShape& shape, Format format)
      : filter(shape.in.c * shape.kernel * shape.kernel),
        channel(format == Format::nchw ? shape.kernel * shape.kernel : 1),
        step(format == Format::nchw ? 1 : shape.in.c) {}

  std::int64_t operator()(std::int64_t k, std::int64_t c, std::int64_t tap) const {
    return k * filter + c * channel + tap * step;
  }

  std::int64_t filter, channel, step;
};

}  // namespace resnet::reference
