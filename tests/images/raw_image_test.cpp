// SPDX-License-Identifier: Apache-2.0

// Binary PPM files through JpegDecoder.

#include <penstock/images/decoded_images.hpp>
#include <penstock/images/jpeg_decoder.hpp>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "jpeg_files.hpp"
#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using penstock::test::Mentions;
using penstock::test::thrown;
using test::Bytes;

Bytes bytes_of(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

Bytes ppm(const std::string& header, const std::vector<std::uint8_t>& pixels) {
  return bytes_of(header + std::string(pixels.begin(), pixels.end()));
}

TEST_CASE("raw images: the pixels are those of the file, in place", "[images][raw_image]") {
  const auto noise = test::noisy_pixels(31, 17, 3);
  const std::string header =
      GENERATE("P6\n31 17\n255\n", "P6 31\t17 255 ", "P6\n# a\n31 # b\n 17\n255\n");
  const Bytes file = ppm(header, noise);
  JpegDecoder decoder;
  const ImageSize size = decoder.open(file);
  REQUIRE(size == ImageSize{17, 31});
  const Pixels pixels = decoder.decode(whole(size)).pixels;
  CHECK(pixels.size == size);
  CHECK(std::memcmp(pixels.data, noise.data(), noise.size()) == 0);
  CHECK(reinterpret_cast<const std::byte*>(pixels.data) == file.data() + header.size());
}

TEST_CASE("raw images: a crop of one is the crop of a JPEG file with its pixels",
          "[images][raw_image]") {
  const Bytes jpeg = test::jpeg_file(test::smooth_pixels(31, 17, 3), 31, 17);
  const Bytes raw = ppm("P6\n31 17\n255\n", test::decode_all(jpeg).pixels);
  const View view{.region = {3, 5, 11, 20},
                  .origin_y = 3,
                  .origin_x = 5,
                  .step_y = 11.0 / 8,
                  .step_x = 2,
                  .output = {8, 10},
                  .flip = true};
  Resizer resize;
  const auto made_of = [&](const Bytes& file) {
    std::vector<std::uint8_t> out(8 * 10 * 3);
    JpegDecoder decoder({.scaled_dct = false});
    decoder.open(file);
    resize(decoder.decode(view), out);
    return out;
  };
  CHECK(made_of(raw) == made_of(jpeg));

  std::vector<std::uint8_t> room(11 * 20 * 3), out(8 * 10 * 3);
  RowDecoder rows;
  rows.open(raw);
  const ImageGeometry geometry = rows.decode(view, room);
  resize({{room.data(), {11, 20}, geometry.stride}, geometry.view}, out);
  CHECK(out == made_of(jpeg));
}

TEST_CASE("raw images: what cannot be read is an error, and nothing stays open",
          "[images][raw_image]") {
  const auto noise = test::noisy_pixels(31, 17, 3);
  const Bytes jpeg = test::jpeg_file(noise, 31, 17), good = ppm("P6\n31 17\n255\n", noise);
  JpegDecoder decoder({.max_pixels = 31 * 17});
  const auto refusal = [&](const Bytes& file) {
    decoder.open(jpeg);  // It must not stand in for the file.
    const std::string why = thrown<ImageError>([&] { decoder.open(file); });
    CHECK_THROWS_AS(decoder.decode(whole({1, 1})), std::logic_error);
    return why;
  };
  Bytes cut = good;
  cut.pop_back();
  CHECK_THAT(refusal(cut), Mentions("cut short"));
  CHECK_THAT(refusal(ppm("P6\n31 17\n65535\n", noise)), Mentions("8 bits"));
  CHECK_THAT(refusal(ppm("P6\n31 18\n255\n", noise)), Mentions("at most 527"));
  for (const char* header : {"P6", "P6\n", "P6\n0 17\n255\n", "P6\n-3 17\n255\n", "P6\n31\n",
                             "P6\n99999999999 1\n255\n", "P6\n# no end", "P6\n31 17\n255"})
    CHECK_THAT(refusal(bytes_of(header)), Mentions("PPM header"));
  decoder.open(good);
  CHECK_THROWS_AS(decoder.decode({.region = {0, 0, 18, 31}, .output = {1, 1}}),
                  std::invalid_argument);
}

}  // namespace
}  // namespace penstock::images
