// SPDX-License-Identifier: Apache-2.0
#pragma once

// video_files_in(), VideoFolder: the video files of a folder.
//
//   const penstock::video::VideoFiles files = penstock::video::video_files_in("train");

#include <cstdint>
#include <filesystem>
#include <penstock/version.hpp>
#include <penstock/video/video_files.hpp>
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

/// The files of VideoFolder::list(), with their labels. Throws what VideoFolder::list() and the
/// constructor of VideoFiles throw.
VideoFiles video_files_in(const std::filesystem::path& folder,
                          const VideoFilesOptions& options = {});

}  // namespace penstock::video
