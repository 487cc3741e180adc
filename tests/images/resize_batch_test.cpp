// SPDX-License-Identifier: Apache-2.0

#include <penstock/images/resize_batch.hpp>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "images/view_reference.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using namespace penstock::test;
using namespace penstock::images::test;

/// Runs resize_batch over one image, with `spare` values behind the output that must stay zero.
template <class T>
std::vector<T> resized(const TestImage& image, const View& view, OutputFormat format) {
  format.size = view.output;
  const TestStream stream;
  const DeviceMemory<std::uint8_t> pixels(image.bytes.size());
  const DeviceMemory<ImageGeometry> geometry(1);
  const DeviceMemory<T> out(static_cast<std::size_t>(format.values()));
  const ImageGeometry at{0, image.stride, view};
  copy_and_wait(pixels, image.bytes.data());
  copy_and_wait(geometry, &at);
  resize_batch(stream, ImageBatch{pixels.data(), 0, geometry.data(), 1}, format, out.data());
  return out.read();
}

/// The largest difference from the definition, in steps of 1 / 255.
double largest_error(const TestImage& image, const View& view) {
  const std::vector<float> made = resized<float>(image, view, {});
  const std::vector<double> expected = reference_of(image, view);
  REQUIRE(made.size() == expected.size());
  double largest = 0;
  for (std::size_t i = 0; i < made.size(); ++i)
    largest = std::max(largest, std::abs(255.0 * made[i] - expected[i]));
  return largest;
}

struct Case {
  const char* name;
  ImageSize image;
  View view;
};

std::vector<Case> cases() {
  return {
      {"crop and reduce", {40, 50}, crop_view({7, 5, 29, 37}, {8, 11})},
      {"crop and reduce, flipped", {40, 50}, crop_view({7, 5, 29, 37}, {8, 11}, true)},
      {"enlarge", {12, 9}, crop_view({1, 2, 7, 5}, {23, 31})},
      {"enlarge rows, reduce columns", {9, 60}, crop_view({2, 3, 5, 50}, {17, 6}, true)},
      {"as it is", {13, 17}, crop_view({0, 0, 13, 17}, {13, 17})},
      {"as it is, flipped", {13, 17}, crop_view({0, 0, 13, 17}, {13, 17}, true)},
      {"one pixel becomes many", {1, 1}, crop_view({0, 0, 1, 1}, {5, 4})},
      {"many become one pixel", {31, 29}, crop_view({0, 0, 31, 29}, {1, 1})},
      {"one pixel", {3, 3}, crop_view({1, 2, 1, 1}, {1, 1})},
      {"a strong reduction", {150, 170}, crop_view({3, 1, 140, 160}, {6, 5})},
      {"resize, then crop: pixels outside of the crop count", {60, 80}, centre_view({60, 80}, 16)},
      {"a whole row", {1, 64}, crop_view({0, 0, 1, 64}, {3, 16})},
  };
}

TEST_CASE("resize_batch computes what a View defines", "[images][resize_batch]") {
  for (const Case& each : cases()) {
    INFO(each.name);
    CHECK(largest_error(test_image(each.image, 1), each.view) < 0.002);
    CHECK(largest_error(test_image(each.image, 2, 11), each.view) < 0.002);  // rows with a gap
  }
}

TEST_CASE("resize_batch: a region is the border, the pixels behind it do not count",
          "[images][resize_batch]") {
  const TestImage image = test_image({20, 20}, 3);
  View view = crop_view({5, 5, 8, 8}, {4, 4});
  const std::vector<float> cropped = resized<float>(image, view, {});
  view.region = {0, 0, 20, 20};
  const std::vector<float> whole = resized<float>(image, view, {});
  CHECK(cropped != whole);
  CHECK(cropped[(1 * 4 + 1) * 3] != whole[0]);
  // In the middle, where no filter reaches the border, both are the same.
  CHECK(cropped[(2 * 4 + 2) * 3] == Approx(whole[(2 * 4 + 2) * 3]));
}

TEST_CASE("resize_batch writes every element type", "[images][resize_batch]") {
  const TestImage image = test_image({30, 40}, 4);
  const View view = crop_view({3, 4, 20, 30}, {9, 7});
  const std::vector<double> expected = reference_of(image, view);
  const auto bytes = resized<std::uint8_t>(image, view, {});
  const auto halves = resized<__half>(image, view, {});
  const auto brains = resized<__nv_bfloat16>(image, view, {});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(std::abs(bytes[i] - expected[i]) <= 0.502);
    CHECK(std::abs(static_cast<float>(halves[i]) - expected[i] / 255) < 1.0 / 2048);
    CHECK(std::abs(static_cast<float>(brains[i]) - expected[i] / 255) < 1.0 / 256);
  }
}

TEST_CASE("resize_batch: bytes are rounded, black and white stay", "[images][resize_batch]") {
  TestImage image = test_image({8, 8}, 5);
  for (const std::uint8_t value : {std::uint8_t{0}, std::uint8_t{255}}) {
    std::fill(image.bytes.begin(), image.bytes.end(), value);
    const auto made = resized<std::uint8_t>(image, crop_view({0, 0, 7, 5}, {3, 4}), {});
    CHECK(made == std::vector<std::uint8_t>(3 * 4 * 3, value));
  }
}

TEST_CASE("resize_batch: no float is below 0 or above 1", "[images][resize_batch]") {
  TestImage image = test_image({40, 37}, 6);
  for (const std::uint8_t value : {std::uint8_t{0}, std::uint8_t{255}}) {
    std::fill(image.bytes.begin(), image.bytes.end(), value);
    float least = 1, most = 0;
    for (std::int32_t side = 1; side < 60; ++side)
      for (const float out :
           resized<float>(image, crop_view({1, 2, 33, 31}, {side, 60 - side}), {})) {
        least = std::min(least, out);
        most = std::max(most, out);
      }
    CHECK(least >= static_cast<float>(value) / 255 - 1e-6f);
    CHECK(least >= 0);
    CHECK(most <= static_cast<float>(value) / 255);
  }
}

TEST_CASE("resize_batch: the order of the values, and padded channels", "[images][resize_batch]") {
  const PixelOrder order = GENERATE(PixelOrder::nhwc, PixelOrder::nchw);
  const int channels = GENERATE(3, 4, 8);
  const TestImage image = test_image({15, 16}, 6);
  const View view = crop_view({1, 1, 12, 13}, {5, 6}, true);
  const std::vector<double> expected = reference_of(image, view);
  const auto made = resized<float>(image, view, {.order = order, .channels = channels});
  REQUIRE(made.size() == static_cast<std::size_t>(5 * 6 * channels));
  for (std::size_t pixel = 0; pixel < 30; ++pixel) {
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      const std::size_t at = order == PixelOrder::nhwc
                                 ? pixel * static_cast<std::size_t>(channels) + c
                                 : c * 30 + pixel;
      CHECK(std::abs(255 * made[at] - (c < 3 ? expected[pixel * 3 + c] : 0)) < 0.002);
    }
  }
}

TEST_CASE("resize_batch normalises each channel", "[images][resize_batch]") {
  const TestImage image = test_image({15, 16}, 7);
  const View view = crop_view({1, 1, 12, 13}, {5, 6});
  const OutputFormat format{.mean = {0.485f, 0.456f, 0.406f},
                            .standard_deviation = {0.229f, 0.224f, 0.225f}};
  const std::vector<double> expected = reference_of(image, view);
  const auto made = resized<float>(image, view, format);
  for (std::size_t i = 0; i < made.size(); ++i)
    CHECK(made[i] == Approx((expected[i] / 255 - static_cast<double>(format.mean[i % 3])) /
                            static_cast<double>(format.standard_deviation[i % 3]))
                         .margin(1e-4));
}

TEST_CASE("resize_batch: images of different sizes in one call", "[images][resize_batch]") {
  const std::vector<TestImage> images{test_image({20, 30}, 8), test_image({40, 9}, 9),
                                      test_image({5, 6}, 10)};
  const std::vector<View> views{crop_view({0, 0, 20, 30}, {6, 6}), crop_view({7, 1, 30, 8}, {6, 6}),
                                crop_view({0, 0, 5, 6}, {6, 6}, true)};
  const bool spaced = GENERATE(false, true);
  std::vector<std::uint8_t> bytes;
  std::vector<ImageGeometry> geometry;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t begin =
        spaced ? static_cast<std::int64_t>(i) * 4000 : static_cast<std::int64_t>(bytes.size()) + 5;
    bytes.resize(static_cast<std::size_t>(begin));
    bytes.insert(bytes.end(), images[i].bytes.begin(), images[i].bytes.end());
    geometry.push_back({spaced ? 0 : begin, images[i].stride, views[i]});
  }
  geometry.push_back({});  // an image without pixels
  const DeviceMemory<std::uint8_t> device_bytes(bytes.size());
  const DeviceMemory<ImageGeometry> device_geometry(4);
  const DeviceMemory<std::uint8_t> out(4 * 6 * 6 * 3);
  copy_and_wait(device_bytes, bytes.data());
  copy_and_wait(device_geometry, geometry.data());
  const TestStream stream;
  fill_async(out, 77, stream);
  resize_batch(stream, {device_bytes.data(), spaced ? 4000 : 0, device_geometry.data(), 4},
               {.size = {6, 6}}, out.data());
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const std::vector<std::uint8_t> made = out.read();
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<double> expected = reference_of(images[i], views[i]);
    for (std::size_t at = 0; at < expected.size(); ++at)
      CHECK(std::abs(made[i * 108 + at] - expected[at]) <= 0.502);
  }
  CHECK(std::all_of(made.begin() + 3 * 108, made.end(), [](std::uint8_t v) { return v == 0; }));
}

TEST_CASE("resize_batch does not wait for the stream", "[images][resize_batch]") {
  const TestStream stream;
  const DeviceMemory<ImageGeometry> geometry(2);  // without pixels
  const DeviceMemory<float> out(2 * 4 * 4 * 3);
  Gate gate;
  gate.hold(stream);
  fill_async(out, 255, stream);
  resize_batch(stream, {nullptr, 0, geometry.data(), 2}, {.size = {4, 4}}, out.data());
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(out.read() == std::vector<float>(96, 0.0f));
}

TEST_CASE("resize_batch: no images are no work", "[images][resize_batch]") {
  const TestStream stream;
  resize_batch<float>(stream, {}, {.size = {4, 4}}, nullptr);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("resize_batch rejects formats that it cannot write", "[images][resize_batch]") {
  const TestStream stream;
  const DeviceMemory<float> out(64);
  const auto message = [&](const OutputFormat& format) {
    return thrown<std::invalid_argument>(
        [&] { resize_batch(stream, ImageBatch{}, format, out.data()); });
  };
  CHECK_THAT(message({.size = {0, 4}}), Mentions("the size is 0 x 4"));
  CHECK_THAT(message({.size = {1 << 16, 1 << 15}}), Mentions("2^31 - 1 pixels"));
  CHECK_THAT(message({.size = {4, 4}, .channels = 5}), Mentions("5 channels"));
  CHECK_THAT(message({.size = {4, 4}, .standard_deviation = {1, 0, 1}}), Mentions("channel 1"));
  CHECK_THAT(message({.size = {4, 4}, .mean = {std::numeric_limits<float>::quiet_NaN(), 0, 0}}),
             Mentions("channel 0"));
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               resize_batch(stream, {}, {.size = {4, 4}, .mean = {0.5f, 0, 0}},
                            reinterpret_cast<std::uint8_t*>(out.data()));
             }),
             Mentions("bytes are not normalised"));
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               resize_batch(stream, {}, {.size = {4, 4}, .channels = 4}, out.data() + 1);
             }),
             Mentions("aligned to the 16 bytes"));
}

}  // namespace
}  // namespace penstock::images
