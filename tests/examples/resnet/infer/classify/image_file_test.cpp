// SPDX-License-Identifier: Apache-2.0

// Image files to pixels: every kind of JPEG and PNG that people have, and everything that is wrong
// with files.

#include "../../../../../examples/resnet/infer/classify/image_file.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

// ---- Foreign files ------------------------------------------------------------------------------

/// The same file with another height and width in its frame's header.
Bytes with_size(Bytes jpeg, int new_height, int new_width) {
  for (std::size_t i = 0; i + 9 < jpeg.size(); ++i)
    if (jpeg[i] == std::byte{0xff} &&
        (jpeg[i + 1] == std::byte{0xc0} || jpeg[i + 1] == std::byte{0xc2})) {
      int at = 5;
      for (const int size : {new_height, new_width})
        for (const int shift : {8, 0})
          jpeg[i + static_cast<std::size_t>(at++)] = static_cast<std::byte>(size >> shift & 255);
      return jpeg;
    }
  throw std::logic_error("no frame");
}

/// The same for a PNG, with the header's checksum.
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

/// Why `file` is refused; and how much more memory the process had at some time than before, in
/// MiB. In a process of its own: memory that others had before is not seen.
std::string refusal_in_little_memory(const Bytes& file) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto peak = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss / 1024;
    };
    const long before = peak();
    std::string told = "nothing";
    try {
      Picture picture;
      decode(file, picture);
    } catch (const ImageError& error) {
      told = error.what();
    }
    if (peak() - before > 64) told += "; in " + std::to_string(peak() - before) + " MiB";
    const bool written = write(ends[1], told.data(), told.size()) > 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::array<char, 1000> told{};
  const ssize_t size = read(ends[0], told.data(), told.size());
  close(ends[0]);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  return {told.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

TEST_CASE("a small file with a large header takes no memory", "[resnet][classify]") {
  const auto pixels = test::smooth_pixels(64, 64, 3);
  const Bytes progressive = test::jpeg_file(pixels, 64, 64, {.progressive = true});
  const Bytes baseline = test::jpeg_file(pixels, 64, 64), png = test::png_file(pixels, 64, 64);
  CHECK(refusal_in_little_memory(with_size(progressive, 11'584, 11'584)) ==
        "too large: the scans of 11584 x 11584 pixels need 768 MiB of memory, and at most 512 are "
        "given");
  for (const Bytes& jpeg : {with_size(progressive, 8000, 9000), with_size(baseline, 8000, 9000)})
    CHECK(refusal_in_little_memory(jpeg) ==
          "cut short: " + std::to_string(jpeg.size()) + " bytes cannot hold 9000 x 8000 pixels");
  for (const Bytes& jpeg :
       {with_size(progressive, 13'378, 13'378), with_size(baseline, 13'378, 13'378)})
    CHECK(refusal_in_little_memory(jpeg) ==
          "too large: 13378 x 13378 pixels, and at most 178956970 are decoded");
  CHECK(refusal_in_little_memory(with_png_size(png, 8000, 9000)) ==
        "cut short: " + std::to_string(png.size()) + " bytes cannot hold 9000 x 8000 pixels");
  CHECK(refusal_in_little_memory(with_png_size(png, 20'000, 20'000)) ==
        "too large: 20000 x 20000 pixels, and at most 178956970 are decoded");
}

TEST_CASE("a file that holds what its header promises is decoded, however well it is compressed",
          "[resnet][classify]") {
  // One colour: nothing is smaller. Hundreds of rows, so that bounds are met up to rounding.
  const std::vector<std::uint8_t> flat(std::size_t{1001} * 997 * 3, 77);
  for (const bool progressive : {false, true})
    CHECK(largest_difference(
              decoded(test::jpeg_file(flat, 1001, 997, {.progressive = progressive})).rgb, flat) <=
          1);
  for (const bool interlaced : {false, true})
    CHECK(decoded(test::png_file(flat, 1001, 997, {.interlaced = interlaced})).rgb == flat);
  const std::vector<std::uint8_t> bits(std::size_t{512} * 4096, 0);
  CHECK(decoded(test::png_file(bits, 4096, 4096, {.colour_type = PNG_COLOR_TYPE_GRAY, .depth = 1}))
            .rgb.size() == std::size_t{3} * 4096 * 4096);
}

TEST_CASE("a JPEG of very many scans is refused, and of as many as are allowed decoded",
          "[resnet][classify]") {
  const auto pixels = test::smooth_pixels(width, height, 3);
  const Bytes file = test::jpeg_file(pixels, width, height, {.scans = 190});
  CHECK_THROWS_WITH(decoded(file), contains("too many scans: more than 100"));
  Picture picture;
  decode(file, picture, {.scans = 190});
  CHECK(largest_difference(picture.rgb, pixels) <= 6);
  CHECK(largest_difference(decoded(test::jpeg_file(pixels, width, height, {.scans = 100})).rgb,
                           pixels) <= 40);
}

TEST_CASE("limits are the caller's", "[resnet][classify]") {
  const auto pixels = test::smooth_pixels(width, height, 3);
  Picture picture;
  for (const Bytes& file :
       {test::jpeg_file(pixels, width, height), test::png_file(pixels, width, height)}) {
    CHECK_THROWS_WITH(decode(file, picture, {.pixels = width * height - 1}), contains("too large"));
    CHECK_NOTHROW(decode(file, picture, {.pixels = width * height}));
    CHECK_THROWS_WITH(decode(file, picture, {.seconds = -1}), contains("takes too long"));
  }
  const Bytes progressive = test::jpeg_file(pixels, width, height, {.progressive = true});
  CHECK_THROWS_WITH(decode(progressive, picture, {.coefficient_bytes = 5000}),
                    contains("need 1 MiB of memory"));
}

TEST_CASE("decoding stops when it is asked to, in each scan and between rows",
          "[resnet][classify]") {
  std::mt19937_64 random(3);
  std::vector<std::uint8_t> noise(std::size_t{400} * 400 * 3);
  for (std::uint8_t& value : noise) value = static_cast<std::uint8_t>(random());
  struct Case {
    Bytes file;
    int least;  // questions, in all
  };
  const Case cases[] = {{test::jpeg_file(noise, 400, 400), 400},
                        {test::jpeg_file(noise, 400, 400, {.scans = 90}), 90 * 50 + 400},
                        {test::png_file(noise, 400, 400), 50},
                        {test::png_file(noise, 400, 400, {.interlaced = true}), 50}};
  for (const auto& [file, least] : cases) {
    Picture picture;
    int questions = 0;
    decode(file, picture, {}, [&] { return ++questions < 0; });
    CHECK(questions >= least);
    for (const int last : {1, questions / 3, questions}) {
      int asked = 0;
      CHECK_THROWS_AS(decode(file, picture, {}, [&] { return ++asked == last; }), DecodeStopped);
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
