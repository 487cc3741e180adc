// SPDX-License-Identifier: Apache-2.0

#include <penstock/images/decoded_images.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <penstock/images/crop.hpp>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <vector>

#include "images/jpeg_files.hpp"
#include "images/view_reference.hpp"
#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

using namespace penstock::test;
using namespace penstock::images::test;

/// The output of `room` and its geometry, by the definition of a View.
std::vector<double> output_of(const std::vector<std::uint8_t>& room,
                              const ImageGeometry& geometry) {
  const Region& region = geometry.view.region;
  CHECK(region.top == 0);
  CHECK(region.left == 0);
  CHECK(geometry.stride == 3 * region.width);
  return reference_of({{region.height, region.width}, geometry.stride, room}, geometry.view);
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST_CASE("place_image copies the region, without gaps", "[images][decoded_images]") {
  const TestImage image = test_image({40, 50}, 1, 7);
  const View view = crop_view({7, 5, 21, 30}, {8, 11}, true);
  Resizer resize;
  std::vector<std::uint8_t> room(21 * 30 * 3);
  const ImageGeometry geometry = place_image({image.pixels(), view}, resize, room);
  CHECK(geometry.view.region == Region{0, 0, 21, 30});
  CHECK(largest_difference(output_of(room, geometry), reference_of(image, view)) < 1e-9);
}

TEST_CASE("place_image resizes what has no room", "[images][decoded_images]") {
  const TestImage image = test_image({40, 50}, 2);
  const View view = crop_view({7, 5, 21, 30}, {8, 11}, true);
  Resizer resize;
  std::vector<std::uint8_t> room(21 * 30 * 3 - 1, 99);
  const ImageGeometry geometry = place_image({image.pixels(), view}, resize, room);
  CHECK(geometry.view.region == Region{0, 0, 8, 11});
  CHECK_FALSE(geometry.view.flip);
  CHECK(largest_difference(output_of(room, geometry), reference_of(image, view)) <= 1.01);
  CHECK(room[8 * 11 * 3] == 99);
  std::vector<std::uint8_t> too_small(8 * 11 * 3 - 1);
  CHECK_THAT(thrown<std::invalid_argument>([&] {
               place_image({image.pixels(), view}, resize, too_small);
             }),
             Mentions("8 x 11 pixels has no room in 263 bytes"));
}

TEST_CASE("decoded_images_layout has room for every image", "[images][decoded_images]") {
  const auto layout = decoded_images_layout(4, {10, 14}, 1.5);
  std::vector<std::byte> block(layout.bytes());
  CHECK(layout.bind(block.data(), 4).pixels.extent(1) == 3 * 210);
  CHECK_THAT(thrown<std::invalid_argument>([] {
               decoded_images_layout(4, {10, 14}, 0.9);
             }),
             Mentions("at least 1"));
  CHECK_THAT(thrown<std::invalid_argument>([] {
               decoded_images_layout(4, {0, 14});
             }),
             Mentions("0 x 14"));
}

TEST_CASE("images_layout has the format's shape", "[images][decoded_images]") {
  const auto nhwc = images_layout<float>(2, {.size = {5, 6}, .channels = 4}).bind(nullptr, 2);
  CHECK(nhwc.pixels.extent(1) == 5);
  CHECK(nhwc.pixels.extent(3) == 4);
  const auto nchw =
      images_layout<float>(2, {.size = {5, 6}, .order = PixelOrder::nchw}).bind(nullptr, 2);
  CHECK(nchw.pixels.extent(1) == 3);
  CHECK(nchw.pixels.extent(3) == 6);
}

TEST_CASE("A pipeline from JPEG files to floats on the device", "[images][decoded_images]") {
  constexpr ImageSize kOutput{12, 9};
  constexpr std::size_t kValues = 12 * 9 * 3;
  const OutputFormat format{.size = kOutput};
  const RandomResizedCrop crop{.output = kOutput};
  const RandomHorizontalFlip flip;
  std::vector<Bytes> files;
  for (int i = 0; i < 20; ++i) {  // from smaller than the output to too large for the room
    const int width = 8 + i * 6, height = 9 + i * 5;
    files.push_back(jpeg_file(smooth_pixels(width, height, 3, i), width, height));
  }
  const auto view_of = [&](std::uint64_t seed, ImageSize size) {
    return flip(seed, crop(seed, size));
  };
  JpegOptions options;
  options.scaled_dct = GENERATE(false, true);
  Prefetcher<Images<float>, DecodedImages> prefetcher(
      decoded_images_layout(6, kOutput),
      Sampler({.samples = files.size(), .batch_size = 6, .shuffle = true, .seed = 3}),
      per_sample(per_worker([&] {
        return
            [&, decode = RowDecoder(options)](const Sample& sample, DecodedImages& batch) mutable {
              decode(
                  files[sample.index], [&](ImageSize size) { return view_of(sample.seed, size); },
                  sample.row, batch);
              batch.labels(sample.row) = static_cast<std::int32_t>(sample.index);
            };
      })),
      resize_images<float>(6, format), {.workers = 3, .epochs = 2});
  const TestStream stream;
  std::size_t samples = 0;
  while (auto batch = prefetcher.next(stream)) {
    const Ticket& ticket = batch.ticket();
    std::vector<float> made(ticket.samples.size() * kValues);
    std::vector<std::int32_t> labels(ticket.samples.size());
    REQUIRE_CUDA(cudaMemcpyAsync(made.data(), batch->pixels.data_handle(), made.size() * 4,
                                 cudaMemcpyDeviceToHost, stream));
    REQUIRE_CUDA(cudaMemcpyAsync(labels.data(), batch->labels.data_handle(), labels.size() * 4,
                                 cudaMemcpyDeviceToHost, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    for (std::size_t row = 0; row < labels.size(); ++row, ++samples) {
      const std::uint64_t index = ticket.samples[row];
      CHECK(labels[row] == static_cast<std::int32_t>(index));
      const DecodedFile file = decode_all(files[index]);
      const TestImage image{{file.height, file.width}, std::int64_t{3} * file.width, file.pixels};
      const auto expected = reference_of(image, view_of(ticket.sample_seed(row), image.size));
      double largest = 0, sum = 0;
      for (std::size_t i = 0; i < kValues; ++i) {
        const double difference = std::abs(255.0 * made[row * kValues + i] - expected[i]);
        largest = std::max(largest, difference);
        sum += difference;
      }
      // At edges, a reduced image is another one than the whole image reduced.
      CHECK((options.scaled_dct ? sum / kValues : largest) < (options.scaled_dct ? 4 : 1.01));
    }
  }
  CHECK(samples == 40);
}

}  // namespace
}  // namespace penstock::images
