// SPDX-License-Identifier: Apache-2.0

#include "raw_image.hpp"

#include <charconv>
#include <penstock/images/image_error.hpp>
#include <string>
#include <string_view>
#include <system_error>

namespace penstock::inline PENSTOCK_ABI::images {
namespace {

constexpr bool is_space(char character) {
  return character == ' ' || (character >= '\t' && character <= '\r');
}

/// Removes white space and comments from the front of `header`.
void skip_space(std::string_view& header) {
  while (!header.empty() && (is_space(header.front()) || header.front() == '#')) {
    const bool comment = header.front() == '#';
    const std::size_t end = comment ? header.find('\n') : 0;
    header.remove_prefix(end == std::string_view::npos ? header.size() : end + 1);
  }
}

/// Removes a number of 1 or more from the front of `header`.
std::int32_t take_number(std::string_view& header) {
  skip_space(header);
  std::int32_t number = 0;
  const auto [stop, error] = std::from_chars(header.data(), header.data() + header.size(), number);
  if (error != std::errc() || number < 1) throw ImageError("the PPM header has no size");
  header.remove_prefix(static_cast<std::size_t>(stop - header.data()));
  return number;
}

}  // namespace

Pixels raw_pixels(std::span<const std::byte> file, std::int64_t max_pixels) {
  std::string_view rest(reinterpret_cast<const char*>(file.data()), file.size());
  if (!rest.starts_with("P6")) return {};
  rest.remove_prefix(2);
  const std::int32_t width = take_number(rest), height = take_number(rest);
  if (take_number(rest) != 255) throw ImageError("a PPM file with other than 8 bits a colour");
  if (rest.empty() || !is_space(rest.front())) throw ImageError("the PPM header has no end");
  rest.remove_prefix(1);
  if (std::int64_t{height} * width > max_pixels)
    throw ImageError("too large: " + std::to_string(height) + " x " + std::to_string(width) +
                     " pixels, and at most " + std::to_string(max_pixels) + " are read");
  const std::int64_t stride = std::int64_t{3} * width;
  if (static_cast<std::int64_t>(rest.size()) < stride * height)
    throw ImageError("the PPM file is cut short");
  return {reinterpret_cast<const std::uint8_t*>(rest.data()), {height, width}, stride};
}

}  // namespace penstock::images
