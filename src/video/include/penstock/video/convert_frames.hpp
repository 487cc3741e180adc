// SPDX-License-Identifier: Apache-2.0
#pragma once

// convert_frames(stream, frames, count, format, out): makes outputs of decoded pictures in one
// kernel: it turns them for display, crops, resizes, converts the colours by the stream's own
// matrix and range, normalises and casts.
//
//   const penstock::video::VideoStream& pictures = video.index->stream();
//   const penstock::images::View view = crop(sample.seed, pictures.display());
//   const auto frame = penstock::video::converted_frame(planes, pictures, view, 0);
//   ...  // copy it to device memory
//   penstock::video::convert_frames(stream, on_device, 1, format, out);
//
// With nvcc this is a kernel; with a C++ compiler it is a host function over penstock::emulated
// (see launch.hpp). The arithmetic is the same.
//
// Method: one thread per output pixel computes the weighted means that images/view.hpp defines, of
// luma and of both planes of chroma, each in its own plane, and converts the three means. Chroma is
// interpolated from where the stream says that its samples lie. The conversion is linear, so this
// is what converting each pixel first would give, except where a colour is beyond the range of RGB:
// it is limited once, at the end.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <penstock/images/resize_batch.hpp>
#include <penstock/images/view.hpp>
#include <penstock/launch.hpp>
#include <penstock/video/frame_planes.hpp>
#include <penstock/video/video_stream.hpp>

namespace penstock::inline PENSTOCK_ABI::video {

/// One direction of a picture as it is decoded: where the outputs lie in it.
struct FrameAxis {
  std::int32_t low = 0, size = 0;  ///< the samples that are used
  double origin = 0;               ///< where the outputs begin
  double step = 1;                 ///< samples for each output; below 0: mirrored
  double chroma_shift = 0;         ///< of a position in the plane of chroma, in its samples
};

/// The numbers by which samples become RGB from 0 to 255.
struct FrameColours {
  float luma_scale = 1, luma_shift = 0;       ///< of a sample of luma
  float chroma_zero = 128;                    ///< the sample of a grey
  float red_of_red = 0;                       ///< what a sample of Cr adds to red
  float green_of_blue = 0, green_of_red = 0;  ///< what samples of Cb and Cr add to green
  float blue_of_blue = 0;                     ///< what a sample of Cb adds to blue
};

/// A picture in device memory, and the output that is made of it. It is copied to the device.
struct ConvertedFrame {
  FramePlanes planes;       ///< in device memory
  FrameColours colours;     ///< of its stream
  FrameAxis rows, columns;  ///< of the picture as it is decoded; empty: the output becomes zeros
  bool transposed = false;  ///< a row of the output is a column of the picture
  std::int64_t output = 0;  ///< number of the output that it becomes
};

/// Describes output number `output`: `view` is in the coordinates of the displayed picture, and has
/// to lie within it. `planes.size` must be that of the stream.
ConvertedFrame converted_frame(const FramePlanes& planes, const VideoStream& stream,
                               const images::View& view, std::int64_t output);

namespace detail {

PENSTOCK_HOST_DEVICE inline images::detail::Taps taps(double centre, double step, std::int32_t low,
                                                      std::int32_t size) {
  return {centre, step < 0 ? -step : step, low, size};
}

/// The weighted mean of the samples of a plane; `spacing` from one to the next in a row.
template <class Sample>
PENSTOCK_HOST_DEVICE float mean_of(const std::uint8_t* plane, std::int64_t stride,
                                   std::int32_t spacing, const images::detail::Taps& rows,
                                   const images::detail::Taps& columns) {
  float sum = 0, total = 0, row_distance = rows.distance;
  for (std::int32_t y = rows.first; y < rows.last; ++y, row_distance += 1) {
    const auto* const row = reinterpret_cast<const Sample*>(plane + y * stride);
    float row_sum = 0, row_total = 0, distance = columns.distance;
    for (std::int32_t x = columns.first; x < columns.last; ++x, distance += 1) {
      const float weight = columns.weight(distance);
      row_sum += weight * static_cast<float>(row[static_cast<std::int64_t>(x) * spacing]);
      row_total += weight;
    }
    const float weight = rows.weight(row_distance);
    sum += weight * row_sum;
    total += weight * row_total;
  }
  return total > 0 ? sum / total : 0;
}

PENSTOCK_HOST_DEVICE inline float limited(float value) {
  return value < 0 ? 0 : value < 255 ? value : 255;
}

PENSTOCK_HOST_DEVICE inline images::detail::Rgb rgb_of(const FrameColours& by, float luma,
                                                       float blue, float red) {
  const float y = luma * by.luma_scale + by.luma_shift;
  const float b = blue - by.chroma_zero, r = red - by.chroma_zero;
  return {limited(y + by.red_of_red * r), limited(y + by.green_of_blue * b + by.green_of_red * r),
          limited(y + by.blue_of_blue * b)};
}

/// The colour of the picture around a position of its rows and columns.
template <class Sample>
PENSTOCK_HOST_DEVICE images::detail::Rgb colour_at(const ConvertedFrame& frame, double row,
                                                   double column) {
  const FrameAxis &rows = frame.rows, &columns = frame.columns;
  const FramePlanes& planes = frame.planes;
  const std::int32_t spacing = is_interleaved(planes.format) ? 2 : 1;
  const float luma =
      mean_of<Sample>(planes.luma, planes.luma_stride, 1, taps(row, rows.step, rows.low, rows.size),
                      taps(column, columns.step, columns.low, columns.size));
  const std::int32_t top = rows.low / 2, bottom = (rows.low + rows.size + 1) / 2;
  const std::int32_t left = columns.low / 2, right = (columns.low + columns.size + 1) / 2;
  const auto chroma_rows = taps(row / 2 + rows.chroma_shift, rows.step / 2, top, bottom - top);
  const auto chroma_columns =
      taps(column / 2 + columns.chroma_shift, columns.step / 2, left, right - left);
  return rgb_of(
      frame.colours, luma,
      mean_of<Sample>(planes.blue, planes.chroma_stride, spacing, chroma_rows, chroma_columns),
      mean_of<Sample>(planes.red, planes.chroma_stride, spacing, chroma_rows, chroma_columns));
}

/// The kernel for output pixel `i`, counted over rows, columns and frames.
template <class T>
struct ConvertPixel {
  const ConvertedFrame* frames;
  images::detail::OutputPixels<T> to;

  PENSTOCK_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto pixel = static_cast<std::uint32_t>(i);
    const std::uint32_t area = to.height * to.width;
    const std::uint32_t number = pixel / area, at = pixel - number * area;
    const std::uint32_t y = at / to.width, x = at - y * to.width;
    const ConvertedFrame& frame = frames[number];
    if (frame.rows.size <= 0 || frame.columns.size <= 0) return to.clear(frame.output, at);
    const double down = frame.transposed ? x + 0.5 : y + 0.5;
    const double across = frame.transposed ? y + 0.5 : x + 0.5;
    const double row = frame.rows.origin + down * frame.rows.step;
    const double column = frame.columns.origin + across * frame.columns.step;
    to.write(frame.output, at,
             sample_bytes(frame.planes.format) == 1 ? colour_at<std::uint8_t>(frame, row, column)
                                                    : colour_at<std::uint16_t>(frame, row, column));
  }
};

}  // namespace detail

/// Writes an output of format.values() values for each of `count` frames: frame i becomes output
/// frames[i].output at `out`, in device memory, as the frames themselves. It queues one kernel
/// (several only beyond 2^31 pixels) on `stream`, and returns without blocking or synchronising.
/// The size of the outputs is that of `format`; views are not checked. Frames of T outputs one
/// after the other are a clip in the order NTHWC or NTCHW, by `format.order`.
///
/// Throws std::invalid_argument for a format that it cannot write, and if `out` is not aligned to
/// its pixels (4 or 8 channels, NHWC); CudaError if the launch fails.
template <images::OutputElement T>
[[gnu::always_inline]] inline void convert_frames(StreamRef stream, const ConvertedFrame* frames,
                                                  std::int64_t count,
                                                  const images::OutputFormat& format, T* out) {
  const std::int64_t area = std::int64_t{format.size.height} * format.size.width;
  detail::ConvertPixel<T> op{frames, images::detail::output_pixels(format, out, "convert_frames")};
  const std::int64_t at_once = INT32_MAX / area;
  for (std::int64_t first = 0; first < count; first += at_once) {
    const std::int64_t left = count - first;
    op.frames = frames + first;
    for_each(stream, (left < at_once ? left : at_once) * area, op);
  }
}

}  // namespace penstock::video
