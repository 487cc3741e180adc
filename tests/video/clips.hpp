// SPDX-License-Identifier: Apache-2.0
#pragma once

// Video files for tests, made by the program ffmpeg, and their frames as that program decodes them.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/files.hpp"
#include "support/temporary_directory.hpp"

namespace penstock::inline PENSTOCK_ABI::video::test {

/// The folder of this process for clips; or one that has them already, and keeps them.
inline const std::filesystem::path& folder() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes the environment
  if (const char* const given = std::getenv("PENSTOCK_VIDEO_CLIPS")) {
    static const std::filesystem::path kept = given;
    return kept;
  }
  static const penstock::test::TemporaryDirectory directory;
  static const std::filesystem::path path = directory / "";
  return path;
}

using penstock::test::read_file;
using penstock::test::write_file;

/// Runs `ffmpeg <arguments>`. Returns what it printed.
inline std::string run_ffmpeg(const std::string& arguments) {
  const std::filesystem::path log = folder() / "log.txt";
  const std::string command = PENSTOCK_FFMPEG_PROGRAM " -hide_banner -nostdin -y -v info " +
                              arguments + " > '" + log.string() + "' 2>&1";
  // NOLINTNEXTLINE(cert-env33-c,concurrency-mt-unsafe): a test
  if (std::system(command.c_str()) != 0) throw std::runtime_error(command + "\n" + read_file(log));
  return read_file(log);
}

/// The kinds of clips: the name of the file, and the options of ffmpeg after its input.
struct Kind {
  const char* file;
  const char* options;
  const char* before = "";  ///< options before the input
};

inline constexpr const char* kColours =
    " -pix_fmt yuv420p -colorspace bt709 -color_primaries bt709 -color_trc bt709 ";

/// H.264 with B-frames that other frames refer to, and a key frame after each 12 frames.
inline constexpr Kind kH264{"h264.mp4",
                            "-c:v libx264 -g 12 -bf 3 -x264-params scenecut=0:b-pyramid=normal"};
inline constexpr Kind kH264Mkv{"h264.mkv", "-c:v libx264 -g 12 -bf 3 -x264-params scenecut=0"};
/// Frames that are displayed before a key frame refer to what is before it.
inline constexpr Kind kOpen{"open.mp4",
                            "-c:v libx264 -g 12 -bf 3 -x264-params scenecut=0:open-gop=1"};
inline constexpr Kind kOpenMkv{"open.mkv",
                               "-c:v libx264 -g 12 -bf 3 -x264-params scenecut=0:open-gop=1"};
inline constexpr Kind kHevc{
    "hevc.mp4", "-c:v libx265 -tag:v hvc1 -x265-params keyint=12:bframes=3:open-gop=1:log-level=0"};
inline constexpr Kind kHevc10{
    "hevc10.mkv", "-c:v libx265 -pix_fmt yuv420p10le -x265-params keyint=10:bframes=2:log-level=0"};
inline constexpr Kind kVp9{"vp9.webm", "-c:v libvpx-vp9 -g 15 -deadline realtime -cpu-used 8"};
inline constexpr Kind kAv1{"av1.mp4", "-c:v libaom-av1 -g 15 -cpu-used 8 -usage realtime"};
/// Frames with irregular times.
inline constexpr Kind kVariable{"variable.mp4",
                                "-vf setpts='N*40+mod(N\\,5)*13' -vsync vfr -enc_time_base 1/1000 "
                                "-video_track_timescale 1000 -c:v libx264 -g 12 -bf 2"};
inline constexpr Kind kTurned{"turned.mp4", "-c:v libx264 -g 12"};

/// Engines have a least size of a picture.
inline constexpr const char* kLargePicture = "testsrc2=size=320x256:rate=25:duration=2";
inline constexpr Kind kLarge{"large.mp4", "-c:v libx264 -g 12 -bf 3 -x264-params scenecut=0"};
inline constexpr Kind kLargeOpen{"large_open.mp4",
                                 "-c:v libx264 -g 12 -bf 3 -x264-params scenecut=0:open-gop=1"};
inline constexpr Kind kLargeHevc{"large_hevc.mp4", kHevc.options};
inline constexpr Kind kLargeHevc10{"large_hevc10.mkv", kHevc10.options};
inline constexpr Kind kLargeVp9{"large_vp9.webm", kVp9.options};
inline constexpr Kind kLargeAv1{"large_av1.mp4", kAv1.options};

/// Returns the clip, which is made at the first call.
inline std::filesystem::path clip(
    const Kind& kind, const std::string& input = "testsrc2=size=96x64:rate=25:duration=2") {
  const std::filesystem::path path = folder() / kind.file;
  if (!std::filesystem::exists(path))
    run_ffmpeg("-f lavfi -i " + input + kColours + kind.options + " -threads 1 '" + path.string() +
               "'");
  return path;
}

/// A file that ffmpeg makes of another one.
inline std::filesystem::path changed(const std::filesystem::path& from, const std::string& file,
                                     const std::string& options, const std::string& before = "") {
  const std::filesystem::path path = folder() / file;
  if (!std::filesystem::exists(path))
    run_ffmpeg(before + " -i '" + from.string() + "' " + options + " '" + path.string() + "'");
  return path;
}

/// The frames of a video as ffmpeg decodes them: planar, not turned, with 8 or 16 bits a sample.
inline std::vector<std::string> frames_by_ffmpeg(const std::filesystem::path& video, int height,
                                                 int width, int bits = 8,
                                                 const std::string& filter = "null") {
  const std::filesystem::path raw = folder() / "frames.yuv";
  run_ffmpeg("-noautorotate -i '" + video.string() + "' -map v:0 -vf '" + filter +
             "' -vsync passthrough -f rawvideo -pix_fmt " +
             (bits == 8 ? "yuv420p" : "yuv420p10le") + " '" + raw.string() + "'");
  const std::string all = read_file(raw);
  const int chroma = ((height + 1) / 2) * ((width + 1) / 2);
  const auto size = static_cast<std::size_t>((height * width + 2 * chroma) * (bits == 8 ? 1 : 2));
  std::vector<std::string> frames;
  for (std::size_t at = 0; at + size <= all.size(); at += size)
    frames.push_back(all.substr(at, size));
  return frames;
}

/// The time stamps of the frames as ffmpeg's filters see them, in units of the time base.
inline std::vector<std::int64_t> times_by_ffmpeg(const std::filesystem::path& video) {
  std::istringstream log(run_ffmpeg("-copyts -i '" + video.string() +
                                    "' -map v:0 -vf showinfo -vsync passthrough -f null -"));
  std::vector<std::int64_t> times;
  for (std::string line; std::getline(log, line);) {
    const std::size_t at = line.find(" pts:");
    if (at != std::string::npos && line.find("showinfo") != std::string::npos)
      times.push_back(std::stoll(line.substr(at + 5)));
  }
  return times;
}

}  // namespace penstock::video::test
