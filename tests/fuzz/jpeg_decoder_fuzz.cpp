// SPDX-License-Identifier: Apache-2.0

// JPEG files: an ImageError, or the pixels of a view and of the whole image, within the limits. The
// first byte chooses the view.

#include <penstock/images/crop.hpp>
#include <penstock/images/jpeg_decoder.hpp>
#include <penstock/images/resizer.hpp>

#include <cstring>
#include <string_view>
#include <vector>

#include "fuzz.hpp"

using namespace penstock::images;
using penstock::test::require;

namespace {

constexpr JpegOptions kOptions{.apply_orientation = true,
                               .max_pixels = 1 << 16,
                               .max_coefficient_bytes = 1 << 20,
                               .max_scans = 20,
                               .max_seconds = 5};

void decode(JpegDecoder& decoder, std::span<const std::byte> file, std::uint64_t seed) {
  static Resizer resize;
  static std::vector<std::uint8_t> out(32 * 24 * 3);
  const ImageSize size = decoder.open(file);
  require(size.height > 0 && size.width > 0 &&
              std::int64_t{size.height} * size.width <= kOptions.max_pixels,
          "an image is within the limits");
  const RandomResizedCrop crop{.output = {32, 24}};
  const Decoded part = decoder.decode(crop(seed, size));
  require(part.pixels.size.height <= size.height && part.pixels.size.width <= size.width,
          "no more than the image is decoded");
  resize(part, out);
  const Decoded all = decoder.decode(whole(size));
  require(all.pixels.size == size, "an image has its pixels");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static JpegDecoder decoder(kOptions);  // what one file leaves behind must not matter to the next
  if (size == 0) return 0;
  try {
    decode(decoder, {reinterpret_cast<const std::byte*>(data) + 1, size - 1}, data[0]);
  } catch (const ImageError& error) {
    require(std::string_view(error.what()).size() < 1000, "a message is short");
  }
  return 0;
}
