// SPDX-License-Identifier: Apache-2.0

// PNG files to pixels: every kind that people have, and everything that is wrong with files. JPEG
// is tested in tests/images.

#include "../../../../../examples/resnet/infer/classify/image_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>

#include "../../../../support/catch.hpp"
#include "../../../../support/little_memory.hpp"
#include "../../../../support/temporary_directory.hpp"
#include "../../matchers.hpp"
#include "image_files.hpp"

namespace resnet::classify {
namespace {

using penstock::test::refusal_in_little_memory;
using penstock::test::TemporaryDirectory;
using resnet::test::contains;
using test::Bytes;

constexpr int width = 37, height = 22;

Picture decoded(const Bytes& file) {
  Picture picture;
  decode_png(file, picture);
  return picture;
}

std::vector<std::uint8_t> as_rgb(const std::vector<std::uint8_t>& grey) {
  std::vector<std::uint8_t> rgb;
  for (const std::uint8_t value : grey) rgb.insert(rgb.end(), 3, value);
  return rgb;
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
  const Bytes whole = test::png_file(pixels, width, height);
  CHECK_NOTHROW(decoded(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO("the first " << size << " of " << whole.size() << " bytes");
    CHECK_THROWS_AS(decoded({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}),
                    ImageError);
  }
}

TEST_CASE("damage ends in pixels or an error, never in anything else", "[resnet][classify]") {
  const auto pixels = test::smooth_pixels(width, height, 3);
  std::mt19937_64 random(5);
  int errors = 0;
  for (int i = 0; i < 400; ++i) {
    Bytes file = test::png_file(pixels, width, height);
    for (int change = 0; change < 3; ++change)
      file[random() % file.size()] = static_cast<std::byte>(random());
    Picture picture;
    try {
      decode_png(file, picture);
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
  png[18] = std::byte{1};  // 65,544 pixels wide: the checksum is wrong now
  CHECK_THROWS_WITH(decoded(png), contains("broken PNG"));
}

// ---- Foreign files ------------------------------------------------------------------------------

/// The same file with another height and width in its header, and the header's checksum.
Bytes with_png_size(Bytes png, std::uint32_t new_height, std::uint32_t new_width) {
  constexpr std::size_t type = 12, data = 16, sum = 29;
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (const int shift : {24, 16, 8, 0}) png[at++] = static_cast<std::byte>(value >> shift & 255);
  };
  put(data, new_width);
  put(data + 4, new_height);
  std::uint32_t rest = 0xffffffff;
  for (std::size_t i = type; i < sum; ++i) {
    rest ^= std::to_integer<std::uint32_t>(png[i]);
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0xedb88320 : 0);
  }
  put(sum, ~rest);
  return png;
}

TEST_CASE("a small file with a large header is refused", "[resnet][classify]") {
  const Bytes png = test::png_file(test::smooth_pixels(64, 64, 3), 64, 64);
  CHECK(refusal_in_little_memory([&] { decoded(with_png_size(png, 8000, 9000)); }) ==
        "cut short: " + std::to_string(png.size()) + " bytes cannot hold 9000 x 8000 pixels");
  CHECK(refusal_in_little_memory([&] { decoded(with_png_size(png, 20'000, 20'000)); }) ==
        "too large: 20000 x 20000 pixels, and at most 178956970 are decoded");
}

TEST_CASE("a file that holds what its header promises is decoded, however well it is compressed",
          "[resnet][classify]") {
  // One colour: nothing is smaller. Hundreds of rows, so that bounds are met up to rounding.
  const std::vector<std::uint8_t> flat(std::size_t{1001} * 997 * 3, 77);
  for (const bool interlaced : {false, true})
    CHECK(decoded(test::png_file(flat, 1001, 997, {.interlaced = interlaced})).rgb == flat);
  const std::vector<std::uint8_t> bits(std::size_t{512} * 4096, 0);
  CHECK(decoded(test::png_file(bits, 4096, 4096, {.colour_type = PNG_COLOR_TYPE_GRAY, .depth = 1}))
            .rgb.size() == std::size_t{3} * 4096 * 4096);
}

TEST_CASE("limits are the caller's", "[resnet][classify]") {
  const auto pixels = test::smooth_pixels(width, height, 3);
  Picture picture;
  const Bytes file = test::png_file(pixels, width, height);
  CHECK_THROWS_WITH(decode_png(file, picture, {.pixels = width * height - 1}),
                    contains("too large"));
  CHECK_NOTHROW(decode_png(file, picture, {.pixels = width * height}));
  CHECK_THROWS_WITH(decode_png(file, picture, {.seconds = -1}), contains("takes too long"));
}

TEST_CASE("decoding stops when it is asked to", "[resnet][classify]") {
  std::mt19937_64 random(3);
  std::vector<std::uint8_t> noise(std::size_t{400} * 400 * 3);
  for (std::uint8_t& value : noise) value = static_cast<std::uint8_t>(random());
  struct Case {
    Bytes file;
    int least;  // questions, in all
  };
  const Case cases[] = {{test::png_file(noise, 400, 400), 50},
                        {test::png_file(noise, 400, 400, {.interlaced = true}), 50}};
  for (const auto& [file, least] : cases) {
    Picture picture;
    int questions = 0;
    decode_png(file, picture, {}, [&] { return ++questions < 0; });
    CHECK(questions >= least);
    for (const int last : {1, questions / 3, questions}) {
      int asked = 0;
      CHECK_THROWS_AS(decode_png(file, picture, {}, [&] { return ++asked == last; }),
                      DecodeStopped);
      CHECK(asked == last);
    }
  }
}

TEST_CASE("a file of very many bytes is refused before memory is taken", "[resnet][classify]") {
  const TemporaryDirectory directory;
  std::ofstream(directory / "large.jpg") << "\xff\xd8\xff";
  std::filesystem::resize_file(directory / "large.jpg", std::uintmax_t{1} << 40);
  CHECK_THROWS_WITH(read_file(directory / "large.jpg"), contains("too large: 1099511627776 bytes"));
  CHECK(read_file(directory / "large.jpg", 8).size() == 8);
}

TEST_CASE("files that are no images, and no files", "[resnet][classify]") {
  const TemporaryDirectory directory;
  CHECK_THROWS_WITH(read_file(directory / "none"), contains("No such file"));
  CHECK_THROWS_WITH(read_file(directory / "."), contains("no regular file"));
  std::ofstream(directory / "text") << "no image";
  const Bytes text = read_file(directory / "text");
  CHECK(text.size() == 8);
  CHECK(read_file(directory / "text", 3).size() == 3);
  CHECK(kind_of(test::jpeg_file({1, 2, 3}, 1, 1)) == ImageKind::jpeg);
  CHECK(kind_of(test::png_file({1, 2, 3}, 1, 1)) == ImageKind::png);
  CHECK(kind_of(text) == ImageKind::neither);
}

}  // namespace
}  // namespace resnet::classify
