// SPDX-License-Identifier: Apache-2.0

#include "clip_set.hpp"

#include <algorithm>
#include <numeric>
#include <penstock/file_folder.hpp>
#include <stdexcept>
#include <string>

namespace resnet {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kExtensions = {".mp4", ".mov", ".mkv", ".webm"};

/// Lists the files of a folder that has a directory for each class.
void list_classes(const fs::path& folder, ClipSet& set) {
  const penstock::FileFolder files(folder, kExtensions);
  for (std::uint64_t i = 0; i < files.size(); ++i) {
    set.files.push_back(folder.parent_path() / files.name(i));
    set.labels.push_back(files.label(i));
  }
  set.classes = static_cast<std::int32_t>(files.classes().size());
}

/// Lists the files of a folder without directories: each is a class.
void list_files(const fs::path& folder, ClipSet& set) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (std::count(kExtensions.begin(), kExtensions.end(), entry.path().extension()) > 0)
      set.files.push_back(entry.path());
  if (set.files.empty())
    throw std::invalid_argument(
        folder.string() +
        " has neither directories nor files .mp4, .mov, .mkv or .webm: name the folder of videos");
  std::sort(set.files.begin(), set.files.end());
  set.labels.resize(set.files.size());
  std::iota(set.labels.begin(), set.labels.end(), 0);
  set.classes = static_cast<std::int32_t>(set.files.size());
}

bool has_directories(const fs::path& folder) {
  const fs::directory_iterator entries(folder);
  return std::any_of(begin(entries), end(entries),
                     [](const fs::directory_entry& entry) { return entry.is_directory(); });
}

}  // namespace

ClipSet open_clips(const fs::path& folder, const ClipOptions& options) {
  if (!fs::is_directory(folder))
    throw std::invalid_argument(folder.string() + ": there is no such folder of videos");
  const fs::path part =
      fs::canonical(fs::is_directory(folder / "train") ? folder / "train" : folder);
  ClipSet set;
  set.frames = options.frames;
  set.clips_per_file = options.clips_per_file;
  has_directories(part) ? list_classes(part, set) : list_files(part, set);
  if (options.classes > 0 && set.classes > options.classes)
    throw std::invalid_argument(part.string() + " has " + std::to_string(set.classes) +
                                " classes: --classes must not be smaller");
  set.classes = std::max(set.classes, options.classes);
  return set;
}

}  // namespace resnet
