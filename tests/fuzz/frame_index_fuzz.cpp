// SPDX-License-Identifier: Apache-2.0

// Any bytes as the saved index of a video, with and without the right checksum: they are refused,
// or they are an index that saves as these bytes, and whose members all answer.

#include <algorithm>
#include <cstring>
#include <penstock/detail/storage/crc32c.hpp>
#include <penstock/video/clip.hpp>
#include <penstock/video/frame_index.hpp>
#include <penstock/video/video_error.hpp>
#include <span>
#include <vector>

#include "fuzz.hpp"

namespace {

using penstock::test::require;
using penstock::video::FrameIndex;
using penstock::video::VideoError;

constexpr std::size_t kChecked = 16;  // The checksum is before it, and of what follows.

void use(const FrameIndex& index) {
  require(index.size() >= 1 && index.size() == index.frames().size(), "an index has frames");
  require(index.duration() > 0, "a video takes time");
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    require(index.time(i) >= 0 && index.time(i) <= index.duration(), "frames are within it");
    require(index.frames()[i].start < index.starts().size(), "each frame has a start");
    static_cast<void>(index.is_key(i));
    static_cast<void>(index.file_time(i));
    require(index.at(index.time(i)) < index.size(), "each time has a frame");
  }
  std::vector<std::uint64_t> frames;
  penstock::video::RandomClip{.frames = 4, .stride = 3}({.seed = 1}, index, frames);
  penstock::video::UniformFrames{.frames = 5, .by_time = true}({}, index, frames);
  require(frames.size() == 5, "a clip has its frames");
  for (const std::uint64_t frame : frames) require(frame < index.size(), "a clip is of the file");
}

void read(std::span<const std::byte> bytes) {
  // The size and time that the bytes say: else nearly all of them would be of another video.
  std::uint64_t size = 0;
  std::int64_t time = 0;
  if (bytes.size() >= kChecked + 16) {
    std::memcpy(&size, bytes.data() + kChecked, 8);
    std::memcpy(&time, bytes.data() + kChecked + 8, 8);
  }
  try {
    const FrameIndex index = FrameIndex::parse(bytes, size, time);
    use(index);
    const FrameIndex again = FrameIndex::parse(index.bytes(size, time), size, time);
    require(index == again, "an index is saved as it is");
  } catch (const VideoError& error) {
    require(error.what()[0] != 0, "an error says why");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  read(bytes);
  if (size < kChecked) return 0;
  const std::uint32_t sum =
      penstock::detail::crc32c(std::span<const std::byte>(bytes).subspan(kChecked));
  std::memcpy(bytes.data() + 12, &sum, sizeof(sum));
  read(bytes);
  return 0;
}
