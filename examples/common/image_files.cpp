// SPDX-License-Identifier: Apache-2.0

#include "image_files.hpp"

#include <algorithm>
#include <stdexcept>

#ifdef EXAMPLES_WITH_REMOTE
#include "image_urls.hpp"
#endif

namespace examples {
namespace {

namespace fs = std::filesystem;

#ifndef EXAMPLES_WITH_REMOTE
[[noreturn]] void fail_without_remote(const fs::path& url) {
  throw std::invalid_argument(
      url.string() +
      ": this program was built without penstock::remote, and reads no URLs. Build it where there "
      "are libcurl, OpenSSL, libexpat and nlohmann_json");
}
#endif

std::vector<fs::path> shards_in(const fs::path& directory, const std::string& prefix) {
  std::vector<fs::path> shards;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".tar" && entry.path().filename().string().starts_with(prefix))
      shards.push_back(entry.path());
  std::sort(shards.begin(), shards.end());
  return shards;
}

}  // namespace

bool is_url(const fs::path& path) {
  const std::string& text = path.native();
  return text.starts_with("s3://") || text.starts_with("gs://") || text.starts_with("https://") ||
         text.starts_with("http://");
}

ImageFiles open_image_files(const std::vector<fs::path>& paths) {
  if (paths.empty()) throw std::invalid_argument("there are no image files: name some");
  const fs::path& first = paths.front();
  const bool is_remote = is_url(first);
  const bool are_shards = std::all_of(paths.begin(), paths.end(), [&](const fs::path& path) {
    return is_url(path) == is_remote && path.extension() == ".tar";
  });
  if (paths.size() > 1 && !are_shards)
    throw std::invalid_argument(
        "several files must be tar shards, .tar, and all on this machine or all at a server");
  if (is_remote) {
#ifdef EXAMPLES_WITH_REMOTE
    return open_image_urls({paths.begin(), paths.end()});
#else
    fail_without_remote(first);
#endif
  }
  if (are_shards) return penstock::TarShards(paths);
  if (fs::is_directory(first)) return penstock::FileFolder(first);
  return penstock::PackedFile(first);
}

std::optional<ImageFiles> open_part(const fs::path& data_set, const std::string& part) {
  if (is_url(data_set)) {
#ifdef EXAMPLES_WITH_REMOTE
    return open_part_of_url(data_set.native(), part);
#else
    fail_without_remote(data_set);
#endif
  }
  if (!fs::is_directory(data_set)) return std::nullopt;
  if (fs::is_directory(data_set / part)) return penstock::FileFolder(data_set / part);
  if (const fs::path pack = data_set / (part + ".pack"); fs::exists(pack))
    return penstock::PackedFile(pack);
  if (const auto shards = shards_in(data_set, part + "-"); !shards.empty())
    return penstock::TarShards(shards);
  return std::nullopt;
}

}  // namespace examples
