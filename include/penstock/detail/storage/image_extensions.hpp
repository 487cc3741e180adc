// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which files are images, by the end of their names: the list of torchvision's ImageFolder.

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace penstock::detail {

inline constexpr std::array<std::string_view, 9> kImageExtensions = {
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

/// Letters of ASCII in lower case, whatever the locale.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return lower;
}

/// Whether `name` ends in one of `extensions`, which are in lower case; `name` need not be.
template <class Extensions>
bool has_extension(std::string_view name, const Extensions& extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](std::string_view extension) {
    return name.size() >= extension.size() &&
           lower_case(name.substr(name.size() - extension.size())) == extension;
  });
}

}  // namespace penstock::detail
