// SPDX-License-Identifier: Apache-2.0
#pragma once

// What Jupyter and macOS leave in folders and archives beside the data: copies of notebooks'
// neighbours in .ipynb_checkpoints, the directory __MACOSX, and a file ._x.jpg beside x.jpg. They
// have the names of samples, and are none.

#include <string_view>

namespace penstock::detail {

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
