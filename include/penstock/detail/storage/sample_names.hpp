// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which files of folders and members of archives are samples, by their names.

#include <algorithm>
#include <array>
#include <penstock/detail/words.hpp>
#include <penstock/version.hpp>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Of images: the list of torchvision's ImageFolder.
inline constexpr std::array<std::string_view, 9> kImageExtensions = {
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};

/// Whether `name` ends in one of `extensions`, which are in lower case; `name` need not be.
template <class Extensions>
bool has_extension(std::string_view name, const Extensions& extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](std::string_view extension) {
    return name.size() >= extension.size() &&
           lower_case(name.substr(name.size() - extension.size())) == extension;
  });
}

// Jupyter and macOS leave files beside the data: copies of notebooks' neighbours in
// .ipynb_checkpoints, the directory __MACOSX, and a file ._x.jpg beside x.jpg. They have the names
// of samples, and are none.

inline bool is_directory_of_tools(std::string_view name) {
  return name == ".ipynb_checkpoints" || name == "__MACOSX";
}
inline bool is_file_of_tools(std::string_view name) {
  return name.starts_with("._");
}

/// Whether this path is such a file, or leads through such a directory.
inline bool is_left_by_tools(std::string_view path) {
  while (true) {
    const std::size_t slash = path.find('/');
    if (slash == std::string_view::npos) return is_file_of_tools(path);
    if (is_directory_of_tools(path.substr(0, slash))) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace penstock::detail
