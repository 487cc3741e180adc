// SPDX-License-Identifier: Apache-2.0

// JpegDecoder against libjpeg used as its manual says: whatever is cut out or scaled down, the
// pixels are the same, bit for bit. And everything that is wrong with files.

#include <penstock/images/jpeg_decoder.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "jpeg_files.hpp"
#include "jpeg_header.hpp"
#include "needed.hpp"
#include "orientation.hpp"
#include "support/catch.hpp"
#include "support/little_memory.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using test::Bytes;
using test::jpeg_file;

constexpr int kWidth = 37, kHeight = 22;

/// Rows of pixels, without what is between them. (Checks compare in two parentheses, so that Catch2
/// does not print all of them.)
std::vector<std::uint8_t> packed(const Pixels& pixels) {
  std::vector<std::uint8_t> result;
  for (std::int32_t y = 0; y < pixels.size.height; ++y) {
    const std::uint8_t* row = pixels.data + y * pixels.stride;
    result.insert(result.end(), row, row + std::ptrdiff_t{3} * pixels.size.width);
  }
  return result;
}

std::vector<std::uint8_t> cut(const test::DecodedFile& image, const Region& region) {
  Pixels pixels{image.pixels.data() + (std::ptrdiff_t{region.top} * image.width + region.left) * 3,
                {region.height, region.width},
                std::int64_t{3} * image.width};
  return packed(pixels);
}

/// The pixels of a region, as they are.
View part(const Region& region) {
  return {.region = region,
          .origin_y = static_cast<double>(region.top),
          .origin_x = static_cast<double>(region.left),
          .output = {region.height, region.width}};
}

std::vector<std::uint8_t> decoded(const Bytes& file, const JpegOptions& options = {}) {
  JpegDecoder decoder(options);
  return packed(decoder.decode(whole(decoder.open(file))).pixels);
}

int largest_difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::string refusal(const Bytes& file, const JpegOptions& options = {}) {
  try {
    decoded(file, options);
  } catch (const ImageError& error) {
    return error.what();
  }
  return "none";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int between(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<unsigned>(high - low + 1));
  }
  Region region(int height, int width) {
    Region region;
    region.height = between(1, height);
    region.width = between(1, width);
    region.top = between(0, height - region.height);
    region.left = between(0, width - region.width);
    return region;
  }

 private:
  std::mt19937_64 engine_;
};

struct Colours {
  const char* name;
  int channels, across, down;
};
std::ostream& operator<<(std::ostream& out, const Colours& colours) {
  return out << colours.name;
}

constexpr std::array<Colours, 8> kColours{{{"4:4:4", 3, 1, 1},
                                           {"4:2:2", 3, 2, 1},
                                           {"4:2:0", 3, 2, 2},
                                           {"4:4:0", 3, 1, 2},
                                           {"4:1:1", 3, 4, 1},
                                           {"4:1:0", 3, 4, 2},
                                           {"1:4", 3, 1, 4},
                                           {"grey", 1, 1, 1}}};

test::JpegFile options_of(const Colours& colours) {
  return {
      .channels = colours.channels, .quality = 80, .across = colours.across, .down = colours.down};
}

// ---- Which pixels -------------------------------------------------------------------------------

TEST_CASE("JpegDecoder: each part has the pixels of the whole image", "[images][jpeg_decoder]") {
  const Colours colours = GENERATE(from_range(kColours));
  const bool progressive = GENERATE(false, true);
  INFO(colours << (progressive ? " progressive" : ""));
  JpegDecoder decoder({.scaled_dct = false});
  Random random(5);
  for (const auto& [height, width, parts] :
       {std::array{131, 203, 150}, {1301, 21, 12}, {7, 5, 20}, {2, 90, 20}, {40, 33, 40}}) {
    test::JpegFile options = options_of(colours);
    options.progressive = progressive;
    options.restart_rows = random.between(0, 2);
    const Bytes file =
        jpeg_file(test::noisy_pixels(width, height, colours.channels), width, height, options);
    const test::DecodedFile all = test::decode_all(file);
    for (int i = 0; i < parts; ++i) {
      const Region region = random.region(height, width);
      INFO("of " << height << " x " << width << ": " << region.height << " x " << region.width
                 << " from " << region.top << ", " << region.left);
      REQUIRE(decoder.open(file) == ImageSize{height, width});
      const Decoded image = decoder.decode(part(region));
      REQUIRE(image.pixels.size == ImageSize{region.height, region.width});
      REQUIRE(image.view.region == Region{0, 0, region.height, region.width});
      REQUIRE(image.view.origin_y == 0);
      REQUIRE(image.view.origin_x == 0);
      REQUIRE((packed(image.pixels) == cut(all, region)));
    }
  }
}

TEST_CASE("JpegDecoder: a part at a smaller scale has the pixels of the whole image at that scale",
          "[images][jpeg_decoder]") {
  const Colours colours = GENERATE(from_range(kColours));
  const int eighths = GENERATE(1, 2, 4, 8);
  INFO(colours << ", " << eighths << "/8");
  const int height = 131, width = 203;
  const Bytes file = jpeg_file(test::noisy_pixels(width, height, colours.channels), width, height,
                               options_of(colours));
  const test::DecodedFile all = test::decode_all(file, eighths);
  JpegDecoder decoder;
  Random random(6);
  for (int i = 0; i < 20; ++i) {
    // The smallest step that this scale is enough for, or one a little larger.
    View view = part(random.region(height, width));
    view.step_y = view.step_x = std::max(1.0, 8.0 / eighths + (i % 2 == 0 ? 0 : 0.01));
    if (i % 3 == 0) view.step_y += 3;
    view.output.height = std::max(1, static_cast<int>(view.region.height / view.step_y));
    view.output.width = std::max(1, static_cast<int>(view.region.width / view.step_x));
    if (view.step_y / 2 > view.region.height || view.step_x / 2 > view.region.width) continue;
    decoder.open(file);
    const Decoded image = decoder.decode(view);
    const double scale = eighths / 8.0;
    REQUIRE(image.view.step_y == Approx(view.step_y * scale));
    REQUIRE(image.view.step_x == Approx(view.step_x * scale));
    // Where the part begins in the whole image at this scale, by the two origins.
    const double top = view.origin_y * scale - image.view.origin_y;
    const double left = view.origin_x * scale - image.view.origin_x;
    const Region region{static_cast<int>(std::lround(top)), static_cast<int>(std::lround(left)),
                        image.pixels.size.height, image.pixels.size.width};
    INFO("part " << i << ": " << region.height << " x " << region.width << " from " << top << ", "
                 << left);
    REQUIRE(std::abs(top - region.top) < 1e-9);
    REQUIRE(std::abs(left - region.left) < 1e-9);
    REQUIRE(image.view.region == Region{0, 0, region.height, region.width});
    // It covers the region, and hardly more.
    CHECK(region.top <= view.region.top * scale);
    CHECK(region.left <= view.region.left * scale);
    CHECK(region.height <= view.region.height * scale + 2);
    CHECK(region.width <= view.region.width * scale + 2);
    REQUIRE((packed(image.pixels) == cut(all, region)));
  }
}

TEST_CASE("JpegDecoder: the scale is the smallest that leaves a pixel for each output pixel",
          "[images][jpeg_decoder]") {
  for (const int eighths : {1, 2, 4, 8}) {
    View view;
    view.step_y = view.step_x = 8.0 / eighths;
    CHECK(smallest_eighths(view) == eighths);
    view.step_y = 100;
    CHECK(smallest_eighths(view) == eighths);
    view.step_x -= 1e-9;
    CHECK(smallest_eighths(view) == std::min(eighths * 2, 8));
  }
}

TEST_CASE("JpegDecoder: of a large region only what the output needs is decoded",
          "[images][jpeg_decoder]") {
  const Bytes file = jpeg_file(test::smooth_pixels(200, 100, 3), 200, 100);
  JpegDecoder decoder({.scaled_dct = false});
  View view = whole(decoder.open(file));
  view.origin_y = 20.5;
  view.origin_x = 60.25;
  view.step_y = 2;
  view.step_x = 0.5;
  view.output = {10, 20};
  const Decoded image = decoder.decode(view);
  // Of triangles that reach 2 rows and 1 column from the first and from the last centre.
  CHECK(image.pixels.size == ImageSize{42 - 19, 71 - 59});
  CHECK(image.view.origin_y == 1.5);
  CHECK(image.view.origin_x == 1.25);
  CHECK(image.view.output == view.output);
}

TEST_CASE("JpegDecoder: an image can be decoded again, and the decoder moved",
          "[images][jpeg_decoder]") {
  const Bytes file = jpeg_file(test::smooth_pixels(kWidth, kHeight, 3), kWidth, kHeight);
  const auto all = test::decode_all(file);
  JpegDecoder first;
  const ImageSize size = first.open(file);
  JpegDecoder decoder(std::move(first));
  CHECK((packed(decoder.decode(part({3, 4, 5, 6})).pixels) == cut(all, {3, 4, 5, 6})));
  CHECK((packed(decoder.decode(whole(size)).pixels) == all.pixels));
  CHECK((packed(decoder.decode(part({9, 9, 9, 9})).pixels) == cut(all, {9, 9, 9, 9})));
}

TEST_CASE("JpegDecoder: a view that makes no sense", "[images][jpeg_decoder]") {
  const Bytes file = jpeg_file(test::smooth_pixels(kWidth, kHeight, 3), kWidth, kHeight);
  JpegDecoder decoder;
  CHECK_THROWS_AS(decoder.decode(part({0, 0, 1, 1})), std::logic_error);
  const View good = whole(decoder.open(file));
  for (const Region& region :
       {Region{0, 0, 0, 5}, Region{0, 0, 5, -1}, Region{-1, 0, 5, 5}, Region{0, -1, 5, 5},
        Region{kHeight - 4, 0, 5, 5}, Region{0, kWidth - 4, 5, 5}, Region{2147483647, 0, 1, 1},
        Region{1, 1, 2147483647, 2147483647}})
    CHECK_THROWS_AS(decoder.decode(part(region)), std::invalid_argument);
  for (const auto change :
       {+[](View& view) { view.output.height = 0; }, +[](View& view) { view.output.width = -3; },
        +[](View& view) { view.step_y = 0; }, +[](View& view) { view.step_x = -1; },
        +[](View& view) { view.step_x = std::nan(""); },
        +[](View& view) { view.origin_y = std::nan(""); }, +[](View& view) { view.origin_y = -1; },
        +[](View& view) { view.origin_x = 1; }, +[](View& view) { view.step_y = 1e300; }}) {
    View view = good;
    change(view);
    CHECK_THROWS_AS(decoder.decode(view), std::invalid_argument);
  }
  CHECK_NOTHROW(decoder.decode(good));  // The image is still open.
}

// ---- Kinds of files -----------------------------------------------------------------------------

TEST_CASE("JpegDecoder: grey, and inks", "[images][jpeg_decoder]") {
  const auto grey = test::smooth_pixels(kWidth, kHeight, 1);
  std::vector<std::uint8_t> wanted;
  for (const std::uint8_t value : grey) wanted.insert(wanted.end(), 3, value);
  CHECK(largest_difference(decoded(jpeg_file(grey, kWidth, kHeight, {.channels = 1})), wanted) <=
        6);

  // The marker makes no difference, as to Pillow. Subsampled they are YCCK.
  const bool adobe = GENERATE(false, true), ycck = GENERATE(false, true);
  const auto pixels = test::smooth_pixels(kWidth, kHeight, 4);
  const int across = ycck ? 2 : 1;
  const Bytes file =
      jpeg_file(pixels, kWidth, kHeight, {.channels = 4, .adobe = adobe || ycck, .across = across});
  const auto inks = test::decode_all(file).pixels;
  CHECK(largest_difference(inks, pixels) <= 8);
  wanted.clear();
  for (std::size_t i = 0; i < inks.size(); i += 4)
    for (std::size_t c = 0; c < 3; ++c) {
      const double light = static_cast<double>(inks[i + c]) * inks[i + 3] / 255;
      wanted.push_back(static_cast<std::uint8_t>(std::lround(light)));
    }
  CHECK((decoded(file) == wanted));
  JpegDecoder decoder;
  decoder.open(file);
  CHECK((packed(decoder.decode(part({5, 9, 10, 20})).pixels) ==
         cut({kWidth, kHeight, wanted}, {5, 9, 10, 20})));
}

/// The contents of an APP1 marker: `value` in the entry `tag` of `type`.
std::vector<std::uint8_t> exif(bool little, std::uint8_t value, std::uint8_t tag = 0x12,
                               std::uint8_t type = 3) {
  std::vector<std::uint8_t> bytes{'E', 'x', 'i', 'f', 0, 0};
  const auto two = [&](std::uint8_t high, std::uint8_t low) {
    bytes.push_back(little ? low : high);
    bytes.push_back(little ? high : low);
  };
  const auto four = [&](std::uint8_t low) {
    if (little) two(0, low), two(0, 0);
    if (!little) two(0, 0), two(0, low);
  };
  bytes.insert(bytes.end(), 2, little ? 'I' : 'M');
  two(0, 42);
  four(8);      // where the directory is
  two(0, 2);    // its entries
  two(1, 0xf);  // one of another kind
  two(0, 2), four(1), four(0);
  two(1, tag);
  two(0, type), four(1), two(0, value), two(0, 0);
  four(0);
  return bytes;
}

/// Pixel (y, x) of the image as it is to be shown, in the stored one: EXIF's table.
std::array<int, 2> stored_place(int orientation, int y, int x, int height, int width) {
  const std::array<std::array<int, 2>, 9> places{{{y, x},
                                                  {y, x},
                                                  {y, width - 1 - x},
                                                  {height - 1 - y, width - 1 - x},
                                                  {height - 1 - y, x},
                                                  {x, y},
                                                  {height - 1 - x, y},
                                                  {height - 1 - x, width - 1 - y},
                                                  {x, width - 1 - y}}};
  return places[static_cast<std::size_t>(orientation)];
}

TEST_CASE("JpegDecoder: EXIF's orientation, if it is asked for", "[images][jpeg_decoder]") {
  const auto orientation = static_cast<std::uint8_t>(GENERATE(range(1, 9)));
  const bool little = GENERATE(false, true);
  INFO("orientation " << int{orientation} << (little ? ", little endian" : ", big endian"));
  const Bytes file = jpeg_file(test::noisy_pixels(kWidth, kHeight, 3), kWidth, kHeight,
                               {.across = 2, .down = 2, .app1 = exif(little, orientation)});
  const auto stored = test::decode_all(file);
  CHECK((decoded(file) == stored.pixels));

  const ImageSize size = orientation < 5 ? ImageSize{kHeight, kWidth} : ImageSize{kWidth, kHeight};
  test::DecodedFile shown{size.width, size.height, {}};
  for (int y = 0; y < size.height; ++y)
    for (int x = 0; x < size.width; ++x) {
      const auto [row, column] = stored_place(orientation, y, x, kHeight, kWidth);
      const auto* pixel = &stored.pixels[static_cast<std::size_t>(row * kWidth + column) * 3];
      shown.pixels.insert(shown.pixels.end(), pixel, pixel + 3);
    }
  JpegDecoder decoder({.apply_orientation = true});
  Random random(orientation);
  for (int i = 0; i < 10; ++i) {
    const Region region = random.region(size.height, size.width);
    REQUIRE(decoder.open(file) == size);
    const Decoded image = decoder.decode(part(region));
    REQUIRE((packed(image.pixels) == cut(shown, region)));
    REQUIRE(image.view.origin_y == 0);
    REQUIRE(image.view.origin_x == 0);
    REQUIRE(image.view.output == ImageSize{region.height, region.width});
  }
  View view = whole(size);  // not symmetric, and the decoded part is not the region
  view.origin_y = 3.25;
  view.step_y = 1.5;
  view.output = {5, 2};
  view.flip = true;
  decoder.open(file);
  const Decoded image = decoder.decode(view);
  CHECK(image.view.origin_y == 1.25);  // 3.25 + 0.75 - 1.5 is 2.5
  CHECK(image.view.origin_x == 0);
  CHECK(image.view.flip);
  CHECK((packed(image.pixels) ==
         cut(shown, {2, 0, image.pixels.size.height, image.pixels.size.width})));
}

/// As the CPU's decoder shows it; read_jpeg_header() has to agree.
ImageSize size_shown(const Bytes& file) {
  const ImageSize size = JpegDecoder({.apply_orientation = true}).open(file);
  const auto header = read_jpeg_header(file);
  REQUIRE(header);
  CHECK(shown_size(header->orientation, header->size) == size);
  return size;
}

TEST_CASE("JpegDecoder: EXIF's orientation is an integer of any type", "[images][jpeg_decoder]") {
  const bool little = GENERATE(false, true);
  const auto type = static_cast<std::uint8_t>(GENERATE(1, 3, 4, 6, 8, 9));
  const auto orientation = static_cast<std::uint8_t>(GENERATE(range(1, 9)));
  auto marker = exif(little, 0, 0x12, type);
  const std::size_t value = marker.size() - 8;
  const std::size_t bytes = type == 1 || type == 6 ? 1 : type == 3 || type == 8 ? 2 : 4;
  marker[value + (little ? 0 : bytes - 1)] = orientation;
  CAPTURE(little, int{type}, int{orientation});
  const std::vector<std::uint8_t> shorts = exif(little, orientation);
  CHECK((exif_orientation(marker) == exif_orientation(shorts)));
  const Bytes file = jpeg_file(test::smooth_pixels(9, 5, 3), 9, 5, {.app1 = marker});
  CHECK(size_shown(file) == (orientation < 5 ? ImageSize{5, 9} : ImageSize{9, 5}));

  // More values than have room in the entry lie elsewhere: what is here is their place.
  const std::size_t count = value - (little ? 4 : 1);
  marker[count] = 2;
  CHECK((exif_orientation(marker) == (bytes < 4 ? exif_orientation(shorts) : Orientation{})));
  marker[count] = 5;
  CHECK((exif_orientation(marker) == Orientation{}));
  marker[count] = 0;
  CHECK((exif_orientation(marker) == Orientation{}));
  marker[count] = 1;
  // Two other kinds: ASCII and FLOAT.
  for (const std::uint8_t other : {std::uint8_t{2}, std::uint8_t{11}}) {
    marker[value - (little ? 8 : 7)] = other;
    CHECK((exif_orientation(marker) == Orientation{}));
  }
}

TEST_CASE("JpegDecoder: the first EXIF block counts", "[images][jpeg_decoder]") {
  const auto pixels = test::smooth_pixels(9, 5, 3);
  const auto with = [&](const std::vector<std::vector<std::uint8_t>>& markers) {
    Bytes file = jpeg_file(pixels, 9, 5);
    std::size_t at = 2;
    for (const auto& marker : markers) {
      const std::size_t length = marker.size() + 2;
      const std::array head{std::byte{0xff}, std::byte{0xe1}, static_cast<std::byte>(length >> 8),
                            static_cast<std::byte>(length & 0xff)};
      const auto* bytes = reinterpret_cast<const std::byte*>(marker.data());
      const auto place = file.begin() + static_cast<std::ptrdiff_t>(at);
      file.insert(file.insert(place, head.begin(), head.end()) + 4, bytes, bytes + marker.size());
      at += 4 + marker.size();
    }
    return file;
  };
  const std::string xmp = "http://ns.adobe.com/xap/1.0/";
  const std::vector<std::uint8_t> other(xmp.begin(), xmp.end());
  const std::vector<std::uint8_t> cut{'E', 'x', 'i', 'f'}, broken{'E', 'x', 'i', 'f', 0, 0, 'I'};
  CHECK(size_shown(with({exif(true, 6)})) == ImageSize{9, 5});
  CHECK(size_shown(with({exif(true, 6), exif(true, 1)})) == ImageSize{9, 5});
  CHECK(size_shown(with({exif(true, 1), exif(true, 6)})) == ImageSize{5, 9});
  CHECK(size_shown(with({exif(true, 6, 0x13), exif(true, 6)})) == ImageSize{5, 9});
  CHECK(size_shown(with({broken, exif(true, 6)})) == ImageSize{5, 9});
  CHECK(size_shown(with({other, cut, exif(false, 8), exif(true, 1)})) == ImageSize{9, 5});
}

TEST_CASE("JpegDecoder: EXIF data that say nothing, or are broken", "[images][jpeg_decoder]") {
  std::vector<std::vector<std::uint8_t>> markers{exif(true, 0), exif(true, 9), exif(false, 6, 0x13),
                                                 exif(true, 6, 0x12, 5)};
  for (const std::size_t place : {10u, 11u, 12u, 13u}) {  // The directory is anywhere.
    auto marker = exif(true, 6);
    marker[place] = 0xff;
    markers.push_back(std::move(marker));
  }
  const auto good = exif(true, 6);
  for (std::size_t size = 1; size + 12 < good.size(); ++size)
    markers.emplace_back(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
  for (const auto& marker : markers) {
    const Bytes file = jpeg_file(test::smooth_pixels(9, 5, 3), 9, 5, {.app1 = marker});
    CHECK(JpegDecoder({.apply_orientation = true}).open(file) == ImageSize{5, 9});
  }
}

TEST_CASE("JpegDecoder: the faster DCT is nearly the same", "[images][jpeg_decoder]") {
  const Bytes file = jpeg_file(test::noisy_pixels(kWidth, kHeight, 3), kWidth, kHeight);
  const auto exact = decoded(file), fast = decoded(file, {.fast_dct = true});
  CHECK((fast != exact));
  CHECK(largest_difference(fast, exact) <= 12);
}

TEST_CASE("JpegDecoder: tables of another file are not used", "[images][jpeg_decoder]") {
  const auto pixels = test::smooth_pixels(kWidth, kHeight, 3);
  JpegDecoder decoder;
  const Bytes good = jpeg_file(pixels, kWidth, kHeight);
  const Bytes bad = test::without_marker(good, 0xdb);  // a quantisation table
  decoder.decode(whole(decoder.open(good)));
  const View view = whole(decoder.open(bad));
  CHECK_THROWS_AS(decoder.decode(view), ImageError);
  CHECK_NOTHROW(decoder.decode(whole(decoder.open(good))));
}

// ---- Broken files, and limits -------------------------------------------------------------------

TEST_CASE("JpegDecoder: a file that ends too early is an error, wherever it ends",
          "[images][jpeg_decoder]") {
  const auto pixels = test::smooth_pixels(kWidth, kHeight, 3);
  for (const bool progressive : {false, true}) {
    const Bytes file = jpeg_file(pixels, kWidth, kHeight, {.progressive = progressive});
    CHECK(refusal(file) == "none");
    // It is whole without the last two bytes' mark.
    for (std::size_t size = 0; size + 2 < file.size(); ++size) {
      INFO("the first " << size << " of " << file.size() << " bytes");
      REQUIRE(refusal({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)}) != "none");
    }
  }
}

TEST_CASE("JpegDecoder: damage is worked around or an error, as one likes",
          "[images][jpeg_decoder]") {
  const Bytes good = jpeg_file(test::noisy_pixels(64, 64, 3), 64, 64);
  CHECK(refusal(good, {.warnings_are_errors = true}) == "none");
  Bytes cut_and_closed(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(good.size() / 2));
  cut_and_closed.insert(cut_and_closed.end(), {std::byte{0xff}, std::byte{0xd9}});
  CHECK(refusal(cut_and_closed) == "none");
  CHECK(contains(refusal(cut_and_closed, {.warnings_are_errors = true}), "premature end"));
}

TEST_CASE("JpegDecoder: damage behind the last row is a warning, too", "[images][jpeg_decoder]") {
  const bool progressive = GENERATE(false, true);
  const int channels = GENERATE(1, 3, 4);
  CAPTURE(progressive, channels);
  const Bytes good = jpeg_file(test::noisy_pixels(64, 48, channels), 64, 48,
                               {.channels = channels, .progressive = progressive});
  const JpegOptions strict{.warnings_are_errors = true};
  Bytes more = good;  // Bytes between the last row and the mark of the end.
  more.insert(more.end() - 2, 100, std::byte{0x55});
  const Bytes open(good.begin(), good.end() - 2);  // without that mark
  CHECK(refusal(good, strict) == "none");
  CHECK(refusal(more) == "none");
  CHECK(contains(refusal(more, strict), "extraneous bytes before marker 0xd9"));
  CHECK(contains(refusal(open, strict), "Premature end"));

  Bytes behind = good;  // Behind the mark may be anything, such as the frames of a film.
  behind.insert(behind.end(), 100, std::byte{0x55});
  CHECK(refusal(behind, strict) == "none");

  // The decoder is ready for the same image, for another one, and for a part.
  JpegDecoder decoder(strict);
  CHECK_THROWS_AS(decoder.decode(whole(decoder.open(more))), ImageError);
  const auto wanted = decoded(good);
  for (int i = 0; i < 2; ++i) {
    decoder.open(good);
    for (int j = 0; j < 2; ++j)
      CHECK((packed(decoder.decode(part({0, 0, 48, 64})).pixels) == wanted));
  }
  decoder.open(more);
  if (progressive)
    CHECK_THROWS_AS(decoder.decode(part({0, 0, 40, 64})), ImageError);
  else  // Rows below the view are not read.
    CHECK_NOTHROW(decoder.decode(part({0, 0, 40, 64})));
  decoder.open(more);
  CHECK_THROWS_AS(decoder.decode(part({40, 5, 8, 20})), ImageError);
}

TEST_CASE("JpegDecoder: any damage ends in pixels or an ImageError, and nothing stays of it",
          "[images][jpeg_decoder]") {
  const auto pixels = test::noisy_pixels(40, 40, 3);
  const Bytes files[] = {jpeg_file(pixels, 40, 40, {.across = 2, .down = 2}),
                         jpeg_file(pixels, 40, 40, {.progressive = true, .app1 = exif(true, 6)})};
  const Bytes good = jpeg_file(test::smooth_pixels(30, 20, 3), 30, 20, {.across = 2});
  const auto wanted = decoded(good);
  JpegDecoder decoder({.apply_orientation = true, .max_pixels = 1 << 20});
  Random random(7);
  int errors = 0;
  for (int i = 0; i < 600; ++i) {
    Bytes file = files[i % 2];
    for (int change = 0; change < 3; ++change)
      file[static_cast<std::size_t>(random.between(0, static_cast<int>(file.size()) - 1))] =
          static_cast<std::byte>(random.between(0, 255));
    try {
      const ImageSize size = decoder.open(file);
      const Decoded image = decoder.decode(part(random.region(size.height, size.width)));
      CHECK(packed(image.pixels).size() > 0);
    } catch (const ImageError& error) {
      ++errors;
      CHECK(std::string(error.what()).size() > 5);
    }
    if (i % 50 == 0) REQUIRE((packed(decoder.decode(whole(decoder.open(good))).pixels) == wanted));
  }
  CHECK(errors > 100);
}

TEST_CASE("JpegDecoder: what is no JPEG", "[images][jpeg_decoder]") {
  const auto bytes = [](const std::string& text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    return Bytes(data, data + text.size());
  };
  CHECK(refusal({}) == "the file is empty");
  CHECK(contains(refusal(bytes("\x89PNG\r\n")), "broken JPEG: Not a JPEG file"));
  CHECK(refusal(bytes("\xff")) != "none");
}

TEST_CASE("JpegDecoder: a small file with a large header is refused, and takes no memory",
          "[images][jpeg_decoder]") {
  const auto pixels = test::smooth_pixels(64, 64, 3);
  const Bytes progressive = jpeg_file(pixels, 64, 64, {.progressive = true});
  const Bytes baseline = jpeg_file(pixels, 64, 64);
  const auto told = [](const Bytes& file, int height, int width) {
    return penstock::test::refusal_in_little_memory(
        [&] { decoded(test::with_size(file, height, width)); });
  };
  CHECK(told(progressive, 11'584, 11'584) ==
        "too large: the scans of 11584 x 11584 pixels need 768 MiB of memory, and at most 512 are "
        "given");
  for (const Bytes& file : {baseline, progressive}) {
    CHECK(told(file, 8000, 9000) ==
          "cut short: " + std::to_string(file.size()) + " bytes cannot hold 9000 x 8000 pixels");
    CHECK(told(file, 13'378, 13'378) ==
          "too large: 13378 x 13378 pixels, and at most 178956970 are decoded");
  }
}

TEST_CASE("JpegDecoder: a file that holds what its header promises is decoded, however small",
          "[images][jpeg_decoder]") {
  const std::vector<std::uint8_t> flat(std::size_t{301} * 297 * 3, 77);
  for (const bool progressive : {false, true})
    CHECK(largest_difference(decoded(jpeg_file(flat, 301, 297, {.progressive = progressive})),
                             flat) <= 1);
}

TEST_CASE("JpegDecoder: limits are the caller's", "[images][jpeg_decoder]") {
  const auto pixels = test::smooth_pixels(kWidth, kHeight, 3);
  const Bytes file = jpeg_file(pixels, kWidth, kHeight);
  CHECK(contains(refusal(file, {.max_pixels = kWidth * kHeight - 1}), "too large"));
  CHECK(refusal(file, {.max_pixels = kWidth * kHeight}) == "none");
  CHECK(contains(refusal(file, {.max_seconds = -1}), "takes too long"));
  const Bytes progressive = jpeg_file(pixels, kWidth, kHeight, {.progressive = true});
  CHECK(contains(refusal(progressive, {.max_coefficient_bytes = 5000}), "need 1 MiB of memory"));
  const Bytes scans = jpeg_file(pixels, kWidth, kHeight, {.scans = 190});
  CHECK(refusal(scans) == "too many scans: more than 100");
  CHECK(refusal(scans, {.max_scans = 190}) == "none");
}

int questions = 0, last_question = 0;

TEST_CASE("JpegDecoder: asks whether to go on in each scan and between rows",
          "[images][jpeg_decoder]") {
  const auto pixels = test::noisy_pixels(400, 400, 3);
  const auto interrupted = [] { return ++questions == last_question; };
  for (const int scans : {0, 90}) {
    const Bytes file = jpeg_file(pixels, 400, 400, {.scans = scans});
    last_question = questions = 0;
    CHECK(refusal(file, {.interrupted = interrupted}) == "none");
    const int all = questions;
    CHECK(all >= scans * 50 + 400);
    for (const int last : {1, all / 3, all}) {
      questions = 0;
      last_question = last;
      CHECK_THROWS_AS(decoded(file, {.interrupted = interrupted}), DecodeStopped);
      CHECK(questions == last);
    }
  }
}

TEST_CASE("JpegDecoder: stops when it is asked to, and decodes the next image",
          "[images][jpeg_decoder]") {
  const auto pixels = test::noisy_pixels(400, 400, 3);
  const bool scans = GENERATE(false, true);
  const Bytes file = jpeg_file(pixels, 400, 400, {.scans = scans ? 90 : 0});
  JpegDecoder decoder;
  const View view = whole(decoder.open(file));
  std::stop_source stopped;
  stopped.request_stop();
  CHECK_THROWS_AS(decoder.decode(view, stopped.get_token()), DecodeStopped);
  View below = view;  // It would skip rows only.
  below.region = {399, 0, 1, 400};
  below.origin_y = 399;
  below.output.height = 1;
  decoder.open(file);
  CHECK_THROWS_AS(decoder.decode(below, stopped.get_token()), DecodeStopped);

  for (int i = 0; i < 10; ++i) {
    std::stop_source source;
    std::jthread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
      source.request_stop();
    });
    decoder.open(file);
    try {
      decoder.decode(view, source.get_token());
    } catch (const DecodeStopped&) {
    }
  }
  decoder.open(file);
  CHECK((packed(decoder.decode(view).pixels) == test::decode_all(file).pixels));
}

}  // namespace
}  // namespace penstock::images
