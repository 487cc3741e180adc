// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/clip_decoder.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <penstock/images/image_error.hpp>
#include <penstock/video/video_error.hpp>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include "clips.hpp"
#include "decoded.hpp"
#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace test;
using penstock::test::Mentions;
using penstock::test::thrown;

/// Each frame alone, in an order that goes to and fro, is the one that ffmpeg has decoded.
void check_each_frame(const std::filesystem::path& path) {
  INFO(path);
  const Video video = video_of(path);
  const std::vector<std::string> expected = frames_by_ffmpeg(path, video);
  REQUIRE(video.index->size() == expected.size());
  ClipDecoder decode;
  for (std::uint64_t i = 0; i < expected.size(); ++i) {
    const std::uint64_t frame = i * 17 % expected.size();
    INFO("frame " << frame);
    const auto found = decoded(decode, video, {frame});
    REQUIRE(found.size() == 1);
    CHECK((found[0] == expected[frame]));
  }
  CHECK(decode.stats().files == 1);
}

TEST_CASE("Frame i of H.264 is frame i of ffmpeg", "[video]") {
  check_each_frame(clip(kH264));
  check_each_frame(clip(kH264Mkv));
}

TEST_CASE("Frame i of an open group of pictures is frame i of ffmpeg", "[video]") {
  check_each_frame(clip(kOpen));
  check_each_frame(clip(kOpenMkv));
  check_each_frame(clip(kHevc));
}

TEST_CASE("Frame i of HEVC with 10 bits, VP9 and AV1 is frame i of ffmpeg", "[video]") {
  check_each_frame(clip(kHevc10));
  check_each_frame(clip(kVp9));
  check_each_frame(clip(kAv1));
}

TEST_CASE("Frame i of a variable frame rate and of an edit list is frame i of ffmpeg", "[video]") {
  check_each_frame(clip(kVariable));
  check_each_frame(changed(clip(kH264), "edited.mp4", "-c copy", "-ss 0.7"));
}

TEST_CASE("Frame i is what the filter select of ffmpeg says", "[video]") {
  const Video video = video_of(clip(kOpen));
  ClipDecoder decode;
  for (const std::uint64_t frame : {13u, 23u, 35u}) {
    const auto expected =
        frames_by_ffmpeg(clip(kOpen), video, "select=eq(n\\," + std::to_string(frame) + ")");
    REQUIRE(expected.size() == 1);
    CHECK((decoded(decode, video, {frame})[0] == expected[0]));
  }
}

TEST_CASE("A file without its first key frame has the frames that are whole", "[video]") {
  for (const Kind& kind : {kH264Mkv, kHevc, kVp9}) {
    check_each_frame(changed(clip(kind), std::string("headless_") + kind.file + ".mkv",
                             "-c copy -bsf:v noise=drop='lt(n\\,4)'"));
  }
}

TEST_CASE("A clip is decoded in one run, and one that is far apart by seeking", "[video]") {
  const Video video = video_of(clip(kH264));
  const auto expected = frames_by_ffmpeg(clip(kH264), video);
  ClipDecoder decode;
  const auto check = [&](const Numbers& frames, std::uint64_t seeks) {
    const std::uint64_t before = decode.stats().seeks;
    const auto found = decoded(decode, video, frames);
    REQUIRE(found.size() == frames.size());
    for (std::size_t k = 0; k < frames.size(); ++k) CHECK((found[k] == expected[frames[k]]));
    CHECK(decode.stats().seeks - before == seeks);
  };
  check({0, 1, 2, 3, 4, 5, 6, 7}, 1);
  check({8, 9, 10}, 0);  // It goes on from where it was.
  check({20, 21, 40},
        1);  // The decoder has the packets of 20 and 21, and not yet the key frame 36.
  check({1, 40}, 2);
  check({45, 46, 47, 48, 49}, 0);
  check({49}, 1);
}

TEST_CASE("A decoder is kept for the next file if that is alike", "[video]") {
  const Video first = video_of(clip(kH264));
  const Video second = video_of(changed(clip(kH264), "alike.mp4", "-c copy -metadata title=other"));
  const auto expected = frames_by_ffmpeg(clip(kH264), first);
  ClipDecoder decode;
  CHECK((decoded(decode, first, {5})[0] == expected[5]));
  CHECK((decoded(decode, second, {30})[0] == expected[30]));
  CHECK((decoded(decode, first, {31})[0] == expected[31]));
  CHECK(decode.stats().files == 3);
  CHECK(decode.stats().decoders == 1);
  decoded(decode, video_of(clip(kHevc)), {3});
  CHECK(decode.stats().decoders == 2);
}

// ThreadSanitizer does not see how libavcodec's threads wait for each other: it is not
// instrumented.
#ifndef __SANITIZE_THREAD__
TEST_CASE("Threads of libavcodec do not change the frames", "[video]") {
  const Video video = video_of(clip(kOpen));
  const auto expected = frames_by_ffmpeg(clip(kOpen), video);
  ClipDecoder decode({.threads = 3});
  for (const std::uint64_t frame : {30u, 3u, 25u, 49u, 0u})
    CHECK((decoded(decode, video, {frame})[0] == expected[frame]));
  CHECK_THROWS_AS(ClipDecoder({.threads = 0}), std::invalid_argument);
}
#endif

TEST_CASE("A damaged frame is an error that names file, frame and time", "[video]") {
  std::string bytes = read_file(clip(kH264Mkv));
  const FrameIndex whole = *video_of(clip(kH264Mkv)).index;
  // The bytes of frames behind the second key frame.
  const auto begin = static_cast<std::size_t>(whole.starts()[1].position) + 700;
  const auto end = static_cast<std::size_t>(whole.starts()[2].position) - 700;
  REQUIRE(begin < end);
  for (std::size_t at = begin; at < end; at += 5) bytes[at] ^= 0x55;
  const auto path = folder() / "damaged.mkv";
  write_file(path, bytes);
  const File file = File::open(path);
  const Video video{file, std::make_shared<FrameIndex>(whole)};
  ClipDecoder decode;
  const std::string what = thrown<VideoError>([&] { decoded(decode, video, {22, 23}); });
  CHECK_THAT(what, Mentions("damaged.mkv: frame 22, at 0.88"));
  // What does not depend on the damage is not lost.
  const auto expected = frames_by_ffmpeg(clip(kH264Mkv), video);
  CHECK((decoded(decode, video, {5})[0] == expected[5]));
  CHECK((decoded(decode, video, {40})[0] == expected[40]));
}

TEST_CASE("Whatever is damaged in a file, it is decoded, or an error names it", "[video]") {
  const auto small = [](const char* name, const char* options) {
    return read_file(clip({name, options}, "testsrc2=size=64x64:rate=25:duration=0.4"));
  };
  ClipDecoder decode;
  std::uint64_t state = 7;
  const auto draw = [&](std::size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state >> 33) % below;
  };
  int errors = 0;
  for (const std::string& whole :
       {small("small.mp4", "-c:v libx264 -g 4"), small("small.mkv", "-c:v libx264 -g 4"),
        small("small.webm", "-c:v libvpx-vp9 -g 4 -deadline realtime")})
    for (int variation = 0; variation < 60; ++variation) {
      std::string bytes = whole;
      if (variation % 4 == 0) bytes.resize(draw(bytes.size()));
      for (std::size_t k = 0; k < 1 + draw(8) && !bytes.empty(); ++k)
        bytes[draw(bytes.size())] = static_cast<char>(draw(256));
      const auto path = folder() / "variation.mkv";
      write_file(path, bytes);
      try {
        const Video video = video_of(path);
        Numbers all;
        for (std::uint64_t i = 0; i < video.index->size(); ++i) all.push_back(i);
        decode(video, all, [](std::size_t, const FramePlanes&) {});
      } catch (const VideoError& error) {
        ++errors;
        CHECK_THAT(error.what(), Mentions("variation.mkv: "));
      }
    }
  CHECK(errors > 20);
}

TEST_CASE("What the caller does wrong is said", "[video]") {
  const Video video = video_of(clip(kH264));
  ClipDecoder decode;
  CHECK_THROWS_AS(decoded(decode, video, {50}), std::out_of_range);
  CHECK_THROWS_AS(decoded(decode, video, {3, 3}), std::invalid_argument);
  CHECK_THROWS_AS(decoded(decode, {video.file, nullptr}, {3}), std::invalid_argument);
  CHECK(decoded(decode, video, {}).empty());
}

TEST_CASE("A stop ends the decoding", "[video]") {
  const Video video = video_of(clip(kH264));
  ClipDecoder decode;
  std::stop_source stop;
  stop.request_stop();
  const Numbers frames{40};
  CHECK_THROWS_AS(decode(
                      video, frames, [](std::size_t, const FramePlanes&) {}, stop.get_token()),
                  images::DecodeStopped);
}

TEST_CASE("An index of another file is an error that says so", "[video]") {
  const Video first = video_of(clip(kH264)), other = video_of(clip(kVariable));
  ClipDecoder decode;
  CHECK_THAT(thrown<VideoError>([&] {
               decoded(decode, {other.file, first.index}, {30});
             }),
             Mentions("delete the saved index"));
}

}  // namespace
}  // namespace penstock::video
