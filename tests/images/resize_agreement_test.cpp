// SPDX-License-Identifier: Apache-2.0

// resize_batch against torchvision, and against the CPU's Resizer.

#include <penstock/images/crop.hpp>
#include <penstock/images/resize_batch.hpp>
#include <penstock/images/resizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "images/pictures.hpp"
#include "images/view_reference.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using namespace penstock::test;
using test::crop_view;
using test::noise;
using test::Picture;

/// By resize_batch.
std::vector<std::uint8_t> made(const Pixels& pixels, const View& view) {
  const OutputFormat format{.size = view.output};
  const TestStream stream;
  const DeviceMemory<std::uint8_t> memory(
      static_cast<std::size_t>(pixels.stride * (pixels.size.height - 1) + 3 * pixels.size.width));
  const DeviceMemory<ImageGeometry> geometry(1);
  const DeviceMemory<std::uint8_t> out(static_cast<std::size_t>(format.values()));
  const ImageGeometry at{0, pixels.stride, view};
  copy_and_wait(memory, pixels.data);
  copy_and_wait(geometry, &at);
  resize_batch(stream, {memory.data(), 0, geometry.data(), 1}, format, out.data());
  return out.read();
}

TEST_CASE("resize_batch: torchvision's resized_crop, within 1", "[images][resize_batch]") {
  for (const auto& vector : test::vectors().at("crops")) {
    const auto& crop = vector.at("crop");
    INFO(vector.at("image") << ", " << crop);
    const Picture picture = noise(test::size_of(vector.at("image")));
    const View view =
        crop_view({crop[0], crop[1], crop[2], crop[3]}, test::size_of(vector.at("output")));
    CHECK(test::largest_difference(vector, made(picture.pixels(), view)) <= 1);
  }
}

TEST_CASE("resize_batch: torchvision's resize and center_crop, within 1",
          "[images][resize_batch]") {
  for (const auto& vector : test::vectors().at("centres")) {
    INFO(vector.at("image"));
    const Picture picture = noise(test::size_of(vector.at("image")));
    const ResizeCenterCrop crop{.resize = vector.at("resize"),
                                .output = test::size_of(vector.at("output"))};
    CHECK(test::largest_difference(vector, made(picture.pixels(), crop(picture.size))) <= 1);
  }
}

TEST_CASE("resize_batch and Resizer: the same within 1", "[images][resize_batch]") {
  const Picture picture = noise({150, 190});
  const RandomResizedCrop crop{.output = {32, 40}};
  const RandomHorizontalFlip flip;
  Resizer resize;
  std::vector<std::uint8_t> expected(32 * 40 * 3);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const View view = flip(seed, crop(seed, picture.size));
    resize({picture.pixels(), view}, expected);
    const auto found = made(picture.pixels(), view);
    int largest = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
      largest = std::max(largest, std::abs(found[i] - expected[i]));
    CHECK(largest <= 1);
  }
}

}  // namespace
}  // namespace penstock::images
