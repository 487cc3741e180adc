// SPDX-License-Identifier: Apache-2.0

#include <penstock/images/decoded_images.hpp>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::images {

Layout<DecodedImages> decoded_images_layout(std::int64_t batch_size, ImageSize output,
                                            double room) {
  if (output.height < 1 || output.width < 1)
    throw std::invalid_argument("decoded_images_layout: the output has " +
                                std::to_string(output.height) + " x " +
                                std::to_string(output.width) + " pixels");
  if (!(room >= 1) || room > 1e6)
    throw std::invalid_argument("decoded_images_layout: room for " + std::to_string(room) +
                                " outputs: it must be at least 1, and not above a million");
  const auto pixels = static_cast<std::int64_t>(
      std::ceil(room * output.height * static_cast<double>(output.width)));
  Layout<DecodedImages> layout(batch_size);
  layout.field(&DecodedImages::pixels, {3 * pixels});
  layout.field(&DecodedImages::geometry, {});
  layout.field(&DecodedImages::labels, {});
  return layout;
}

ImageGeometry place_image(const Decoded& image, Resizer& resize, std::span<std::uint8_t> room) {
  const Region& region = image.view.region;
  const ImageSize& output = image.view.output;
  const auto bytes = [](std::int32_t height, std::int32_t width) {
    return static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * 3;
  };
  if (bytes(output.height, output.width) > room.size())
    throw std::invalid_argument("place_image: an output of " + std::to_string(output.height) +
                                " x " + std::to_string(output.width) + " pixels has no room in " +
                                std::to_string(room.size()) +
                                " bytes: the views and the layout must have the same output");
  if (bytes(region.height, region.width) > room.size()) {
    resize(image, room.first(bytes(output.height, output.width)));
    return {0, std::int64_t{3} * output.width, whole(output)};
  }
  const std::size_t stride = bytes(1, region.width);
  const std::uint8_t* from =
      image.pixels.data + region.top * image.pixels.stride + std::int64_t{3} * region.left;
  std::uint8_t* to = room.data();
  for (std::int32_t y = 0; y < region.height; ++y, from += image.pixels.stride, to += stride)
    std::memcpy(to, from, stride);
  View view = image.view;
  view.region.top = view.region.left = 0;
  view.origin_y -= region.top;
  view.origin_x -= region.left;
  return {0, static_cast<std::int64_t>(stride), view};
}

}  // namespace penstock::images
