// SPDX-License-Identifier: Apache-2.0

// PNG files: an ImageError, or a picture of the size it says, within the limits.

#include <cstddef>
#include <string_view>

#include "fuzz.hpp"
#include "resnet/infer/classify/image_file.hpp"

namespace classify = resnet::classify;
using penstock::test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr classify::DecodeLimits kLimits{.pixels = 1 << 16, .seconds = 5};
  classify::Picture picture;
  int asked = 0;
  try {
    classify::decode_png({reinterpret_cast<const std::byte*>(data), size}, picture, kLimits,
                         [&] { return ++asked > 100'000; });
    const auto pixels = std::int64_t{picture.width} * picture.height;
    require(picture.width > 0 && picture.height > 0 && pixels <= kLimits.pixels,
            "a picture is within the limits");
    require(picture.rgb.size() == static_cast<std::size_t>(3 * pixels), "a picture has its pixels");
  } catch (const classify::ImageError& error) {
    require(std::string_view(error.what()).size() < 1000, "a message is short");
  } catch (const classify::DecodeStopped&) {
    require(asked > 100'000, "nothing stops by itself");
  }
  return 0;
}
