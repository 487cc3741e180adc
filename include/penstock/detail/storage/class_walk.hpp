// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClassWalk: the files below the directories of the classes, as torchvision's ImageFolder finds
// them.

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <penstock/detail/storage/file_list.hpp>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/detail/words.hpp>
#include <penstock/store.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// What is in a directory, in the order of the names.
struct DirectoryListing {
  using Identity = std::pair<::dev_t, ::ino_t>;

  /// Throws StoreError.
  explicit DirectoryListing(const std::filesystem::path& path) {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(path.c_str()), &::closedir);
    if (stream == nullptr) fail(path, errno);
    struct stat status {};
    if (::fstat(::dirfd(stream.get()), &status) != 0) fail(path, errno);
    identity = {status.st_dev, status.st_ino};
    while (true) {
      errno = 0;
      // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread has this stream.
      const dirent* const entry = ::readdir(stream.get());
      if (entry == nullptr) break;
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      kind_of(path, ::dirfd(stream.get()), *entry).push_back(name);
    }
    if (errno != 0) fail(path, errno);
    for (std::vector<std::string>* const list : {&files, &directories, &links_to_nothing})
      std::sort(list->begin(), list->end());
    ignored = std::erase_if(directories, is_directory_of_tools);
  }

  /// A link counts as what it leads to.
  std::vector<std::string> files, directories, links_to_nothing;
  std::uint64_t ignored = 0;  // directories that Jupyter and macOS have left
  Identity identity;

 private:
  /// The list that this belongs to.
  std::vector<std::string>& kind_of(const std::filesystem::path& path, int directory,
                                    const dirent& entry) {
    if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN)
      return entry.d_type == DT_DIR ? directories : files;
    struct stat status {};
    if (::fstatat(directory, entry.d_name, &status, 0) == 0)
      return S_ISDIR(status.st_mode) ? directories : files;
    if (errno != ENOENT) fail(path / entry.d_name, errno);
    return links_to_nothing;
  }

  [[noreturn]] static void fail(const std::filesystem::path& path, int error) {
    throw StoreError("FileFolder", path, "cannot list: " + std::generic_category().message(error));
  }
};

/// Lists a folder once.
class ClassWalk {
 public:
  /// `extensions`: none given are those of images. Throws StoreError for a folder that cannot be
  /// listed.
  ClassWalk(const std::filesystem::path& folder, const std::vector<std::string>& extensions)
      : folder_(folder), top_(folder), files_(folder) {
    for (const std::string& extension : extensions) extensions_.push_back(lower_case(extension));
    if (extensions.empty()) extensions_.assign(kImageExtensions.begin(), kImageExtensions.end());
  }

  /// Throws StoreError for a directory that cannot be listed, for links that form a loop, for one
  /// that leads nowhere and may have led to a directory, and for what has no class or no file.
  FileList list() {
    if (!top_.links_to_nothing.empty()) fail_at_link_to_nothing(top_.links_to_nothing.front());
    if (top_.directories.empty())
      throw StoreError("FileFolder", folder_,
                       "there is no directory in it: a folder has one for each class. Files "
                       "without classes can be given by a list (FileFolder::from_list)");
    files_.ignored = top_.ignored;
    above_ = {top_.identity};
    for (const std::string& name : top_.directories) add_class(name);
    return std::move(files_);
  }

 private:
  void add_class(const std::string& name) {
    found_.clear();
    enter(name);
    if (found_.empty()) {
      std::string ends;
      for (const std::string& extension : extensions_)
        ends += (ends.empty() ? "" : ", ") + extension;
      throw StoreError("FileFolder", folder_ / name,
                       "a class without files: no name in it ends in " + ends +
                           ". Remove the directory, or name other extensions");
    }
    const auto label = static_cast<std::int32_t>(files_.classes.size());
    files_.classes.push_back(name);
    for (const auto& [directory, names] : found_)
      for (const std::string& file : names) files_.add(directory + "/", file, label);
  }

  void enter(const std::string& directory) {
    DirectoryListing listing(folder_ / directory);
    if (std::find(above_.begin(), above_.end(), listing.identity) != above_.end())
      throw StoreError("FileFolder", folder_ / directory,
                       "a loop of links: this is one of the directories above it");
    above_.push_back(listing.identity);
    take_links_to_nothing(directory, listing);
    std::erase_if(listing.files,
                  [&](const std::string& file) { return !has_extension(file, extensions_); });
    files_.ignored += listing.ignored + std::erase_if(listing.files, is_file_of_tools);
    if (!listing.files.empty()) found_.emplace(directory, std::move(listing.files));
    for (const std::string& name : listing.directories)
      enter(std::string(directory).append("/").append(name));
    above_.pop_back();
  }

  /// Of one that has the name of a sample, reading tells. One without an extension may be a
  /// directory with samples.
  void take_links_to_nothing(const std::string& directory, DirectoryListing& listing) const {
    for (const std::string& name : listing.links_to_nothing) {
      const bool is_sample = has_extension(name, extensions_);
      if (!is_sample && !std::filesystem::path(name).has_extension())
        fail_at_link_to_nothing(std::string(directory).append("/").append(name));
      if (is_sample) listing.files.push_back(name);
    }
    std::sort(listing.files.begin(), listing.files.end());
  }

  [[noreturn]] void fail_at_link_to_nothing(const std::string& link) const {
    throw StoreError("FileFolder", folder_ / link, "is a link to nothing: remove it or mend it");
  }

  const std::filesystem::path folder_;
  const DirectoryListing top_;
  std::vector<std::string> extensions_;                    // in lower case
  std::vector<DirectoryListing::Identity> above_;          // the directories that the walk is in
  std::map<std::string, std::vector<std::string>> found_;  // of the class, by directory
  FileList files_;
};

}  // namespace penstock::detail
