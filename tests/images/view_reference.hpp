// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a View defines, computed in double precision over every pixel of the region: slow, and
// nothing to go wrong. With the images and the views of the tests.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::images::test {

/// An image in memory, `stride` bytes from row to row.
struct TestImage {
  ImageSize size;
  std::int64_t stride = 0;
  std::vector<std::uint8_t> bytes;

  std::uint8_t at(std::int32_t y, std::int32_t x, std::size_t channel) const {
    return bytes[static_cast<std::size_t>(y * stride + x * std::int64_t{3}) + channel];
  }
  Pixels pixels() const { return {bytes.data(), size, stride}; }
};

/// Noise, from one end of the range to the other; `gap` bytes behind each row.
inline TestImage test_image(ImageSize size, std::uint32_t seed, std::int64_t gap = 0) {
  TestImage image{size, std::int64_t{3} * size.width + gap, {}};
  image.bytes.resize(static_cast<std::size_t>(image.stride * size.height));
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::uint8_t& byte : image.bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return image;
}

/// Crops `region`, and resizes it to `output`.
inline View crop_view(const Region& region, ImageSize output, bool flip = false) {
  return {region,
          double(region.top),
          double(region.left),
          double(region.height) / output.height,
          double(region.width) / output.width,
          output,
          flip};
}

/// Resizes the whole image so that its smaller side is 8 / 7 of `side`, and takes the middle.
inline View centre_view(ImageSize image, std::int32_t side) {
  const double step = std::min(image.height, image.width) / (side * 8.0 / 7.0);
  return {{0, 0, image.height, image.width},
          (image.height - side * step) / 2,
          (image.width - side * step) / 2,
          step,
          step,
          {side, side},
          false};
}

/// The weights of the pixels low ... low + size - 1 for the output whose centre is given.
inline std::vector<double> reference_weights(double centre, double step, std::int32_t low,
                                             std::int32_t size) {
  std::vector<double> weights;
  double total = 0;
  for (std::int32_t i = low; i < low + size; ++i) {
    weights.push_back(std::max(0.0, 1 - std::abs(i + 0.5 - centre) / std::max(step, 1.0)));
    total += weights.back();
  }
  for (double& weight : weights) weight /= total;
  return weights;
}

/// The output in the scale of bytes, not rounded: height x width x 3 values.
inline std::vector<double> reference_of(const TestImage& image, const View& view) {
  const Region& region = view.region;
  std::vector<double> out;
  for (std::int32_t y = 0; y < view.output.height; ++y) {
    const auto rows = reference_weights(view.origin_y + (y + 0.5) * view.step_y, view.step_y,
                                        region.top, region.height);
    for (std::int32_t x = 0; x < view.output.width; ++x) {
      const std::int32_t column = view.flip ? view.output.width - 1 - x : x;
      const auto columns = reference_weights(view.origin_x + (column + 0.5) * view.step_x,
                                             view.step_x, region.left, region.width);
      for (std::size_t c = 0; c < 3; ++c) {
        double value = 0;
        for (std::int32_t i = 0; i < region.height; ++i)
          for (std::int32_t j = 0; j < region.width; ++j)
            value += rows[static_cast<std::size_t>(i)] * columns[static_cast<std::size_t>(j)] *
                     image.at(region.top + i, region.left + j, c);
        out.push_back(value);
      }
    }
  }
  return out;
}

}  // namespace penstock::images::test
