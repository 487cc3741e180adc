// SPDX-License-Identifier: Apache-2.0
#pragma once

// Frames of video files for tests: as a ClipDecoder delivers them, in the form that clips.hpp has
// them from the program ffmpeg.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/file.hpp>
#include <penstock/video/clip_decoder.hpp>
#include <string>
#include <vector>

#include "clips.hpp"
#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::video::test {

using Numbers = std::vector<std::uint64_t>;

/// The file with a new index.
inline Video video_of(const std::filesystem::path& path) {
  const File file = File::open(path);
  return {file, std::make_shared<FrameIndex>(FrameIndex::make(file))};
}

inline void append_plane(std::string& bytes, const std::uint8_t* plane, std::int64_t stride,
                         ImageSize size, std::int64_t sample) {
  for (std::int32_t row = 0; row < size.height; ++row)
    bytes.append(reinterpret_cast<const char*>(plane + row * stride),
                 static_cast<std::size_t>(size.width * sample));
}

/// A frame without gaps, as ffmpeg writes it.
inline std::string bytes_of(const FramePlanes& planes) {
  std::string bytes;
  const std::int64_t sample = sample_bytes(planes.format);
  append_plane(bytes, planes.luma, planes.luma_stride, planes.size, sample);
  append_plane(bytes, planes.blue, planes.chroma_stride, chroma_size(planes.size), sample);
  append_plane(bytes, planes.red, planes.chroma_stride, chroma_size(planes.size), sample);
  return bytes;
}

/// Decodes these frames, whose numbers must ascend.
inline std::vector<std::string> decoded(ClipDecoder& decode, const Video& video,
                                        const Numbers& frames) {
  std::vector<std::string> all;
  decode(video, frames, [&](std::size_t k, const FramePlanes& planes) {
    CHECK(k == all.size());
    all.push_back(bytes_of(planes));
  });
  return all;
}

/// The frames that a filter of ffmpeg passes, in the size and with the bits of the video.
inline std::vector<std::string> frames_by_ffmpeg(const std::filesystem::path& path,
                                                 const Video& video,
                                                 const std::string& filter = "null") {
  const VideoStream& stream = video.index->stream();
  return frames_by_ffmpeg(path, stream.size.height, stream.size.width, stream.bits, filter);
}

}  // namespace penstock::video::test
