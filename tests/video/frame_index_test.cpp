// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/frame_index.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <penstock/file.hpp>
#include <penstock/video/video_error.hpp>
#include <string>
#include <vector>

#include "clips.hpp"
#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace test;

FrameIndex index_of(const std::filesystem::path& path) {
  return FrameIndex::make(File::open(path));
}

std::vector<std::int64_t> times(const FrameIndex& index) {
  std::vector<std::int64_t> times;
  for (const FrameEntry& frame : index.frames()) times.push_back(frame.time);
  return times;
}

void check_times(const std::filesystem::path& path) {
  INFO(path);
  CHECK(times(index_of(path)) == times_by_ffmpeg(path));
}

TEST_CASE("The frames of H.264 with B-frames have the times that ffmpeg shows", "[video]") {
  check_times(clip(kH264));
  check_times(clip(kH264Mkv));
}

TEST_CASE("So have those of open groups of pictures", "[video]") {
  check_times(clip(kOpen));
  check_times(clip(kOpenMkv));
  check_times(clip(kHevc));
}

TEST_CASE("So have those of HEVC with 10 bits, VP9 and AV1", "[video]") {
  check_times(clip(kHevc10));
  check_times(clip(kVp9));
  check_times(clip(kAv1));
}

TEST_CASE("So have those of a variable frame rate", "[video]") {
  check_times(clip(kVariable));
  const FrameIndex index = index_of(clip(kVariable));
  CHECK(index.time(1) - index.time(0) != Approx(index.time(5) - index.time(4)));
}

TEST_CASE("What an edit list leaves out is not a frame", "[video]") {
  const auto path = changed(clip(kH264), "edited.mp4", "-c copy", "-ss 0.7");
  CHECK(times(index_of(path)) == times_by_ffmpeg(path));
  CHECK(index_of(path).size() < index_of(clip(kH264)).size());
}

TEST_CASE("Frames that lack a key frame at the start are not frames", "[video]") {
  // The first key frame is cut off.
  for (const Kind& kind : {kH264Mkv, kOpenMkv, kHevc, kVp9}) {
    const std::string name = std::string("headless_") + kind.file + ".mkv";
    const auto path = changed(clip(kind), name, "-c copy -bsf:v noise=drop='lt(n\\,4)'");
    INFO(path);
    CHECK(times(index_of(path)) == times_by_ffmpeg(path));
    CHECK(index_of(path).size() < index_of(clip(kind)).size());
  }
}

TEST_CASE("A file that begins with an open group of pictures has the frames that appear",
          "[video]") {
  for (const Kind& kind : {kOpenMkv, kHevc}) {
    // The file begins with the second key frame, behind which frames of the group before follow.
    const std::uint32_t begin = index_of(clip(kind)).starts()[1].packet;
    const auto path = changed(clip(kind), std::string("from_open_") + kind.file + ".mkv",
                              "-c copy -bsf:v noise=drop='lt(n\\," + std::to_string(begin) + ")'");
    INFO(path);
    CHECK(times(index_of(path)) == times_by_ffmpeg(path));
    CHECK(index_of(path).size() < index_of(clip(kind)).size());
  }
}

TEST_CASE("An index says what the file says about its pictures", "[video]") {
  const VideoStream h264 = index_of(clip(kH264)).stream();
  CHECK(h264.codec == Codec::h264);
  CHECK(h264.size == ImageSize{64, 96});
  CHECK(h264.matrix == ColourMatrix::bt709);
  CHECK_FALSE(h264.full_range);
  CHECK(h264.bits == 8);
  CHECK(h264.orientation == Orientation{});
  CHECK(index_of(clip(kHevc10)).stream().bits == 10);
  CHECK(index_of(clip(kHevc)).stream().codec == Codec::hevc);
  CHECK(index_of(clip(kVp9)).stream().codec == Codec::vp9);
  CHECK(index_of(clip(kAv1)).stream().codec == Codec::av1);
}

TEST_CASE("An index says how the picture is turned", "[video]") {
  const auto turned = changed(clip(kH264), "turned.mp4", "-c copy -metadata:s:v rotate=90");
  const VideoStream stream = index_of(turned).stream();
  CHECK(stream.orientation.transposed);
  CHECK(stream.display() == ImageSize{96, 64});
}

TEST_CASE("Key frames and times of an index", "[video]") {
  const FrameIndex index = index_of(clip(kH264));
  REQUIRE(index.size() == 50);
  for (std::uint64_t i = 0; i < index.size(); ++i) CHECK(index.is_key(i) == (i % 12 == 0));
  CHECK(index.time(25) == Approx(1));
  CHECK(index.duration() == Approx(2));
  CHECK(index.at(1) == 25);
  CHECK(index.at(1.039) == 25);
  CHECK(index.at(-1) == 0);
  CHECK(index.at(100) == 49);
  CHECK_THROWS_AS(index.time(50), std::out_of_range);
}

TEST_CASE("A saved index is loaded as it was, until it or the video changes", "[video]") {
  const auto path = changed(clip(kH264), "saved.mp4", "-c copy");
  const auto saved = FrameIndex::path_beside(path);
  CHECK(saved.filename() == "saved.mp4.frames");
  CHECK_FALSE(FrameIndex::load(saved, File::open(path)));
  const FrameIndex index = FrameIndex::open(File::open(path), saved);
  CHECK(FrameIndex::load(saved, File::open(path)) == index);

  std::string bytes = read_file(saved);
  bytes[bytes.size() / 2] ^= 1;
  write_file(saved, bytes);
  CHECK_FALSE(FrameIndex::load(saved, File::open(path)));
  CHECK(FrameIndex::open(File::open(path), saved) == index);  // It is made anew.
  CHECK(FrameIndex::load(saved, File::open(path)) == index);

  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now());
  CHECK_FALSE(FrameIndex::load(saved, File::open(path)));
}

TEST_CASE("An index whose folder cannot be written is made each time", "[video]") {
  const auto path = clip(kH264);
  const FrameIndex index = FrameIndex::open(File::open(path), "/proc/none/index.frames");
  CHECK(index.size() == 50);
}

TEST_CASE("Indexes of videos with the same last name have different names in a folder", "[video]") {
  CHECK(FrameIndex::path_in("f", "a/x.mp4") != FrameIndex::path_in("f", "b/x.mp4"));
  CHECK(FrameIndex::path_in("f", "a/x.mp4") == FrameIndex::path_in("f", "a/x.mp4"));
}

TEST_CASE("Files that are no videos are errors that say why", "[video]") {
  const auto wrong = [](const std::string& name, const std::string& bytes) {
    const auto path = folder() / name;
    write_file(path, bytes);
    return penstock::test::thrown<VideoError>([&] { index_of(path); });
  };
  using penstock::test::Mentions;
  CHECK_THAT(wrong("empty.mp4", ""), Mentions("empty.mp4: is no MP4 or Matroska file"));
  CHECK_THAT(wrong("text.mp4", "This is text."), Mentions("is no MP4 or Matroska file"));
  const std::string whole = read_file(clip(kH264));
  CHECK_THAT(wrong("cut.mp4", whole.substr(0, whole.size() / 2)), Mentions("cut.mp4: "));
  // A playlist would lead to other files.
  CHECK_THAT(wrong("list.mp4", "#EXTM3U\n#EXTINF:1,\n" + clip(kH264).string() + "\n"),
             Mentions("is no MP4 or Matroska file"));
}

TEST_CASE("A file that is cut has the frames that are left", "[video]") {
  const std::string whole = read_file(clip(kH264Mkv));
  const auto path = folder() / "cut.mkv";
  write_file(path, whole.substr(0, whole.size() * 2 / 3));
  const FrameIndex index = index_of(path);
  CHECK(index.size() > 10);
  CHECK(index.size() < 50);
}

TEST_CASE("What is not supported is an error that says what to do", "[video]") {
  using penstock::test::Mentions;
  const auto why = [](const Kind& kind) {
    return penstock::test::thrown<VideoError>([&] { index_of(clip(kind)); });
  };
  CHECK_THAT(why({"mpeg4.mp4", "-c:v mpeg4"}), Mentions("the codec is mpeg4"));
  CHECK_THAT(why({"full.mp4", "-c:v libx264 -pix_fmt yuv444p"}),
             Mentions("the pixel format is yuv444p"));
  VideoLimits limits{.max_frames = 49};
  CHECK_THAT(penstock::test::thrown<VideoError>(
                 [&] { FrameIndex::make(File::open(clip(kH264)), limits); }),
             Mentions("raise VideoLimits::max_frames"));
  limits = {.max_pixels = 64 * 96 - 1};
  CHECK_THAT(penstock::test::thrown<VideoError>(
                 [&] { FrameIndex::make(File::open(clip(kH264)), limits); }),
             Mentions("raise VideoLimits::max_pixels"));
}

}  // namespace
}  // namespace penstock::video
