// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClipDecoder: decodes frames of video files on the CPU, by libavcodec.
//
//   namespace video = penstock::video;
//   const penstock::File file = penstock::File::open("clip.mp4");
//   const video::Video clip{file, std::make_shared<video::FrameIndex>(video::FrameIndex::make(file))};
//   video::ClipDecoder decode;
//   decode(clip, std::vector<std::uint64_t>{10, 12, 14},
//          [&](std::size_t k, const video::FramePlanes& planes) { ... });
//
// For a frame, it goes to the key frame before, decodes from there, and drops what is before the
// frame. It goes on from where it is if that is no further.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <penstock/file.hpp>
#include <penstock/video/frame_index.hpp>
#include <penstock/video/frame_planes.hpp>
#include <span>
#include <stop_token>

namespace penstock::inline PENSTOCK_ABI::video {

/// A file and its index.
struct Video {
  File file;                                ///< the file
  std::shared_ptr<const FrameIndex> index;  ///< of the same file; must not be nullptr
};

/// How a ClipDecoder decodes.
struct DecoderOptions {
  int threads = 1;  ///< of libavcodec, for each decoder; the workers are threads already
  /// False: a frame is an error if it, or one that was decoded on the way to it from its key frame,
  /// is damaged. True: it is delivered as libavcodec conceals the damage.
  bool allow_damaged = false;
  std::int64_t max_pixels = VideoLimits{}.max_pixels;  ///< of a picture
};

/// Counts of a decoder.
struct DecoderStats {
  std::uint64_t frames = 0;    ///< frames that were delivered
  std::uint64_t dropped = 0;   ///< frames that were decoded on the way to them
  std::uint64_t seeks = 0;     ///< how often a key frame was gone to
  std::uint64_t files = 0;     ///< how often a file was opened
  std::uint64_t decoders = 0;  ///< how often a decoder of libavcodec was made
};

/// Decodes frames of files on the CPU. It keeps the last file open, and keeps its decoder for the
/// next file if that has the same codec, size and parameters. Use an object on one thread at a
/// time. After the largest file of each kind, only libavformat's headers of a file allocate memory.
class ClipDecoder {
 public:
  /// Receives frame k of the list. The planes are valid during the call: i420 or i420p10.
  using FrameSink = std::function<void(std::size_t k, const FramePlanes& planes)>;

  /// Throws std::invalid_argument for invalid options.
  explicit ClipDecoder(const DecoderOptions& options = {});
  ClipDecoder(ClipDecoder&&) noexcept;
  ClipDecoder& operator=(ClipDecoder&&) noexcept;
  ~ClipDecoder();

  /// Decodes these frames, whose numbers must ascend, and gives each to `sink` in this order.
  /// Throws VideoError, which names the file, the frame and its time, if one cannot be decoded;
  /// what `sink` throws; images::DecodeStopped soon after `stop` was requested;
  /// std::invalid_argument for numbers that do not ascend, and std::out_of_range for one that is
  /// not in the index.
  void operator()(const Video& video, std::span<const std::uint64_t> frames, const FrameSink& sink,
                  const std::stop_token& stop = {});

  /// What it has done so far.
  const DecoderStats& stats() const noexcept;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace penstock::video
