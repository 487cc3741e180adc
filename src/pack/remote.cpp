// SPDX-License-Identifier: Apache-2.0

#include "remote.hpp"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <penstock/markers.hpp>
#include <penstock/ranks.hpp>
#include <stdexcept>
#include <system_error>

namespace pack {
namespace {

namespace fs = std::filesystem;
using penstock::File;

// The library of penstock::remote calls these. This program has no compiled core, and so has to
// compile them itself.
[[gnu::used]] constexpr auto* make_marker = &penstock::detail::make_marker;
[[gnu::used]] constexpr auto* begin_range = &penstock::detail::begin_range;
[[gnu::used]] constexpr auto* end_range = &penstock::detail::end_range;
[[gnu::used]] constexpr auto* from_environment = &penstock::Ranks::from_environment;

class TemporaryFolder {
 public:
  TemporaryFolder() : path_((fs::temp_directory_path() / "penstock-pack-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code none;
    fs::remove_all(path_, none);
  }

  fs::path operator/(const char* name) const { return fs::path(path_) / name; }

 private:
  std::string path_;
};

penstock::remote::Options options_of(const CacheToFill& cache) {
  penstock::remote::Options options;
  if (!cache.directory.empty())
    options.cache = {.directory = cache.directory,
                     .bytes = cache.bytes,
                     .slot_bytes = static_cast<std::size_t>(cache.slot_bytes),
                     .wait = true};
  return options;
}

}  // namespace

Remote::Remote(const CacheToFill& cache) : client_(options_of(cache)) {
  if (client_.stats().cache_errors > 0)
    throw std::runtime_error(cache.directory.string() + ": there can be no cache here");
}

Source::Any Remote::open(const std::vector<std::string>& urls, const SourceOptions& options) const {
  const std::string& first = urls.front();
  const auto is_folder = [](const std::string& url) { return url.ends_with('/'); };
  if (urls.size() == 1 && is_folder(first)) {
    if (!first.starts_with("s3://") && !first.starts_with("gs://"))
      throw UsageError(first + ": only folders of s3:// and gs:// can be listed");
    const TemporaryFolder folder;
    client_.save_list(first, folder / "list");
    return penstock::FileFolder::from_list(client_.folder(first), folder / "list",
                                           {.allow_empty = true});
  }
  std::vector<File> files;
  for (const std::string& url : urls) {
    if (is_folder(url)) throw UsageError("several URLs must be tar files, and " + url + " is none");
    files.push_back(client_.file(url));
  }
  if (std::ranges::all_of(urls, [](const std::string& url) { return is_tar_name(url); }))
    return penstock::TarShards(files, {.use_indexes = !options.ignore_index,
                                       .allow_empty = true,
                                       .allow_missing_end = options.allow_missing_end});
  if (files.size() > 1) throw UsageError("several URLs must be tar files");
  return penstock::PackedFile(files.front());
}

CacheProgress Remote::cache_progress() const {
  const penstock::remote::Stats stats = client_.stats();
  return {.written = stats.to_cache,
          .found = stats.from_cache,
          .errors = stats.cache_errors,
          .is_full = stats.cache_full};
}

}  // namespace pack
