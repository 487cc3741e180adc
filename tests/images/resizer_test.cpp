// SPDX-License-Identifier: Apache-2.0

// Resizer against the definition in view.hpp, in double, and against torchvision.

#include <penstock/images/crop.hpp>
#include <penstock/images/resizer.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "pictures.hpp"
#include "resize_passes.hpp"
#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using test::noise;
using test::Picture;

std::vector<std::uint8_t> resized(const Pixels& pixels, const View& view) {
  Resizer resize;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(view.output.height * view.output.width) *
                                3);
  resize({pixels, view}, out);
  return out;
}

View crop_view(const Region& crop, ImageSize output) {
  return {.region = crop,
          .origin_y = static_cast<double>(crop.top),
          .origin_x = static_cast<double>(crop.left),
          .step_y = static_cast<double>(crop.height) / output.height,
          .step_x = static_cast<double>(crop.width) / output.width,
          .output = output};
}

/// The mean of `value(i)`, begin <= i < end, under the triangle of output `at`.
template <class Value>
double resampled(Value value, std::int32_t begin, std::int32_t end, double origin, double step,
                 std::int32_t at) {
  const double centre = origin + (at + 0.5) * step, reach = std::max(step, 1.0);
  double sum = 0, weights = 0;
  for (std::int32_t i = begin; i < end; ++i) {
    const double weight = std::max(0.0, 1 - std::abs(i + 0.5 - centre) / reach);
    sum += weight * value(i);
    weights += weight;
  }
  return sum / weights;
}

/// Without rounding.
double wanted(const Picture& picture, const View& view, std::int32_t y, std::int32_t x,
              std::int32_t c) {
  const Region& region = view.region;
  const std::int32_t column = view.flip ? view.output.width - 1 - x : x;
  return resampled(
      [&](std::int32_t row) {
        return resampled([&](std::int32_t at) { return picture.at(row, at, c); }, region.left,
                         region.left + region.width, view.origin_x, view.step_x, column);
      },
      region.top, region.top + region.height, view.origin_y, view.step_y, y);
}

double largest_error(const Picture& picture, const View& view) {
  const auto out = resized(picture.pixels(), view);
  double largest = 0;
  for (std::int32_t y = 0; y < view.output.height; ++y)
    for (std::int32_t x = 0; x < view.output.width; ++x)
      for (std::int32_t c = 0; c < 3; ++c)
        largest = std::max(
            largest, std::abs(out[static_cast<std::size_t>((y * view.output.width + x) * 3 + c)] -
                              wanted(picture, view, y, x, c)));
  return largest;
}

TEST_CASE("Resizer: torchvision's resized_crop, within 1", "[images][resizer]") {
  for (const auto& vector : test::vectors().at("crops")) {
    const auto& crop = vector.at("crop");
    const Region region{crop[0], crop[1], crop[2], crop[3]};
    INFO(vector.at("image") << ", " << crop);
    const Picture picture = noise(test::size_of(vector.at("image")));
    const View view = crop_view(region, test::size_of(vector.at("output")));
    CHECK(test::largest_difference(vector, resized(picture.pixels(), view)) <= 1);
  }
}

TEST_CASE("Resizer: torchvision's resize and center_crop, within 1", "[images][resizer]") {
  for (const auto& vector : test::vectors().at("centres")) {
    INFO(vector.at("image"));
    const Picture picture = noise(test::size_of(vector.at("image")));
    const ResizeCenterCrop crop{.resize = vector.at("resize"),
                                .output = test::size_of(vector.at("output"))};
    CHECK(test::largest_difference(vector, resized(picture.pixels(), crop(picture.size))) <= 1);
  }
}

TEST_CASE("Resizer: as the definition says, rounded twice", "[images][resizer]") {
  std::mt19937 random(3);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 300; ++i) {
    const Picture picture = noise({between(1, 60), between(1, 60)});
    Region region;
    region.height = between(1, picture.size.height);
    region.width = between(1, picture.size.width);
    region.top = between(0, picture.size.height - region.height);
    region.left = between(0, picture.size.width - region.width);
    View view = crop_view(region, {between(1, 40), between(1, 40)});
    view.flip = i % 2 == 0;
    if (i % 3 == 0) {  // a part of the region, with the rest around
      view.step_y *= 0.6;
      view.step_x *= 0.5;
      view.origin_y += 0.3 * region.height;
      view.origin_x += 0.21 * region.width;
    }
    INFO(picture.size.height << " x " << picture.size.width << ", " << region.height << " x "
                             << region.width << " from " << region.top << ", " << region.left
                             << " to " << view.output.height << " x " << view.output.width);
    REQUIRE(largest_error(picture, view) <= 1.01);  // half a unit in each pass
  }
}

TEST_CASE("Resizer: very many pixels become one", "[images][resizer]") {
  CHECK(largest_error(noise({9000, 2}), crop_view({0, 0, 9000, 2}, {1, 1})) <= 1.01);
  CHECK(largest_error(noise({3, 9000}), crop_view({0, 0, 3, 9000}, {2, 1})) <= 1.01);
  const Picture white{{1, 65'500}, std::vector<std::uint8_t>(3 * 65'500, 255)};
  CHECK(resized(white.pixels(), crop_view({0, 0, 1, 65'500}, {1, 2})) ==
        std::vector<std::uint8_t>(6, 255));
}

TEST_CASE("Resizer: what has the right size stays, and is mirrored", "[images][resizer]") {
  const Picture picture = noise({24, 17});
  View view = whole(picture.size);
  CHECK(resized(picture.pixels(), view) == picture.rgb);
  view.flip = true;
  const auto mirrored = resized(picture.pixels(), view);
  for (int y = 0; y < 24; ++y)
    for (int x = 0; x < 17; ++x)
      for (int c = 0; c < 3; ++c)
        REQUIRE(mirrored[static_cast<std::size_t>((y * 17 + x) * 3 + c)] ==
                picture.at(y, 16 - x, c));
}

TEST_CASE("Resizer: one colour stays that colour, whatever the size", "[images][resizer]") {
  for (const int value : {0, 1, 128, 255})
    for (const int width : {1, 3, 50, 2000}) {
      const Picture picture{{40, width},
                            std::vector<std::uint8_t>(static_cast<std::size_t>(3 * 40 * width),
                                                      static_cast<std::uint8_t>(value))};
      const auto out = resized(picture.pixels(), crop_view({0, 0, 40, width}, {16, 13}));
      CHECK(std::ranges::all_of(out, [&](int one) { return one == value; }));
    }
}

TEST_CASE("Resizer: rows may lie apart, and one resizer makes many sizes", "[images][resizer]") {
  Resizer resize;
  const Picture large = noise({60, 80});
  for (const Region& part : {Region{0, 0, 60, 80}, {3, 5, 7, 9}, {20, 30, 40, 50}}) {
    Picture alone{{part.height, part.width}, {}};
    for (int y = 0; y < part.height; ++y)
      for (int x = 0; x < 3 * part.width; ++x)
        alone.rgb.push_back(
            large.rgb[static_cast<std::size_t>(((part.top + y) * 80 + part.left) * 3 + x)]);
    const Pixels apart{large.rgb.data() + (part.top * 80 + part.left) * 3, alone.size, 240};
    for (const ImageSize output : {ImageSize{16, 12}, {70, 90}, {1, 1}}) {
      const View view = crop_view({0, 0, part.height, part.width}, output);
      std::vector<std::uint8_t> out(static_cast<std::size_t>(3 * output.height * output.width));
      resize({apart, view}, out);
      CHECK(out == resized(alone.pixels(), view));
    }
  }
}

TEST_CASE("Resizer: a view or an output that makes no sense", "[images][resizer]") {
  const Picture picture = noise({20, 30});
  Resizer resize;
  std::vector<std::uint8_t> out(5 * 4 * 3);
  const View good = crop_view({0, 0, 20, 30}, {5, 4});
  CHECK_NOTHROW(resize({picture.pixels(), good}, out));
  CHECK_THROWS_AS(resize({picture.pixels(), good}, std::span(out).first(59)),
                  std::invalid_argument);
  for (const Region& region : {Region{0, 0, 21, 30}, {0, 1, 20, 30}, {-1, 0, 5, 5}, {3, 3, 0, 2}})
    CHECK_THROWS_AS(resize({picture.pixels(), crop_view(region, {5, 4})}, out),
                    std::invalid_argument);
  View beyond = good;
  beyond.origin_x = 4;
  CHECK_THROWS_AS(resize({picture.pixels(), beyond}, out), std::invalid_argument);
}

TEST_CASE("Resizer: all processors make the same bytes", "[images][resizer]") {
  const ResizePasses &portable = kPortablePasses, &fastest = fastest_passes();
  std::mt19937 random(4);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 200; ++i) {
    const std::int32_t inputs = between(1, 90), outputs = between(1, 90);
    ResizeTaps taps;
    taps.find({0, inputs, 0, static_cast<double>(inputs) / outputs, outputs}, 4, i % 2 == 0);
    // Of the size that may be read, or written, and no more.
    std::vector<std::vector<std::uint8_t>> rows(static_cast<std::size_t>(taps.count) + 1);
    for (auto& row : rows) {
      row.resize(read_bytes(taps));
      for (auto& byte : row) byte = static_cast<std::uint8_t>(random());
    }
    const auto row_bytes = static_cast<std::size_t>(3 * outputs);
    std::vector<std::uint8_t> a(2 * row_bytes), b(2 * row_bytes);
    portable.across(rows[0].data(), rows[1].data(), taps, a.data(), a.data() + row_bytes);
    fastest.across(rows[0].data(), rows[1].data(), taps, b.data(), b.data() + row_bytes);
    REQUIRE(a == b);

    std::vector<const std::uint8_t*> pointers;
    for (const auto& row : rows) pointers.push_back(row.data());
    const auto bytes = static_cast<std::size_t>(between(1, static_cast<int>(rows[0].size())));
    a.assign(bytes, 0);
    b.assign(bytes, 1);
    portable.down(pointers.data(), taps.weights_of(0), taps.count, taps.bits, bytes, a.data());
    fastest.down(pointers.data(), taps.weights_of(0), taps.count, taps.bits, bytes, b.data());
    REQUIRE(a == b);
  }
}

}  // namespace
}  // namespace penstock::images
