// SPDX-License-Identifier: Apache-2.0

// Image files to pixels: every kind of JPEG and PNG that people have, and everything that is wrong
// with files.

#include "../../../../../examples/resnet/infer/classify/image_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "../../../../support/catch.hpp"
#include "../../../../support/temporary_directory.hpp"
#include "../../matchers.hpp"
#include "image_files.hpp"

namespace resnet::classify {
namespace {

using penstock::test::TemporaryDirectory;
using resnet::test::contains;
using test::Bytes;

constexpr int width = 37, height = 22;

Picture decoded(const Bytes& file) {
  Picture picture;
  decode(file, picture);
  return picture;
}

int largest_difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::vector<std::uint8_t> as_rgb(const std::vector<std::uint8_t>& grey) {
  std::vector<std::uint8_t> rgb;
  for (const std::uint8_t value : grey) rgb.insert(rgb.end(), 3, value);
  return rgb;
}

TEST_CASE("JPEG: what was written comes back, nearly", "[resnet][classify]") {
  const bool progressive = GENERATE(false, true);
  const auto pixels = test::smooth_pixels(width, height, 3);
  const Picture picture =
      decoded(test::jpeg_file(pixels, width, height, {.progressive = progressive}));
  CHECK(picture.width == width);
  CHECK(picture.height == height);
  CHECK(largest_difference(picture.rgb, pixels) <= 6);
}

TEST_CASE("JPEG: grey, and inks", "[resnet][classify]") {
  const auto grey = test::smooth_pixels(width, height, 1);
  const Picture picture = decoded(test::jpeg_file(grey, width, height, {.channels = 1}));
  CHECK(largest_difference(picture.rgb, as_rgb(grey)) <= 6);

  const bool adobe = GENERATE(false, true);  // The marker makes no difference, as to Pillow.
  const auto inks = test::smooth_pixels(width, height, 4);
  std::vector<std::uint8_t> wanted;
  for (std::size_t i = 0; i < inks.size(); i += 4)
    for (std::size_t c = 0; c < 3; ++c) {
      const double light = static_cast<double>(inks[i + c]) * inks[i + 3] / 255;
      wanted.push_back(static_cast<std::uint8_t>(std::lround(light)));
    }
  const Picture coloured =
      decoded(test::jpeg_file(inks, width, height, {.channels = 4, .adobe = adobe}));
  CHECK(largest_difference(coloured.rgb, wanted) <= 8);
}

TEST_CASE("PNG: exactly what was written", "[resnet][classify]") {
  const bool interlaced = GENERATE(false, true);
  const auto rgb = test::smooth_pixels(width, height, 3);
  CHECK(decoded(test::png_file(rgb, width, height, {.interlaced = interlaced})).rgb == rgb);

  const auto grey = test::smooth_pixels(width, height, 1);
  CHECK(decoded(test::png_file(grey, width, height,
                               {.colour_type = PNG_COLOR_TYPE_GRAY, .interlaced = interlaced}))
            .rgb == as_rgb(grey));
}

TEST_CASE("PNG: alpha is dropped, 16 bits keep eight, palettes and bits become colours",
          "[resnet][classify]") {
  const auto rgba = test::smooth_pixels(width, height, 4);
  std::vector<std::uint8_t> rgb, wide;
  for (std::size_t i = 0; i < rgba.size(); ++i)
    if (i % 4 != 3) rgb.push_back(rgba[i]);
  CHECK(
      decoded(test::png_file(rgba, width, height, {.colour_type = PNG_COLOR_TYPE_RGB_ALPHA})).rgb ==
      rgb);
  const std::vector<std::uint8_t> wide_grey = {0x12, 0xff, 0x34, 0x00};
  CHECK(decoded(test::png_file(wide_grey, 2, 1, {.colour_type = PNG_COLOR_TYPE_GRAY, .depth = 16}))
            .rgb == as_rgb({0x12, 0x34}));
  for (const std::uint8_t value : rgb) wide.insert(wide.end(), {value, 0x7f});
  CHECK(decoded(test::png_file(wide, width, height, {.depth = 16})).rgb == rgb);

  const std::vector<png_color> palette = {{255, 0, 0}, {1, 2, 3}};
  CHECK(decoded(test::png_file({0, 1, 1, 0}, 2, 2,
                               {.colour_type = PNG_COLOR_TYPE_PALETTE, .palette = palette}))
            .rgb == std::vector<std::uint8_t>{255, 0, 0, 1, 2, 3, 1, 2, 3, 255, 0, 0});
  CHECK(
      decoded(test::png_file({0x40}, 2, 1, {.colour_type = PNG_COLOR_TYPE_GRAY, .depth = 1})).rgb ==
      std::vector<std::uint8_t>{0, 0, 0, 255, 255, 255});
}

TEST_CASE("a file that ends too early is an error, wherever it ends", "[resnet][classify]") {
  const auto pixels = test::smooth_pixels(width, height, 3);
  const Bytes files[] = {test::jpeg_file(pixels, width, height),
                         test::jpeg_file(pixels, width, height, {.progressive = true}),
                         test::png_file(pixels, width, height)};
  for (const Bytes& whole : files) {
    CHECK_NOTHROW(decoded(whole));
    // A JPEG is whole without the last two bytes' mark, to its decoder.
    for (std::size_t size = 0; size + 2 < whole.size(); ++size) {
      INFO("the first " << size << " of " << whole.size() << " bytes");
      CHECK_THROWS_AS(decoded({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}),
                      ImageError);
    }
  }
}

TEST_CASE("damage ends in pixels or an error, never in anything else", "[resnet][classify]") {
  const auto pixels = test::smooth_pixels(width, height, 3);
  std::mt19937_64 random(5);
  int errors = 0;
  for (int i = 0; i < 400; ++i) {
    Bytes file =
        i % 2 == 0 ? test::jpeg_file(pixels, width, height) : test::png_file(pixels, width, height);
    for (int change = 0; change < 3; ++change)
      file[random() % file.size()] = static_cast<std::byte>(random());
    Picture picture;
    try {
      decode(file, picture);
      CHECK(picture.rgb.size() == static_cast<std::size_t>(3 * picture.width * picture.height));
    } catch (const ImageError& error) {
      ++errors;
      CHECK(std::string(error.what()).size() > 5);
    }
  }
  CHECK(errors > 100);
}

TEST_CASE("a picture that would be too large is refused before it is decoded",
          "[resnet][classify]") {
  Bytes png = test::png_file(test::smooth_pixels(8, 8, 3), 8, 8);
  Bytes jpeg = test::jpeg_file(test::smooth_pixels(8, 8, 3), 8, 8);
  // Height and width in the frame's header: marker, length, precision, then two bytes each.
  for (std::size_t i = 0; i + 8 < jpeg.size(); ++i)
    if (jpeg[i] == std::byte{0xff} && jpeg[i + 1] == std::byte{0xc0})
      std::fill_n(jpeg.begin() + static_cast<std::ptrdiff_t>(i) + 5, 4, std::byte{0xf0});
  CHECK_THROWS_WITH(decoded(jpeg), contains("too large: 61680 x 61680"));
  png[18] = std::byte{1};  // 65,544 pixels wide: the checksum is wrong now
  CHECK_THROWS_WITH(decoded(png), contains("broken PNG"));
}

TEST_CASE("files that are no images, and no files", "[resnet][classify]") {
  const TemporaryDirectory directory;
  CHECK_THROWS_WITH(read_file(directory / "none"), contains("No such file"));
  CHECK_THROWS_WITH(read_file(directory / "."), contains("no regular file"));
  CHECK_THROWS_WITH(decoded({}), contains("empty"));
  std::ofstream(directory / "text") << "no image";
  const Bytes text = read_file(directory / "text");
  CHECK(text.size() == 8);
  CHECK(read_file(directory / "text", 3).size() == 3);
  CHECK_THROWS_WITH(decoded(text), contains("neither JPEG nor PNG"));
  CHECK(kind_of(test::jpeg_file({1, 2, 3}, 1, 1)) == ImageKind::jpeg);
  CHECK(kind_of(test::png_file({1, 2, 3}, 1, 1)) == ImageKind::png);
  CHECK(kind_of(text) == ImageKind::neither);
}

}  // namespace
}  // namespace resnet::classify
