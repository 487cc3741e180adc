// SPDX-License-Identifier: Apache-2.0

#include "video/ffmpeg_messages.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <filesystem>
#include <penstock/video/video_error.hpp>
#include <string>
#include <vector>

#include "clips.hpp"
#include "decoded.hpp"
#include "support/catch.hpp"
#include "support/standard_error.hpp"
#include "support/thrown.hpp"
#include "video/ffmpeg.hpp"

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

using namespace test;
using penstock::test::CapturedStandardError;
using penstock::test::Mentions;
using penstock::test::thrown;

/// An MP4 file without the headers at its end.
std::filesystem::path cut_file() {
  const std::string whole = read_file(clip(kH264));
  const auto path = folder() / "without_headers.mp4";
  write_file(path, whole.substr(0, whole.size() / 2));
  return path;
}

/// A file with an index, of which the packets from the second key frame on say that they are larger
/// than they are.
Video damaged_video() {
  std::string bytes = read_file(clip(kH264Mkv));
  const FrameIndex whole = *video_of(clip(kH264Mkv)).index;
  const auto begin = static_cast<std::size_t>(whole.starts()[1].position) + 8;
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
            bytes.begin() + static_cast<std::ptrdiff_t>(begin + 600), '\x7f');
  const auto path = folder() / "large_units.mkv";
  write_file(path, bytes);
  return {File::open(path), std::make_shared<FrameIndex>(whole)};
}

std::string error_of(const Video& video, int threads = 1) {
  ClipDecoder decode({.threads = threads});
  return thrown<VideoError>([&] { decoded(decode, video, {12}); });
}

TEST_CASE("What FFmpeg says of a file is in the error, and not printed", "[video]") {
  const CapturedStandardError printed;
  CHECK_THAT(thrown<VideoError>([] { video_of(cut_file()); }),
             Mentions("without_headers.mp4: ") && Mentions(" (FFmpeg: moov atom not found)"));
  CHECK_THAT(error_of(damaged_video()),
             Mentions("large_units.mkv: frame 12") && Mentions("(FFmpeg: "));
  CHECK(printed.text().empty());
}

// ThreadSanitizer does not see how libavcodec's threads wait for each other: it is not
// instrumented.
#ifndef __SANITIZE_THREAD__
TEST_CASE("What the threads of a decoder say is not printed", "[video]") {
  const Video video = damaged_video();
  const CapturedStandardError printed;
  CHECK_THAT(error_of(video, 3), Mentions("large_units.mkv: frame 12"));
  CHECK(printed.text().empty());
}
#endif

TEST_CASE("What FFmpeg says of a file is not in the error of another one", "[video]") {
  CHECK_THROWS_AS(video_of(cut_file()), VideoError);
  write_file(folder() / "empty.mp4", "");
  CHECK_THAT(thrown<VideoError>([] { video_of(folder() / "empty.mp4"); }), !Mentions("moov"));
}

TEST_CASE("What FFmpeg says of a program's own files is printed", "[video]") {
  const CapturedStandardError printed;
  av_log(nullptr, AV_LOG_ERROR, "of the program\n");
  const CodecHandle codec(allocated(avcodec_alloc_context3(nullptr)));
  av_log(codec.get(), AV_LOG_ERROR, "of its decoder\n");
  CHECK(printed.contains("of the program\n"));
  CHECK(printed.contains("of its decoder\n"));
  CHECK(said_by_ffmpeg().empty());
}

TEST_CASE("A verbose program gets all messages on standard error", "[video]") {
  const CapturedStandardError printed;
  const int before = av_log_get_level();
  av_log_set_level(AV_LOG_VERBOSE);
  CHECK_THAT(thrown<VideoError>([] { video_of(cut_file()); }), Mentions("moov atom not found"));
  av_log_set_level(before);
  CHECK(printed.contains("moov atom not found"));
}

std::vector<std::string> received;

void receive_in_program(void*, int, const char* format, va_list) {
  received.emplace_back(format);
}

TEST_CASE("A program's own callback is not replaced, and gets all messages", "[video]") {
  received.clear();
  av_log_set_callback(receive_in_program);
  const std::string what = thrown<VideoError>([] { video_of(cut_file()); });
  set_message_callback();
  CHECK_THAT(what, Mentions("without_headers.mp4: ") && !Mentions("FFmpeg: "));
  CHECK(std::find(received.begin(), received.end(), "moov atom not found\n") != received.end());
}

TEST_CASE("The last two messages are kept, without what cannot be printed", "[video]") {
  const MessageScope scope;
  for (const char* const message : {"one\n", "two \x01\xff.\n", "three\n", "three\n", "\n"})
    av_log(nullptr, AV_LOG_ERROR, "%s", message);
  av_log(nullptr, AV_LOG_WARNING, "a warning\n");
  CHECK(said_by_ffmpeg() == " (FFmpeg: two ??; three)");
  CHECK(said_by_ffmpeg().empty());
  av_log(nullptr, AV_LOG_ERROR, "%s", std::string(1000, 'a').c_str());
  CHECK(said_by_ffmpeg() == " (FFmpeg: " + std::string(199, 'a') + ")");
}

}  // namespace
}  // namespace penstock::video
