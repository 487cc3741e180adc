// SPDX-License-Identifier: Apache-2.0

#include "jpeg_header.hpp"

#include <cstddef>
#include <cstdint>
#include <penstock/images/jpeg_decoder.hpp>
#include <vector>

#include "images/jpeg_files.hpp"
#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using namespace penstock::images::test;

Bytes file(const JpegFile& options = {}) {
  return jpeg_file(smooth_pixels(20, 12, options.channels), 20, 12, options);
}
bool is_plain(const Bytes& bytes) {
  const auto header = read_jpeg_header(bytes);
  REQUIRE(header);
  CHECK(header->size == ImageSize{12, 20});
  return header->plain;
}

TEST_CASE("read_jpeg_header: what engines decode as libjpeg does", "[images][jpeg_header]") {
  CHECK(is_plain(file()));
  CHECK(is_plain(file({.across = 2, .down = 2})));
  CHECK(is_plain(file({.channels = 1})));
  CHECK(is_plain(file({.restart_rows = 1})));
}

TEST_CASE("read_jpeg_header: what they do not", "[images][jpeg_header]") {
  CHECK_FALSE(is_plain(file({.progressive = true})));
  CHECK_FALSE(is_plain(file({.channels = 4})));
  Bytes cut = file();
  cut.resize(cut.size() - 2);
  CHECK_FALSE(is_plain(cut));
  Bytes twelve_bits = file();
  twelve_bits[find_marker(twelve_bits, {0xc0}) + 4] = std::byte{12};
  CHECK_FALSE(is_plain(twelve_bits));
  Bytes one_of_several_scans = file();
  one_of_several_scans[find_marker(one_of_several_scans, {0xda}) + 4] = std::byte{1};
  CHECK_FALSE(is_plain(one_of_several_scans));
}

TEST_CASE("read_jpeg_header: red, green and blue that are not YCbCr", "[images][jpeg_header]") {
  Bytes adobe = file({.adobe = true});
  CHECK(is_plain(adobe));
  adobe[find_marker(adobe, {0xee}) + 15] = std::byte{0};
  CHECK_FALSE(is_plain(adobe));
  Bytes named = file();
  const std::size_t frame = find_marker(named, {0xc0});
  for (std::size_t i = 0; i < 3; ++i) named[frame + 10 + 3 * i] = static_cast<std::byte>("RGB"[i]);
  CHECK_FALSE(is_plain(named));
}

TEST_CASE("read_jpeg_header: how the image is to be shown", "[images][jpeg_header]") {
  CHECK(read_jpeg_header(file())->orientation == Orientation{});
  const std::vector<std::uint8_t> exif{'E', 'x', 'i', 'f', 0, 0, 'M',  'M', 0, 42, 0,
                                       0,   0,   8,   0,   1, 1, 0x12, 0,   3, 0,  0,
                                       0,   1,   0,   6,   0, 0, 0,    0,   0, 0};
  CHECK(read_jpeg_header(file({.app1 = exif}))->orientation == exif_orientation(exif));
  CHECK(exif_orientation(exif) != Orientation{});
}

TEST_CASE("read_jpeg_header: what is no JPEG file, or cut anywhere", "[images][jpeg_header]") {
  CHECK_FALSE(read_jpeg_header({}));
  CHECK_FALSE(read_jpeg_header(Bytes(100)));
  const Bytes whole = file();
  const std::size_t scan = find_marker(whole, {0xda});
  for (std::size_t length = 0; length < scan + 6; ++length)
    CHECK_FALSE(read_jpeg_header(std::span(whole).first(length)));
  CHECK_FALSE(read_jpeg_header(with_size(whole, 0, 20)));
  CHECK_FALSE(read_jpeg_header(without_marker(whole, 0xc0)));
}

TEST_CASE("read_jpeg_header: with any byte changed, it says what libjpeg says",
          "[images][jpeg_header]") {
  const Bytes whole = file({.adobe = true, .app1 = {'E', 'x', 'i', 'f', 0, 0, 'I', 'I'}});
  JpegDecoder decoder;
  int agreed = 0;
  for (std::size_t at = 0; at < find_marker(whole, {0xda}) + 12; ++at) {
    for (const int value : {0x00, 0x01, 0x41, 0xd8, 0xda, 0xff}) {
      Bytes changed = whole;
      changed[at] = static_cast<std::byte>(value);
      const auto header = read_jpeg_header(changed);
      if (!header || !header->plain) continue;
      try {
        const ImageSize size = decoder.open(changed);
        CHECK(size == header->size);
        ++agreed;
      } catch (const ImageError&) {  // libjpeg knows more.
      }
    }
  }
  CHECK(agreed > 100);
}

}  // namespace
}  // namespace penstock::images
