// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/clip.hpp>

#include <cstdint>
#include <limits>
#include <penstock/video/video_error.hpp>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using Numbers = std::vector<std::uint64_t>;
using penstock::test::Mentions;
using penstock::test::thrown;

/// A file whose frames have these times, in hundredths of a second.
FrameIndex file(const std::vector<std::int64_t>& times, std::int64_t end) {
  VideoStream stream;
  stream.size = {4, 4};
  stream.time_base = {1, 100};
  std::vector<FrameEntry> frames;
  for (std::size_t i = 0; i < times.size(); ++i)
    frames.push_back({times[i], static_cast<std::uint32_t>(i), 0});
  return {stream, frames, {StartEntry{times[0], times[0], 0, 0, 1}}, end};
}

/// `size` frames, 25 in a second.
FrameIndex steady(std::uint64_t size) {
  std::vector<std::int64_t> times;
  for (std::uint64_t i = 0; i < size; ++i) times.push_back(static_cast<std::int64_t>(4 * i));
  return file(times, static_cast<std::int64_t>(4 * size));
}

template <class Choose>
Numbers chosen(const Choose& choose, const ClipChoice& choice, const FrameIndex& index) {
  Numbers frames{99, 98};
  choose(choice, index, frames);
  return frames;
}

Numbers frames_of(const Clip& clip, std::uint64_t size, ShortFile rule) {
  Numbers frames;
  clip_frames(clip, size, rule, frames);
  return frames;
}

TEST_CASE("A clip has frames with a stride", "[video]") {
  CHECK(frames_of({0, 2, 4, 3}, 12, ShortFile::error) == Numbers{2, 5, 8, 11});
  CHECK(frames_of({0, 2, 5, 3}, 12, ShortFile::repeat_last) == Numbers{2, 5, 8, 11, 11});
  CHECK(frames_of({0, 2, 5, 3}, 12, ShortFile::loop) == Numbers{2, 5, 8, 11, 2});
  CHECK_THAT(thrown<VideoError>([] {
               frames_of({0, 2, 5, 3}, 12, ShortFile::error);
             }),
             Mentions("the file has 12 frames, and a clip needs 13 from frame 2 on"));
  CHECK_THROWS_AS(frames_of({0, 0, 0, 1}, 12, ShortFile::loop), std::invalid_argument);
  CHECK_THROWS_AS(frames_of({0, 0, 1, 0}, 12, ShortFile::loop), std::invalid_argument);
  CHECK_THROWS_AS(frames_of({0, 12, 1, 1}, 12, ShortFile::loop), std::invalid_argument);
  CHECK_THROWS_AS(frames_of({0, 0, 1, 1}, 0, ShortFile::loop), VideoError);
  CHECK_THROWS_AS(
      frames_of({0, 0, std::numeric_limits<std::uint64_t>::max(), 2}, 1, ShortFile::error),
      std::invalid_argument);
}

TEST_CASE("A random clip begins at each place where it fits, and nowhere else", "[video]") {
  const FrameIndex index = steady(20);
  const RandomClip choose{.frames = 4, .stride = 5};
  std::set<std::uint64_t> begins;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Numbers frames = chosen(choose, {.seed = seed}, index);
    REQUIRE(frames == chosen(choose, {.seed = seed}, index));
    REQUIRE(frames.size() == 4);
    for (std::size_t k = 1; k < 4; ++k) REQUIRE(frames[k] == frames[k - 1] + 5);
    begins.insert(frames[0]);
  }
  CHECK(begins == std::set<std::uint64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("A random clip of a short file begins with its first frame", "[video]") {
  CHECK(chosen(RandomClip{.frames = 5}, {.seed = 3}, steady(3)) == Numbers{0, 1, 2, 2, 2});
  CHECK(chosen(RandomClip{.frames = 5, .short_file = ShortFile::loop}, {.seed = 3}, steady(3)) ==
        Numbers{0, 1, 2, 0, 1});
  CHECK_THROWS_AS(
      chosen(RandomClip{.frames = 5, .short_file = ShortFile::error}, {.seed = 3}, steady(3)),
      VideoError);
}

TEST_CASE("Several random clips of a file differ", "[video]") {
  const RandomClip choose{.frames = 2};
  const FrameIndex index = steady(1000);
  CHECK(chosen(choose, {.seed = 1, .clip = 0, .clips = 2}, index) !=
        chosen(choose, {.seed = 1, .clip = 1, .clips = 2}, index));
  CHECK_THROWS_AS(chosen(choose, {.clip = 2, .clips = 2}, index), std::invalid_argument);
}

TEST_CASE("Dense clips lie evenly in their file", "[video]") {
  const DenseClips choose{.frames = 2, .stride = 3};
  const FrameIndex index = steady(14);
  CHECK(chosen(choose, {.clip = 0, .clips = 3}, index) == Numbers{0, 3});
  CHECK(chosen(choose, {.clip = 1, .clips = 3}, index) == Numbers{5, 8});
  CHECK(chosen(choose, {.clip = 2, .clips = 3}, index) == Numbers{10, 13});
  CHECK(chosen(choose, {}, index) == Numbers{5, 8});
  CHECK(chosen(choose, {.clip = 1, .clips = 3}, steady(2)) == Numbers{0, 1});
}

TEST_CASE("Uniform frames lie evenly in their file", "[video]") {
  CHECK(chosen(UniformFrames{.frames = 4}, {}, steady(12)) == Numbers{1, 4, 7, 10});
  CHECK(chosen(UniformFrames{.frames = 4}, {}, steady(2)) == Numbers{0, 0, 1, 1});
  CHECK(chosen(UniformFrames{.frames = 2}, {.clip = 0, .clips = 2}, steady(8)) == Numbers{1, 5});
  CHECK(chosen(UniformFrames{.frames = 2}, {.clip = 1, .clips = 2}, steady(8)) == Numbers{3, 7});
}

TEST_CASE("Clips by time follow the time stamps of a variable frame rate", "[video]") {
  // A second with 4 frames, and one with 2.
  const FrameIndex index = file({1000, 1025, 1050, 1075, 1100, 1150}, 1200);
  CHECK(chosen(DenseClips{.frames = 8, .rate = 4}, {}, index) == Numbers{0, 1, 2, 3, 4, 4, 5, 5});
  CHECK(chosen(DenseClips{.frames = 2, .rate = 1}, {}, index) == Numbers{0, 4});
  CHECK(chosen(DenseClips{.frames = 3, .rate = 1}, {}, index) == Numbers{0, 4, 5});
  CHECK(chosen(DenseClips{.frames = 3, .rate = 1, .short_file = ShortFile::loop}, {}, index) ==
        Numbers{0, 4, 0});
  CHECK_THAT(thrown<VideoError>([&] {
               chosen(DenseClips{.frames = 3, .rate = 1, .short_file = ShortFile::error}, {},
                      index);
             }),
             Mentions("the file has 2.000000 s, and a clip needs 3.000000 s"));
  CHECK(chosen(UniformFrames{.frames = 4, .by_time = true}, {}, index) == Numbers{1, 3, 4, 5});
  CHECK_THROWS_AS(chosen(DenseClips{.rate = -1}, {}, index), std::invalid_argument);
}

TEST_CASE("A clip by time at the rate of the file has each frame once", "[video]") {
  // 30000/1001 frames in a second, rounded to thousandths, as Matroska does.
  VideoStream stream;
  stream.size = {4, 4};
  stream.time_base = {1, 1000};
  std::vector<FrameEntry> frames;
  for (std::uint32_t i = 0; i < 300; ++i)
    frames.push_back({static_cast<std::int64_t>(i * 1001.0 / 30 + 0.5), i, 0});
  const FrameIndex index(stream, frames, {StartEntry{}}, 10010);
  const Numbers all = chosen(DenseClips{.frames = 300, .rate = 30000 / 1001.0}, {}, index);
  for (std::uint64_t i = 0; i < 300; ++i) CHECK(all[i] == i);
}

}  // namespace
}  // namespace penstock::video
