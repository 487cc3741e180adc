// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pictures, and what torchvision makes of them (make_vectors.py).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::images::test {

/// Memory of exactly the size, so that AddressSanitizer sees what reads beyond.
struct Picture {
  ImageSize size;
  std::vector<std::uint8_t> rgb;

  Pixels pixels() const { return {rgb.data(), size, std::int64_t{3} * size.width}; }
  std::uint8_t at(std::int64_t y, std::int64_t x, std::int64_t c) const {
    return rgb[static_cast<std::size_t>((y * size.width + x) * 3 + c)];
  }
};

inline Picture noise(ImageSize size) {
  Picture picture{size, {}};
  std::uint32_t state = 12345;
  for (std::int64_t i = 0; i < std::int64_t{3} * size.height * size.width; ++i) {
    state = state * 1664525 + 1013904223;
    picture.rgb.push_back(static_cast<std::uint8_t>(state >> 24));
  }
  return picture;
}

inline const nlohmann::json& vectors() {
  static const nlohmann::json all = [] {
    std::ifstream file(PENSTOCK_IMAGES_VECTORS);
    if (!file) throw std::runtime_error("there is no " PENSTOCK_IMAGES_VECTORS);
    return nlohmann::json::parse(file);
  }();
  return all;
}

inline ImageSize size_of(const nlohmann::json& pair) {
  return {pair.at(0).get<std::int32_t>(), pair.at(1).get<std::int32_t>()};
}

/// Against the pixels that a vector has kept.
inline int largest_difference(const nlohmann::json& vector, const std::vector<std::uint8_t>& rgb) {
  const auto text = vector.at("rgb").get<std::string>();
  const auto stride = vector.at("stride").get<std::size_t>();
  int largest = 0;
  for (std::size_t i = 0; i < text.size() / 2; ++i) {
    const int wanted = std::stoi(text.substr(2 * i, 2), nullptr, 16);
    largest = std::max(largest, std::abs(wanted - rgb.at(i / 3 * stride * 3 + i % 3)));
  }
  return largest;
}

}  // namespace penstock::images::test
