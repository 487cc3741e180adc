// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/video_files.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/video/video_error.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "clips.hpp"
#include "support/catch.hpp"
#include "support/memory_files.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace test;
using penstock::test::Mentions;
using penstock::test::thrown;

/// A file of a server, of which the byte `broken` cannot be read.
File in_memory(std::uint64_t broken = ~std::uint64_t{0}) {
  auto file =
      std::make_shared<penstock::test::MemoryFile>("memory://clip.mp4", read_file(clip(kH264)));
  file->broken = broken;
  return File(file);
}

TEST_CASE("Indexes are saved beside their files, and stay in memory", "[video]") {
  const auto path = changed(clip(kH264), "beside.mp4", "-c copy");
  const VideoFiles files({path}, {5});
  CHECK(files.size() == 1);
  CHECK(files.name(0) == path.string());
  CHECK(files.label(0) == 5);
  const Video video = files.video(0);
  CHECK(video.index->size() == 50);
  CHECK(std::filesystem::exists(FrameIndex::path_beside(path)));
  CHECK(files.video(0).index == video.index);
  CHECK_THROWS_AS(files.video(1), std::out_of_range);
}

TEST_CASE("Indexes are saved in a folder, or not at all", "[video]") {
  const auto path = changed(clip(kH264), "elsewhere.mp4", "-c copy");
  const auto indexes = folder() / "indexes" / "of_clips";
  const VideoFiles files({path}, {}, {.index_folder = indexes});
  CHECK(files.video(0).index->size() == 50);
  CHECK(std::filesystem::exists(FrameIndex::path_in(indexes, path.string())));
  CHECK_FALSE(std::filesystem::exists(FrameIndex::path_beside(path)));
  CHECK(files.label(0) == -1);
  const VideoFiles none({path}, {}, {.save_indexes = false});
  CHECK(none.video(0).index->size() == 50);
  CHECK_FALSE(std::filesystem::exists(FrameIndex::path_beside(path)));
}

TEST_CASE("The memory for indexes is bounded", "[video]") {
  const VideoFiles files({clip(kH264), clip(kOpen)}, {}, {.index_bytes = 1});
  const auto first = files.video(0).index;
  CHECK(files.video(0).index == first);
  const auto second = files.video(1).index;
  CHECK(files.video(1).index == second);
  CHECK(files.video(0).index != first);  // It was read again,
  CHECK(*files.video(0).index == *first);
}

TEST_CASE("Files of a server are read by their File", "[video]") {
  const VideoFiles files([](std::uint64_t) { return in_memory(); }, {"memory://clip.mp4"});
  const Video video = files.video(0);
  CHECK(*video.index == FrameIndex::make(File::open(clip(kH264))));
  ClipDecoder decode;
  int frames = 0;
  const std::vector<std::uint64_t> wanted{3, 30};
  decode(video, wanted, [&](std::size_t, const FramePlanes&) { ++frames; });
  CHECK(frames == 2);
}

TEST_CASE("The error of a File is in that of the video", "[video]") {
  const VideoFiles files([](std::uint64_t) { return in_memory(20000); }, {"memory://clip.mp4"});
  CHECK_THAT(thrown<VideoError>([&] { files.video(0); }),
             Mentions("memory://clip.mp4: the server is gone"));
  const VideoFiles none(
      [](std::uint64_t) -> File { throw std::runtime_error("there is no such file"); },
      {"none.mp4"});
  CHECK_THAT(thrown<VideoError>([&] { none.video(0); }),
             Mentions("none.mp4: there is no such file"));
  const VideoFiles missing({folder() / "missing.mp4"});
  CHECK_THAT(thrown<VideoError>([&] { missing.video(0); }), Mentions("missing.mp4: "));
}

TEST_CASE("A list that is not valid is an error", "[video]") {
  CHECK_THROWS_AS(VideoFiles(std::vector<std::filesystem::path>{}), std::invalid_argument);
  CHECK_THROWS_AS(VideoFiles({clip(kH264)}, {1, 2}), std::invalid_argument);
}

}  // namespace
}  // namespace penstock::video
