// SPDX-License-Identifier: Apache-2.0
#pragma once

// Clips, and functions that choose them: which frames of a file make up a sample. Each choice is a
// pure function of the sample's seed and of the frames of the file: the same sample gets the same
// frames in an epoch, on any rank, with any number of workers.
//
//   const penstock::video::RandomClip choose{.frames = 16, .stride = 2};
//   std::vector<std::uint64_t> frames;
//   choose({.seed = sample.seed}, *video.index, frames);   // 16 numbers of frames of the file
//
// With `rate`, clips are chosen by time in place of numbers: frame k of the clip is the one that is
// displayed k / rate seconds after the first, whatever the frame rate of the file is, and whether
// it varies or not.

#include <cstdint>
#include <penstock/version.hpp>
#include <penstock/video/frame_index.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::video {

/// What becomes of a clip that reaches beyond the end of its file.
enum class ShortFile : std::uint8_t {
  repeat_last,  ///< the last frame is repeated
  loop,         ///< the file begins again
  error,        ///< VideoError
};

/// Frames `first`, `first + stride`, ... of a file.
struct Clip {
  std::uint64_t file = 0;    ///< number of the file
  std::uint64_t first = 0;   ///< number of the first frame in its file
  std::uint64_t frames = 1;  ///< how many frames
  std::uint64_t stride = 1;  ///< from one frame to the next
};

/// Sets `frames` to the numbers of a clip's frames in a file of `size` frames. Throws VideoError
/// for a file that is too short, if the rule says so, and for an empty file; std::invalid_argument
/// for a clip without frames, a stride of 0, and a first frame behind the end.
void clip_frames(const Clip& clip, std::uint64_t size, ShortFile rule,
                 std::vector<std::uint64_t>& frames);

/// What a clip is chosen for.
struct ClipChoice {
  std::uint64_t seed = 0;   ///< of the sample
  std::uint64_t clip = 0;   ///< number of the clip among those of its file
  std::uint64_t clips = 1;  ///< how many clips each file has
};

/// A clip that begins anywhere in its file, as long as all of it fits.
struct RandomClip {
  std::uint64_t frames = 16;                      ///< of the clip
  std::uint64_t stride = 1;                       ///< from one frame to the next, without `rate`
  double rate = 0;                                ///< frames per second; 0: by numbers
  ShortFile short_file = ShortFile::repeat_last;  ///< for files that the clip does not fit into

  /// Sets `chosen` to the numbers of the frames. Throws VideoError for a file that is too short, if
  /// the rule says so; std::invalid_argument for invalid settings.
  void operator()(const ClipChoice& choice, const FrameIndex& index,
                  std::vector<std::uint64_t>& chosen) const;
};

/// The clips of a file lie evenly in it: the first at its begin, the last at its end, one alone in
/// the middle. They overlap, or leave gaps, as their number wants it.
struct DenseClips {
  std::uint64_t frames = 16;                      ///< as in RandomClip
  std::uint64_t stride = 1;                       ///< as in RandomClip
  double rate = 0;                                ///< as in RandomClip
  ShortFile short_file = ShortFile::repeat_last;  ///< as in RandomClip

  /// As in RandomClip; the seed does not matter.
  void operator()(const ClipChoice& choice, const FrameIndex& index,
                  std::vector<std::uint64_t>& chosen) const;
};

/// Frames that lie evenly in the whole file: it is cut into as many equal parts, and the middle of
/// each is taken. Of several clips of a file, each takes another place in the parts. A file with
/// fewer frames has some of them several times; ShortFile has no part in it.
struct UniformFrames {
  std::uint64_t frames = 16;  ///< of the clip
  bool by_time = false;       ///< parts of equal time, in place of equal numbers of frames

  /// As in RandomClip; the seed does not matter.
  void operator()(const ClipChoice& choice, const FrameIndex& index,
                  std::vector<std::uint64_t>& chosen) const;
};

}  // namespace penstock::video
