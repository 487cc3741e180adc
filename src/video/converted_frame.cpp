// SPDX-License-Identifier: Apache-2.0

#include <penstock/video/convert_frames.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::video {
namespace {

/// The shares of red and blue in luma.
struct LumaShares {
  double red, blue;
};

LumaShares shares_of(ColourMatrix matrix) {
  switch (matrix) {
    case ColourMatrix::bt601:
      return {0.299, 0.114};
    case ColourMatrix::bt709:
      return {0.2126, 0.0722};
    case ColourMatrix::bt2020:
      return {0.2627, 0.0593};
    case ColourMatrix::smpte240m:
      return {0.212, 0.087};
    case ColourMatrix::fcc:
      return {0.30, 0.11};
  }
  return {0.299, 0.114};
}

/// The samples of a format: `unit` is one step of 8 bits, `full` the largest sample.
struct SampleRange {
  double unit, full;
};

SampleRange range_of(PlaneFormat format) {
  switch (format) {
    case PlaneFormat::i420:
    case PlaneFormat::nv12:
      return {1, 255};
    case PlaneFormat::i420p10:
      return {4, 1023};
    case PlaneFormat::p010:
      return {256, 1023 * 64};
  }
  return {1, 255};
}

FrameColours colours_of(const VideoStream& stream, PlaneFormat format) {
  const SampleRange range = range_of(format);
  const LumaShares share = shares_of(stream.matrix);
  const double luma = 255 / (stream.full_range ? range.full : 219 * range.unit);
  const double chroma = 255 / (stream.full_range ? range.full : 224 * range.unit);
  const double green = 1 - share.red - share.blue;
  FrameColours colours;
  colours.luma_scale = static_cast<float>(luma);
  colours.luma_shift = static_cast<float>(stream.full_range ? 0 : -16 * range.unit * luma);
  colours.chroma_zero = static_cast<float>(128 * range.unit);
  colours.red_of_red = static_cast<float>(2 * (1 - share.red) * chroma);
  colours.blue_of_blue = static_cast<float>(2 * (1 - share.blue) * chroma);
  colours.green_of_red = static_cast<float>(-2 * (1 - share.red) * share.red / green * chroma);
  colours.green_of_blue = static_cast<float>(-2 * (1 - share.blue) * share.blue / green * chroma);
  return colours;
}

/// Mirrors an axis of a picture with `length` samples.
FrameAxis mirrored(FrameAxis axis, std::int32_t length) {
  axis.low = length - axis.low - axis.size;
  axis.origin = length - axis.origin;
  axis.step = -axis.step;
  return axis;
}

}  // namespace

ConvertedFrame converted_frame(const FramePlanes& planes, const VideoStream& stream,
                               const images::View& view, std::int64_t output) {
  const images::ImageSize shown = stream.display();
  FrameAxis rows{view.region.top, view.region.height, view.origin_y, view.step_y};
  FrameAxis columns{view.region.left, view.region.width, view.origin_x, view.step_x};
  if (view.flip) {
    columns.origin += view.output.width * view.step_x;
    columns.step = -columns.step;
  }
  if (stream.orientation.mirrored_rows) rows = mirrored(rows, shown.height);
  if (stream.orientation.mirrored_columns) columns = mirrored(columns, shown.width);
  if (stream.orientation.transposed) std::swap(rows, columns);
  // A sample of chroma lies a quarter of its size before its middle where it lies on luma's.
  columns.chroma_shift = stream.chroma == ChromaSite::centre ? 0 : 0.25;
  rows.chroma_shift = stream.chroma == ChromaSite::top_left ? 0.25 : 0;
  return {planes,  colours_of(stream, planes.format), rows,
          columns, stream.orientation.transposed,     output};
}

}  // namespace penstock::video
