// SPDX-License-Identifier: Apache-2.0
#pragma once

// first_frames(): which frames are displayed before the first key frame of a file.

#include <cstdint>
#include <penstock/file.hpp>
#include <penstock/video/frame_index.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::video {

/// Decodes the begin of a file. Returns the times of the frames that appear and are displayed
/// before the time `key`. What a decoder does with frames whose references are missing depends on
/// the codec and on what the frames are, so it is tried. Throws VideoError.
std::vector<std::int64_t> first_frames(const File& video, std::int64_t key,
                                       const VideoLimits& limits);

}  // namespace penstock::video
