// SPDX-License-Identifier: Apache-2.0
#pragma once

// Makes the indexes of video files, so that training does not begin with it. It is there with
// penstock::video alone.

#include <cstddef>
#include <filesystem>
#include <vector>

namespace pack {

/// Makes the penstock::video::FrameIndex of each file, and of each video below a directory, where
/// it is not yet, and prints a summary. They are saved in `index_folder`; empty: beside the files.
/// Names each file that is no video. Returns the exit status: 1 if there is any. Throws UsageError
/// for a source without videos, and std::system_error.
int index_videos(const std::vector<std::filesystem::path>& sources,
                 const std::filesystem::path& index_folder, std::size_t threads);

}  // namespace pack
