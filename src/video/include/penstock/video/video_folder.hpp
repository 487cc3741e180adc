// SPDX-License-Identifier: Apache-2.0
#pragma once

// VideoFolder: the video files of a folder, with a class for each directory.
//
//   const penstock::video::VideoFolder folder = penstock::video::VideoFolder::list("train");
//   for (std::size_t i = 0; i < folder.classes.size(); ++i)
//     std::cout << i << ": " << folder.classes[i] << '\n';
//   const penstock::video::VideoFiles files(folder.files, folder.labels);

#include <cstdint>
#include <filesystem>
#include <penstock/version.hpp>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::video {

/// The video files below a folder, at any depth, in the order of their paths.
struct VideoFolder {
  std::vector<std::filesystem::path> files;  ///< begin with the path of the folder
  std::vector<std::int32_t> labels;  ///< one for each file, an index into `classes`; or none
  std::vector<std::string> classes;  ///< directories of the folder that have files; or none

  /// Lists the files whose names end in .mp4, .m4v, .mov, .mkv, .mk3d or .webm, in letters of
  /// either case. Links are followed. Left out is what Jupyter and macOS leave behind, as by
  /// FileFolder. If each file is in a directory of the folder, these directories are the classes,
  /// in the order of their names; if one is in the folder itself, there are no classes.
  ///
  /// Reads the directories, and does not open the files. Throws VideoError, which says what was
  /// looked for, if there are none; and std::filesystem::filesystem_error for a directory that
  /// cannot be read.
  static VideoFolder list(const std::filesystem::path& folder);
};

}  // namespace penstock::video
