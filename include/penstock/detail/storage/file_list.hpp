// SPDX-License-Identifier: Apache-2.0
#pragma once

// FileList: the names and labels of the files of a FileFolder. Ten million of them fit into memory:
// a directory's name is kept once, a file's in a block with all others.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/detail/storage/name_arena.hpp>
#include <penstock/detail/storage/path_text.hpp>
#include <penstock/file_folder.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Whether a server may take the path for one outside of the folder that it is relative to: it has
/// a directory "..", or is a URL.
inline bool leaves_folder(std::string_view path) {
  const std::size_t scheme = path.find("://");
  if (scheme != std::string_view::npos && scheme > 0 && path.find('/') == scheme + 1) return true;
  for (std::size_t at = path.find(".."); at != std::string_view::npos; at = path.find("..", at + 1))
    if ((at == 0 || path[at - 1] == '/') && (at + 2 == path.size() || path[at + 2] == '/'))
      return true;
  return false;
}

struct FileList {
  explicit FileList(const std::filesystem::path& root) : folder(absolute(root).string()) {
    const std::filesystem::path plain = absolute(root).lexically_normal();
    name = (plain.has_filename() ? plain : plain.parent_path()).filename().string();
    if (folder.back() != '/') folder += '/';
    if (!name.empty()) name += '/';
  }
  explicit FileList(std::shared_ptr<const FolderReader> files) : reader(std::move(files)) {
    if (!reader) throw std::invalid_argument("FileFolder: there is no reader");
    folder = reader->name();
    const std::string_view plain =
        std::string_view(folder).substr(0, folder.find_last_not_of('/') + 1);
    name = folder.substr(plain.rfind('/') + 1);
  }

  std::size_t size() const noexcept { return names.size(); }
  std::string_view directory_of(std::size_t i) const { return directories[directory[i]]; }
  bool is_absolute(std::size_t i) const { return !reader && directory_of(i).starts_with('/'); }

  std::filesystem::path path(std::size_t i) const {
    std::string text = is_absolute(i) ? std::string() : folder;
    return text.append(directory_of(i)).append(names[i]);
  }

  // ---- To fill it -----------------------------------------------------------------------------

  /// False: the path names no file, or for a reader it leaves the folder.
  bool add(std::string_view path, std::int32_t of_class) {
    while (path.starts_with("./"))  // Without its slashes ".//x" would be another file's "/x".
      path.remove_prefix(std::min(path.find_first_not_of('/', 1), path.size()));
    const std::size_t slash = path.rfind('/');
    const std::size_t end = slash == std::string_view::npos ? 0 : slash + 1;
    if (end == path.size() || path.find('\0') != std::string_view::npos) return false;
    if (reader && leaves_folder(path)) return false;
    add(path.substr(0, end), path.substr(end), of_class);
    return true;
  }
  void add(std::string_view in, std::string_view file, std::int32_t of_class) {
    const bool same = size() > 0 && directories[directory.back()] == in;
    directory.push_back(same ? directory.back() : number_of(in));
    names.add(file);
    label.push_back(of_class);
  }
  void shrink_to_fit() {
    directories.shrink_to_fit();
    names.shrink_to_fit();
    directory.shrink_to_fit();
    label.shrink_to_fit();
    numbers_ = {};
  }

  std::shared_ptr<const FolderReader> reader;  // nullptr: the files are of this machine
  std::string folder;  // absolute, with a slash at its end; or the reader's name
  std::string name;    // its last part, likewise
  std::vector<std::string> classes;
  NameArena directories;  // relative to the folder, or absolute; empty or with a slash at the end
  NameArena names;        // of each file, without its directory
  std::vector<std::uint32_t> directory;  // of each file
  std::vector<std::int32_t> label;       // of each file
  std::uint64_t ignored = 0;             // what Jupyter and macOS have left
  bool allow_empty = false;

 private:
  std::uint32_t number_of(std::string_view in) {
    const auto next = static_cast<std::uint32_t>(directories.size());
    const auto [found, is_new] = numbers_.try_emplace(std::string(in), next);
    if (is_new) directories.add(in);
    return found->second;
  }

  std::unordered_map<std::string, std::uint32_t> numbers_;  // of the directories
};

}  // namespace penstock::detail
