// SPDX-License-Identifier: Apache-2.0
#pragma once

// FrameIndex: the frames of a video file in the order in which they are displayed, and where the
// decoding of each has to begin. With it, frame i is found exactly, without decoding what is before
// its key frame.
//
//   namespace video = penstock::video;
//   const penstock::File file = penstock::File::open("clip.mp4");
//   const video::FrameIndex index =
//       video::FrameIndex::open(file, video::FrameIndex::path_beside("clip.mp4"));
//   std::cout << index.size() << " frames, the last at " << index.time(index.size() - 1) << " s\n";
//
// Frame i is frame i of FFmpeg's filter `select=eq(n\,i)`: what an edit list leaves out is not a
// frame, nor is what cannot be decoded because the file begins without its key frame.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <penstock/file.hpp>
#include <penstock/video/video_stream.hpp>
#include <span>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::video {

/// A frame.
struct FrameEntry {
  std::int64_t time = 0;     ///< when it is displayed, in units of the time base
  std::uint32_t packet = 0;  ///< its number in the order of decoding
  std::uint32_t start = 0;   ///< the StartEntry at which decoding has to begin
  friend bool operator==(const FrameEntry&, const FrameEntry&) = default;
};

/// A packet at which decoding can begin.
struct StartEntry {
  std::int64_t time = 0;         ///< when it is displayed, in units of the time base
  std::int64_t decode_time = 0;  ///< when it is decoded; INT64_MIN: the file does not say
  std::int64_t position = -1;    ///< bytes from the start of the file; -1: unknown
  std::uint32_t packet = 0;      ///< its number in the order of decoding
  std::uint32_t is_key = 1;      ///< 0: the file begins without a key frame, and this is its begin
  friend bool operator==(const StartEntry&, const StartEntry&) = default;
};

/// Limits of files. They are checked before memory is taken.
struct VideoLimits {
  std::uint64_t max_frames = std::uint64_t{1} << 24;  ///< frames of a file: 16 bytes each
  std::int64_t max_pixels = std::int64_t{1} << 26;    ///< pixels of a picture: 8192 x 8192
};

/// The frames of a video file. An object does not change, so any number of threads may use it.
class FrameIndex {
 public:
  /// Reads all packets of the file, and decodes none; only if the file begins without a key frame,
  /// or with frames that need one before it, are its first frames decoded, to see which appear.
  /// libavformat may decode the first frame, too, to find the format. The file is MP4 (MOV) or
  /// Matroska (WebM), with H.264, HEVC, VP9 or AV1 in 4:2:0 with 8 or 10 bits.
  ///
  /// Throws VideoError for another file, one beyond the limits, and one without frames; and the
  /// errors of the file, nested in a VideoError.
  static FrameIndex make(const File& video, const VideoLimits& limits = {});

  /// Reads a saved index. Returns nothing if there is none, if it is damaged, of another version of
  /// the format, or of a video of another size or time of change. The time is that of a file of
  /// this machine; of another file only the size is compared.
  static std::optional<FrameIndex> load(const std::filesystem::path& index, const File& video,
                                        const VideoLimits& limits = {});

  /// Saves the index for load(), whole or not at all. Throws std::system_error.
  void save(const std::filesystem::path& index, const File& video) const;

  /// Loads the index; or makes it, and saves it where that is possible: in a folder that cannot be
  /// written, it is made each time. Throws like make().
  static FrameIndex open(const File& video, const std::filesystem::path& index,
                         const VideoLimits& limits = {});

  /// Where the index of a video lies if it is kept beside it: clip.mp4.frames.
  static std::filesystem::path path_beside(std::filesystem::path video);
  /// Where it lies in a folder for the indexes of many videos, whose last names may be alike.
  static std::filesystem::path path_in(const std::filesystem::path& folder,
                                       const std::string& video);

  /// From parts, which are checked. Frames are in the order of display, starts in that of decoding.
  /// `end`: the time at which the last frame ends. Throws VideoError for parts that do not fit.
  FrameIndex(const VideoStream& stream, std::vector<FrameEntry> frames,
             std::vector<StartEntry> starts, std::int64_t end);

  /// The bytes that save() writes. `video_time`: nanoseconds of its last change; 0: unknown.
  std::vector<std::byte> bytes(std::uint64_t video_size, std::int64_t video_time) const;
  /// Reads what bytes() wrote. Throws VideoError for anything else, and for a video of another size
  /// or time of change.
  static FrameIndex parse(std::span<const std::byte> bytes, std::uint64_t video_size,
                          std::int64_t video_time, const VideoLimits& limits = {});

  /// What the file says about its pictures.
  const VideoStream& stream() const noexcept { return stream_; }
  /// Number of frames; at least 1.
  std::uint64_t size() const noexcept { return frames_.size(); }
  /// All frames, in the order of display.
  std::span<const FrameEntry> frames() const noexcept { return frames_; }
  /// Where decoding can begin, in the order of decoding.
  std::span<const StartEntry> starts() const noexcept { return starts_; }
  /// Whether frame i is a key frame. Throws std::out_of_range.
  bool is_key(std::uint64_t i) const;
  /// Seconds from the first frame until frame i is displayed. Throws std::out_of_range.
  double time(std::uint64_t i) const;
  /// Seconds from the first frame until the last one ends.
  double duration() const noexcept;
  /// The frame that is displayed `seconds` after the first one: the last whose time is not later,
  /// by half a unit of the time base; before the first, the first.
  std::uint64_t at(double seconds) const noexcept;
  /// The time of frame i in the file, for messages: its time stamp in seconds.
  double file_time(std::uint64_t i) const;

  friend bool operator==(const FrameIndex&, const FrameIndex&) = default;

 private:
  VideoStream stream_;
  std::vector<FrameEntry> frames_;
  std::vector<StartEntry> starts_;
  std::int64_t end_;
};

}  // namespace penstock::video
