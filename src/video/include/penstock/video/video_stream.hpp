// SPDX-License-Identifier: Apache-2.0
#pragma once

// VideoStream: what a file says about its pictures: codec, sizes, orientation, colours, times.

#include <cstdint>
#include <penstock/images/view.hpp>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::video {

using images::ImageSize;

/// The codecs that are decoded.
enum class Codec : std::uint8_t { h264 = 1, hevc, vp9, av1 };

/// The matrix between RGB and YCbCr.
enum class ColourMatrix : std::uint8_t { bt601, bt709, bt2020, smpte240m, fcc };

/// Where a chroma sample of 4:2:0 lies among its four luma samples.
enum class ChromaSite : std::uint8_t {
  left,      ///< between the two of the left column; the default of H.264, HEVC and VP9
  centre,    ///< between all four
  top_left,  ///< on the one at the top left
};

/// How a decoded picture becomes the displayed one: first rows and columns are exchanged, then the
/// result is mirrored. All eight turns and mirrors can be expressed.
struct Orientation {
  bool transposed = false;        ///< rows become columns
  bool mirrored_rows = false;     ///< of the displayed picture: top becomes bottom
  bool mirrored_columns = false;  ///< of the displayed picture: left becomes right
  friend bool operator==(const Orientation&, const Orientation&) = default;
};

/// A quotient of two integers.
struct Ratio {
  std::int32_t numerator = 0;    ///< above the line
  std::int32_t denominator = 1;  ///< below the line, above 0
  friend bool operator==(const Ratio&, const Ratio&) = default;
};

/// The video stream of a file.
struct VideoStream {
  Codec codec = Codec::h264;       ///< how it is coded
  std::uint32_t number = 0;        ///< number of the stream in its file
  ImageSize size;                  ///< in pixels, of a decoded picture, before it is turned
  Orientation orientation;         ///< how the picture is turned for display
  std::int32_t bits = 8;           ///< of a sample: 8 or 10; all are 4:2:0
  bool full_range = false;         ///< luma from 0 to 255 in place of 16 to 235
  ColourMatrix matrix{};           ///< BT.601 if the file does not say; that is FFmpeg's rule, too
  ChromaSite chroma{};             ///< left if the file does not say
  Ratio time_base{1, 1};           ///< seconds of one unit of the time stamps
  Ratio pixel_aspect{0, 1};        ///< width of a pixel by its height; 0: unknown. Is not applied
  std::int32_t reorder_delay = 0;  ///< pictures that the decoder keeps back to sort them

  /// The size of a displayed picture in pixels.
  ImageSize display() const noexcept {
    return orientation.transposed ? ImageSize{size.width, size.height} : size;
  }
  friend bool operator==(const VideoStream&, const VideoStream&) = default;
};

}  // namespace penstock::video
