// SPDX-License-Identifier: Apache-2.0

// Framer against the definition: the whole resized picture, in double, of which the middle is cut
// out.

#include "../../../../../examples/resnet/infer/classify/framing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "../../../../support/catch.hpp"

namespace resnet::classify {
namespace {

Picture noise(std::int32_t width, std::int32_t height) {
  Picture picture{width, height, {}};
  std::uint32_t state = 12345;
  for (std::int32_t i = 0; i < 3 * width * height; ++i) {
    state = state * 1664525 + 1013904223;
    picture.rgb.push_back(static_cast<std::uint8_t>(state >> 24));
  }
  return picture;
}

std::vector<std::uint8_t> framed(const Picture& picture, const Framing& framing) {
  Framer frame(framing);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(3 * framing.crop * framing.crop));
  frame(picture, out.data());
  return out;
}

/// Value `at` of a line of `in` values that becomes one of `out`: the mean under a triangle.
template <class Line>
double resampled(const Line& line, std::int32_t in, std::int32_t out, std::int32_t at) {
  const double scale = static_cast<double>(in) / out, reach = std::max(scale, 1.0);
  const double centre = (at + 0.5) * scale;
  double sum = 0, weights = 0;
  for (std::int32_t x = 0; x < in; ++x) {
    const double weight = std::max(0.0, 1 - std::abs(x + 0.5 - centre) / reach);
    sum += weight * line(x);
    weights += weight;
  }
  return sum / weights;
}

/// Without rounding on the way.
double wanted(const Picture& picture, const Framing& framing, std::int32_t y, std::int32_t x,
              std::int32_t c) {
  const std::int32_t shorter = std::min(picture.width, picture.height);
  const std::int32_t new_width = framing.resize * picture.width / shorter;
  const std::int32_t new_height = framing.resize * picture.height / shorter;
  const auto start = [&](std::int32_t size) {
    return static_cast<std::int32_t>(std::nearbyint((size - framing.crop) / 2.0));
  };
  return resampled(
      [&](std::int32_t row) {
        return resampled(
            [&](std::int32_t column) {
              return picture.rgb[static_cast<std::size_t>(
                  (std::int64_t{row} * picture.width + column) * 3 + c)];
            },
            picture.width, new_width, start(new_width) + x);
      },
      picture.height, new_height, start(new_height) + y);
}

TEST_CASE("framing: as the definition says, rounded twice", "[resnet][classify]") {
  struct Case {
    std::int32_t width, height;
    Framing framing;
  };
  const auto [width, height, framing] = GENERATE(
      Case{40, 30, {16, 12}}, Case{31, 47, {16, 11}}, Case{9, 7, {16, 16}}, Case{16, 16, {16, 16}},
      Case{100, 12, {16, 14}}, Case{12, 100, {17, 8}}, Case{1, 5, {9, 8}}, Case{64, 64, {37, 32}});
  INFO(width << " x " << height << " to " << framing.resize << ", " << framing.crop);
  const Picture picture = noise(width, height);
  const auto out = framed(picture, framing);
  double largest = 0;
  for (std::int32_t y = 0; y < framing.crop; ++y)
    for (std::int32_t x = 0; x < framing.crop; ++x)
      for (std::int32_t c = 0; c < 3; ++c) {
        const auto at = static_cast<std::size_t>((std::int64_t{y} * framing.crop + x) * 3 + c);
        largest = std::max(largest, std::abs(out[at] - wanted(picture, framing, y, x, c)));
      }
  CHECK(largest <= 1.01);  // half a unit across, half a unit down
}

TEST_CASE("framing: a picture of the right size stays as it is", "[resnet][classify]") {
  const Picture picture = noise(24, 24);
  CHECK(framed(picture, {24, 24}) == picture.rgb);
}

TEST_CASE("framing: one colour stays that colour, whatever the size", "[resnet][classify]") {
  for (const std::uint8_t value : std::initializer_list<std::uint8_t>{0, 1, 128, 255})
    for (const std::int32_t width : {1, 3, 50, 2000}) {
      Picture picture{width, 40, {}};
      picture.rgb.assign(static_cast<std::size_t>(std::int64_t{3} * width * 40), value);
      CHECK(framed(picture, {20, 16}) == std::vector<std::uint8_t>(3 * 16 * 16, value));
    }
}

TEST_CASE("framing: one framer for pictures of different sizes", "[resnet][classify]") {
  Framer frame({16, 12});
  std::vector<std::uint8_t> out(3 * 12 * 12);
  for (const std::int32_t width : {50, 8, 31}) {
    const Picture picture = noise(width, 20);
    frame(picture, out.data());
    CHECK(out == framed(picture, {16, 12}));
  }
}

}  // namespace
}  // namespace resnet::classify
