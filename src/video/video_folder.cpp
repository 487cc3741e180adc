// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <penstock/detail/storage/sample_names.hpp>
#include <penstock/video/video_error.hpp>
#include <penstock/video/video_folder.hpp>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kVideoExtensions{".mp4", ".m4v",  ".mov",
                                                           ".mkv", ".mk3d", ".webm"};

/// Sets the classes of files, whose paths are sorted, and their labels.
void set_classes(VideoFolder& found, const fs::path& folder) {
  for (const fs::path& file : found.files) {
    const fs::path within = file.lexically_relative(folder);
    if (!within.has_parent_path()) {
      found.labels.clear();
      found.classes.clear();
      return;
    }
    std::string name = within.begin()->string();
    if (found.classes.empty() || found.classes.back() != name)
      found.classes.push_back(std::move(name));
    found.labels.push_back(static_cast<std::int32_t>(found.classes.size()) - 1);
  }
}

}  // namespace

VideoFolder VideoFolder::list(const fs::path& folder) {
  using penstock::detail::has_extension;
  using penstock::detail::is_left_by_tools;
  VideoFolder found;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
    const std::string within = entry.path().lexically_relative(folder).string();
    if (has_extension(within, kVideoExtensions) && !is_left_by_tools(within) &&
        entry.is_regular_file())
      found.files.push_back(entry.path());
  }
  if (found.files.empty()) {
    std::string known;
    for (const std::string_view extension : kVideoExtensions)
      known.append(known.empty() ? "" : ", ").append(extension);
    throw VideoError(folder.string() + " has no files " + known +
                     ", and the directories below it have none: name another folder");
  }
  std::sort(found.files.begin(), found.files.end());
  set_classes(found, folder);
  return found;
}

}  // namespace penstock::video
