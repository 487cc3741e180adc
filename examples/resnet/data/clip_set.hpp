// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClipSet: the video files of a data set, with their labels, and the clips that are taken of them.
//
//   const ClipSet clips = open_clips("videos", {.frames = 16});

#include <cstdint>
#include <filesystem>
#include <vector>

namespace resnet {

/// What is taken of each file.
struct ClipOptions {
  std::int64_t frames = 16;         ///< of a clip
  std::int64_t clips_per_file = 1;  ///< in an epoch
  std::int32_t classes = 0;         ///< of the data set; 0: as many as there are
};

struct ClipSet {
  std::vector<std::filesystem::path> files;
  std::vector<std::int32_t> labels;  ///< by file: 0 to classes - 1
  std::int32_t classes = 0;
  std::int64_t frames = 0;
  std::int64_t clips_per_file = 0;

  /// In an epoch.
  std::uint64_t clips() const { return files.size() * static_cast<std::uint64_t>(clips_per_file); }
};

/// Lists the files .mp4, .mov, .mkv and .webm of `folder`, or of `folder`/train if there is such a
/// directory. Each of its directories is a class; in a folder without directories, each file is
/// one. The files are not opened. Throws std::invalid_argument and penstock::StoreError if there
/// are no files or if there are more classes than options.classes.
ClipSet open_clips(const std::filesystem::path& folder, const ClipOptions& options);

}  // namespace resnet
