// SPDX-License-Identifier: Apache-2.0

// Public sample videos, which other encoders than those of the other tests have written:
// scripts/setup test brings them. Without them, a test prints that it is skipped.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <penstock/video/video_error.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clips.hpp"
#include "decoded.hpp"
#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace test;
using penstock::test::Mentions;

const std::filesystem::path kSamples = PENSTOCK_SAMPLE_VIDEOS;

bool has_samples() {
  if (std::filesystem::exists(kSamples)) return true;
  std::puts("skipped: there are no sample videos: `scripts/setup test` brings them");
  return false;
}

/// Sample videos: 1280 x 720 with one key frame, 640 x 272 with six, and 176 x 144 in two
/// qualities. All have H.264, and an edit list; all but the first have B-frames.
std::vector<std::filesystem::path> samples() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kSamples))
    if (entry.path().extension() == ".mp4") paths.push_back(entry.path());
  REQUIRE(paths.size() == 4);
  return paths;
}

/// The same packets, in a Matroska file.
std::filesystem::path as_matroska(const std::filesystem::path& path) {
  return changed(path, path.stem().string() + ".mkv", "-map v:0 -c copy");
}

/// The same packets, with an edit list that begins within a group of pictures.
std::filesystem::path edited(const std::filesystem::path& path) {
  return changed(path, path.stem().string() + "_edited.mp4", "-map v:0 -c copy", "-ss 1.3");
}

/// Every 17th frame, by random access, is the one that ffmpeg's filter selects.
void check_frames(const std::filesystem::path& path) {
  INFO(path);
  constexpr std::uint64_t kEach = 17;
  const Video video = video_of(path);
  const auto expected =
      frames_by_ffmpeg(path, video, "select=not(mod(n\\," + std::to_string(kEach) + "))");
  REQUIRE(expected.size() == (video.index->size() + kEach - 1) / kEach);
  ClipDecoder decode;
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const std::size_t to_and_fro = k % 2 == 0 ? k / 2 : expected.size() - 1 - k / 2;
    INFO("frame " << to_and_fro * kEach);
    CHECK((decoded(decode, video, {to_and_fro * kEach})[0] == expected[to_and_fro]));
  }
}

void check_times(const std::filesystem::path& path) {
  INFO(path);
  const Video video = video_of(path);
  std::vector<std::int64_t> times;
  for (const FrameEntry& frame : video.index->frames()) times.push_back(frame.time);
  CHECK(times == times_by_ffmpeg(path));
}

TEST_CASE("Frames and times of public sample videos are those of ffmpeg", "[video]") {
  if (!has_samples()) return;
  for (const auto& sample : samples())
    for (const auto& path : {sample, as_matroska(sample), edited(sample)}) {
      check_frames(path);
      check_times(path);
    }
}

/// The frames that can be decoded, each alone, with their times; how many are an error that names
/// the file.
struct Survey {
  std::vector<std::pair<std::int64_t, std::string>> frames;
  std::size_t errors = 0;
};

Survey survey(const std::string& bytes) {
  const auto path = folder() / "damaged_sample.mp4";
  write_file(path, bytes);
  Survey found;
  const auto or_error = [&](const auto& work) {
    try {
      work();
    } catch (const VideoError& error) {
      ++found.errors;
      CHECK_THAT(error.what(), Mentions("damaged_sample.mp4: "));
    }
  };
  or_error([&] {
    const Video video = video_of(path);
    ClipDecoder decode;
    for (std::uint64_t i = 0; i < video.index->size(); i += 3)
      or_error([&] {
        found.frames.emplace_back(video.index->frames()[i].time, decoded(decode, video, {i})[0]);
      });
  });
  return found;
}

/// A sample with its headers at the begin, and in the other container.
std::vector<std::filesystem::path> to_damage() {
  const auto sample = kSamples / "carphone_pristine.mp4";
  return {changed(sample, "headers_first.mp4", "-map v:0 -c copy -movflags faststart"),
          as_matroska(sample)};
}

TEST_CASE("Of a public sample video that is cut, the frames that are left are right", "[video]") {
  if (!has_samples()) return;
  for (const auto& path : to_damage()) {
    const std::string whole = read_file(path);
    const Video video = video_of(path);
    const auto expected = frames_by_ffmpeg(path, video);
    std::size_t frames = 0, wrong = 0;
    for (std::size_t tenth = 0; tenth < 10; ++tenth)
      for (const auto& frame : survey(whole.substr(0, whole.size() * tenth / 10)).frames) {
        const auto all = video.index->frames();
        const auto found = std::find_if(all.begin(), all.end(), [&](const FrameEntry& entry) {
          return entry.time == frame.first;
        });
        REQUIRE(found != all.end());
        ++frames;
        if (frame.second != expected[static_cast<std::size_t>(found - all.begin())]) ++wrong;
      }
    INFO(path << ": " << frames << " frames");
    CHECK(wrong == 0);
    CHECK(frames > 100);
  }
}

TEST_CASE("A public sample video with other bytes is decoded, or an error names it", "[video]") {
  if (!has_samples()) return;
  std::size_t frames = 0, errors = 0;
  for (const auto& path : to_damage()) {
    const std::string whole = read_file(path);
    for (std::size_t variation = 0; variation < 20; ++variation) {
      std::string bytes = whole;
      // Half of the variations are of headers, which are at the begin.
      const std::size_t step = variation % 2 == 0 ? whole.size() / 50 : 97;
      for (std::size_t k = 0; k < 40; ++k)
        bytes[(k * step + variation * 131) % bytes.size()] ^= 0x24;
      const Survey found = survey(bytes);
      frames += found.frames.size();
      errors += found.errors;
    }
  }
  INFO(frames << " frames, " << errors << " errors");
  CHECK(frames > 0);
  CHECK(errors > 0);
}

}  // namespace
}  // namespace penstock::video
