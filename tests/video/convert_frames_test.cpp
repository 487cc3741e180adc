// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/convert_frames.hpp>

#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <penstock/images/crop.hpp>
#include <stdexcept>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace penstock::test;
using images::ImageSize;
using images::OutputFormat;
using images::PixelOrder;
using images::View;

/// A picture in three planes of numbers, of 8 or 10 bits.
struct Picture {
  ImageSize size;
  std::vector<int> luma, blue, red;
  int at(const std::vector<int>& plane, int width, int y, int x) const {
    return plane[static_cast<std::size_t>(y * width + x)];
  }
};

Picture picture(ImageSize size, int bits, std::uint32_t seed) {
  const ImageSize chroma = chroma_size(size);
  Picture made{size, {}, {}, {}};
  std::uint32_t state = seed * 2654435761u + 1;
  // The colours lie within RGB, so that limiting them at the end or before makes no difference.
  const auto fill = [&](std::vector<int>& plane, ImageSize of, int low, int high) {
    for (int i = 0; i < of.height * of.width; ++i) {
      state = state * 1664525u + 1013904223u;
      const int value =
          low + static_cast<int>((state >> 16) % static_cast<unsigned>(high - low + 1));
      plane.push_back(value << (bits - 8));
    }
  };
  fill(made.luma, size, 100, 150);
  fill(made.blue, chroma, 110, 146);
  fill(made.red, chroma, 110, 146);
  return made;
}

/// The bytes of a picture in a format, with gaps behind the rows, and where the planes begin.
struct Bytes {
  std::vector<std::uint8_t> bytes;
  FramePlanes planes{};  ///< without pointers
  std::int64_t blue = 0, red = 0;
};

void put(Bytes& to, std::size_t at, PlaneFormat format, int value) {
  const auto sample = static_cast<std::uint16_t>(format == PlaneFormat::p010 ? value << 6 : value);
  std::memcpy(&to.bytes[at], &sample, static_cast<std::size_t>(sample_bytes(format)));
}

Bytes bytes_of(const Picture& picture, PlaneFormat format) {
  constexpr std::int64_t kGap = 6;
  const std::int64_t sample = sample_bytes(format);
  const ImageSize chroma = chroma_size(picture.size);
  const std::int64_t spacing = is_interleaved(format) ? 2 * sample : sample;
  Bytes made{};
  const std::int64_t luma_stride = picture.size.width * sample + kGap;
  const std::int64_t chroma_stride = chroma.width * spacing + kGap;
  const std::int64_t blue = luma_stride * picture.size.height;
  const std::int64_t red =
      is_interleaved(format) ? blue + sample : blue + chroma_stride * chroma.height;
  made.bytes.resize(static_cast<std::size_t>(red + chroma_stride * chroma.height));
  for (int y = 0; y < picture.size.height; ++y)
    for (int x = 0; x < picture.size.width; ++x)
      put(made, static_cast<std::size_t>(y * luma_stride + x * sample), format,
          picture.at(picture.luma, picture.size.width, y, x));
  for (int y = 0; y < chroma.height; ++y)
    for (int x = 0; x < chroma.width; ++x) {
      const std::int64_t at = y * chroma_stride + x * spacing;
      put(made, static_cast<std::size_t>(blue + at), format,
          picture.at(picture.blue, chroma.width, y, x));
      put(made, static_cast<std::size_t>(red + at), format,
          picture.at(picture.red, chroma.width, y, x));
    }
  made.planes = {format, picture.size, nullptr, nullptr, nullptr, luma_stride, chroma_stride};
  made.blue = blue;
  made.red = red;
  return made;
}

/// Device memory of a picture, and the picture there.
struct OnDevice {
  explicit OnDevice(const Bytes& from) : memory(from.bytes.size()), planes(from.planes) {
    copy_and_wait(memory, from.bytes.data());
    planes.luma = memory.data();
    planes.blue = memory.data() + from.blue;
    planes.red = memory.data() + from.red;
  }
  DeviceMemory<std::uint8_t> memory;
  FramePlanes planes;
};

template <class T>
std::vector<T> converted(const std::vector<ConvertedFrame>& frames, const OutputFormat& format,
                         std::size_t outputs) {
  const TestStream stream;
  const DeviceMemory<ConvertedFrame> described(frames.size());
  const DeviceMemory<T> out(outputs * static_cast<std::size_t>(format.values()));
  copy_and_wait(described, frames.data());
  convert_frames(stream, described.data(), static_cast<std::int64_t>(frames.size()), format,
                 out.data());
  return out.read();
}

// ---- The definition, in double precision -------------------------------------------------------

double triangle(double distance, double reach) {
  return std::max(0.0, 1 - std::abs(distance) / reach);
}

/// The mean of a plane around a position, of the samples [top, bottom) x [left, right).
double mean(const std::vector<int>& plane, int width, double y, double x, double step_y,
            double step_x, int top, int bottom, int left, int right) {
  double sum = 0, total = 0;
  for (int r = top; r < bottom; ++r)
    for (int c = left; c < right; ++c) {
      const double weight = triangle(r + 0.5 - y, std::max(1.0, step_y)) *
                            triangle(c + 0.5 - x, std::max(1.0, step_x));
      sum += weight * plane[static_cast<std::size_t>(r * width + c)];
      total += weight;
    }
  return sum / total;
}

/// Shares of red and blue in luma.
struct Shares {
  double red, blue;
};

/// Of a stream that is not turned. Values are in steps of 1 / 255.
std::vector<double> reference(const Picture& picture, const VideoStream& stream, const View& view,
                              Shares share) {
  std::vector<double> out;
  const int width = picture.size.width, chroma = (width + 1) / 2;
  const auto& region = view.region;
  const int bottom = region.top + region.height, right = region.left + region.width;
  const double across = stream.chroma == ChromaSite::centre ? 0 : 0.25;
  const double down = stream.chroma == ChromaSite::top_left ? 0.25 : 0;
  const double most = (1 << stream.bits) - 1, unit = 1 << (stream.bits - 8);
  for (int y = 0; y < view.output.height; ++y)
    for (int x = 0; x < view.output.width; ++x) {
      const int column = view.flip ? view.output.width - 1 - x : x;
      const double row = view.origin_y + (y + 0.5) * view.step_y;
      const double at = view.origin_x + (column + 0.5) * view.step_x;
      const double l = mean(picture.luma, width, row, at, view.step_y, view.step_x, region.top,
                            bottom, region.left, right);
      const auto of_chroma = [&](const std::vector<int>& plane) {
        return mean(plane, chroma, row / 2 + down, at / 2 + across, view.step_y / 2,
                    view.step_x / 2, region.top / 2, (bottom + 1) / 2, region.left / 2,
                    (right + 1) / 2);
      };
      const double luma = stream.full_range ? l / most : (l - 16 * unit) / (219 * unit);
      const double range = stream.full_range ? most : 224 * unit;
      const double b = (of_chroma(picture.blue) - 128 * unit) / range;
      const double r = (of_chroma(picture.red) - 128 * unit) / range;
      const double red = luma + 2 * (1 - share.red) * r, blue = luma + 2 * (1 - share.blue) * b;
      const double green =
          (luma - share.red * red - share.blue * blue) / (1 - share.red - share.blue);
      for (const double value : {red, green, blue}) out.push_back(255 * value);
    }
  return out;
}

double largest_difference(const std::vector<float>& made, const std::vector<double>& expected) {
  REQUIRE(made.size() == expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < made.size(); ++i)
    largest = std::max(largest, std::abs(255.0 * static_cast<double>(made[i]) - expected[i]));
  return largest;
}

VideoStream stream_of(ImageSize size, int bits) {
  VideoStream stream;
  stream.size = size;
  stream.bits = bits;
  stream.matrix = ColourMatrix::bt709;
  return stream;
}

constexpr Shares kBt709{0.2126, 0.0722};

View crop(images::Region region, ImageSize output, bool flip = false) {
  return {region,
          double(region.top),
          double(region.left),
          double(region.height) / output.height,
          double(region.width) / output.width,
          output,
          flip};
}

double error_of(const Picture& picture, const VideoStream& stream, PlaneFormat format,
                const View& view, Shares share = kBt709) {
  const OnDevice device(bytes_of(picture, format));
  const auto made =
      converted<float>({converted_frame(device.planes, stream, view, 0)}, {.size = view.output}, 1);
  return largest_difference(made, reference(picture, stream, view, share));
}

TEST_CASE("Frames of each format become what the definition says", "[video]") {
  const ImageSize size{23, 31};  // Odd sizes have a sample of chroma more.
  const View views[] = {images::whole(size), crop({3, 5, 17, 20}, {6, 7}),
                        crop({2, 1, 10, 12}, {25, 30}, true)};
  for (const View& view : views) {
    const Picture eight = picture(size, 8, 1), ten = picture(size, 10, 2);
    CHECK(error_of(eight, stream_of(size, 8), PlaneFormat::i420, view) < 0.01);
    CHECK(error_of(eight, stream_of(size, 8), PlaneFormat::nv12, view) < 0.01);
    CHECK(error_of(ten, stream_of(size, 10), PlaneFormat::i420p10, view) < 0.01);
    CHECK(error_of(ten, stream_of(size, 10), PlaneFormat::p010, view) < 0.01);
  }
}

TEST_CASE("Matrix, range and place of chroma are those of the stream", "[video]") {
  const ImageSize size{12, 16};
  const View view = crop({1, 2, 10, 12}, {7, 9});
  const auto check = [&](VideoStream stream, Shares share) {
    CHECK(error_of(picture(size, 8, 3), stream, PlaneFormat::i420, view, share) < 0.01);
    stream.bits = 10;
    CHECK(error_of(picture(size, 10, 3), stream, PlaneFormat::p010, view, share) < 0.01);
  };
  VideoStream stream = stream_of(size, 8);
  stream.full_range = true;
  check(stream, kBt709);
  stream.chroma = ChromaSite::centre;
  check(stream, kBt709);
  stream.chroma = ChromaSite::top_left;
  check(stream, kBt709);
  stream.matrix = ColourMatrix::bt601;
  check(stream, {0.299, 0.114});
  stream.matrix = ColourMatrix::bt2020;
  check(stream, {0.2627, 0.0593});
  stream.matrix = ColourMatrix::smpte240m;
  check(stream, {0.212, 0.087});
  stream.matrix = ColourMatrix::fcc;
  check(stream, {0.30, 0.11});
}

TEST_CASE("Black, white and pure colours are limited to the range", "[video]") {
  const ImageSize size{2, 2};
  Picture extreme{size, {0, 255, 16, 235}, {128}, {128}};
  const OnDevice device(bytes_of(extreme, PlaneFormat::i420));
  const auto made = converted<std::uint8_t>(
      {converted_frame(device.planes, stream_of(size, 8), images::whole(size), 0)}, {.size = size},
      1);
  CHECK(made == std::vector<std::uint8_t>{0, 0, 0, 255, 255, 255, 0, 0, 0, 255, 255, 255});
  extreme = {size, {81, 81, 81, 81}, {90}, {240}};  // red of BT.601
  VideoStream stream = stream_of(size, 8);
  stream.matrix = ColourMatrix::bt601;
  const OnDevice red(bytes_of(extreme, PlaneFormat::nv12));
  const auto colour = converted<std::uint8_t>(
      {converted_frame(red.planes, stream, images::whole(size), 0)}, {.size = size}, 1);
  CHECK(colour[0] >= 254);
  CHECK(colour[1] <= 1);
  CHECK(colour[2] <= 1);
}

/// The picture as it is displayed, without colours: each sample of luma.
std::vector<float> displayed(const Picture& picture, Orientation orientation, const View* view) {
  VideoStream stream = stream_of(picture.size, 8);
  stream.orientation = orientation;
  const OnDevice device(bytes_of(picture, PlaneFormat::i420));
  const View shown = view != nullptr ? *view : images::whole(stream.display());
  return converted<float>({converted_frame(device.planes, stream, shown, 0)},
                          {.size = shown.output, .order = PixelOrder::nchw}, 1);
}

TEST_CASE("Pictures are turned and mirrored for display", "[video]") {
  const ImageSize size{4, 6};
  Picture grey = picture(size, 8, 5);
  std::fill(grey.blue.begin(), grey.blue.end(), 128);
  std::fill(grey.red.begin(), grey.red.end(), 128);
  const std::vector<float> stored = displayed(grey, {}, nullptr);
  for (int number = 0; number < 8; ++number) {
    const Orientation orientation{(number & 1) != 0, (number & 2) != 0, (number & 4) != 0};
    const int height = orientation.transposed ? 6 : 4, width = 10 - height;
    const std::vector<float> shown = displayed(grey, orientation, nullptr);
    INFO("orientation " << number);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const int row = orientation.mirrored_rows ? height - 1 - y : y;
        const int column = orientation.mirrored_columns ? width - 1 - x : x;
        const int at = orientation.transposed ? column * 6 + row : row * 6 + column;
        CHECK(shown[static_cast<std::size_t>(y * width + x)] ==
              Approx(stored[static_cast<std::size_t>(at)]));
      }
    // A crop is of the displayed picture.
    const View part = crop({1, 1, height - 2, width - 1}, {height - 2, width - 1}, number % 3 == 0);
    const std::vector<float> cropped = displayed(grey, orientation, &part);
    for (int y = 0; y < height - 2; ++y)
      for (int x = 0; x < width - 1; ++x) {
        const int column = part.flip ? width - 2 - x : x;
        CHECK(cropped[static_cast<std::size_t>(y * (width - 1) + x)] ==
              Approx(shown[static_cast<std::size_t>((y + 1) * width + column + 1)]));
      }
  }
}

TEST_CASE("Frames become the outputs that they name, in both orders and each type", "[video]") {
  const ImageSize size{6, 8};
  const OnDevice first(bytes_of(picture(size, 8, 1), PlaneFormat::i420));
  const OnDevice second(bytes_of(picture(size, 10, 2), PlaneFormat::p010));
  const View view = crop({0, 0, 6, 8}, {3, 4});
  VideoStream ten = stream_of(size, 10);
  ConvertedFrame empty;
  empty.output = 3;
  const std::vector<ConvertedFrame> frames{
      converted_frame(first.planes, stream_of(size, 8), view, 2),
      converted_frame(second.planes, ten, view, 0),
      converted_frame(first.planes, stream_of(size, 8), view, 1), empty};
  OutputFormat format{
      .size = {3, 4}, .mean = {0.5f, 0.4f, 0.3f}, .standard_deviation = {0.2f, 0.25f, 0.5f}};
  const auto rows = converted<float>(frames, format, 4);
  CHECK(std::equal(&rows[36], &rows[72], &rows[72]));  // Outputs 1 and 2 are of one frame.
  CHECK_FALSE(std::equal(&rows[0], &rows[36], &rows[36]));
  for (std::size_t i = 108; i < 144; ++i) CHECK(rows[i] == 0);  // The last one is empty.
  format.order = PixelOrder::nchw;
  const auto planar = converted<__half>(frames, format, 4);
  for (std::size_t output = 0; output < 4; ++output)
    for (std::size_t pixel = 0; pixel < 12; ++pixel)
      for (std::size_t c = 0; c < 3; ++c)
        CHECK(__half2float(planar[(output * 3 + c) * 12 + pixel]) ==
              Approx(rows[(output * 12 + pixel) * 3 + c]).margin(0.002));
}

TEST_CASE("A format that cannot be written is an error", "[video]") {
  const TestStream stream;
  CHECK_THROWS_AS(convert_frames<float>(stream, nullptr, 0, OutputFormat{}, nullptr),
                  std::invalid_argument);
}

}  // namespace
}  // namespace penstock::video
