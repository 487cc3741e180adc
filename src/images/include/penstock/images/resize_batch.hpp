// SPDX-License-Identifier: Apache-2.0
#pragma once

// resize_batch(stream, images, format, out): crops, resizes, flips, normalises and casts a batch of
// images in one kernel. Each image has its own size and its own View; all outputs have one size.
//
//   penstock::images::OutputFormat format{.size = {224, 224},
//                                         .channels = 4,  // the fourth is zero
//                                         .mean = {0.485f, 0.456f, 0.406f},
//                                         .standard_deviation = {0.229f, 0.224f, 0.225f}};
//   penstock::images::resize_batch(stream, images, format, out);   // float* out
//
// With nvcc this is a kernel; with a C++ compiler it is a host function over penstock::emulated
// (see launch.hpp). The arithmetic is the same.
//
// Method: one thread per output pixel computes the weighted means that view.hpp defines, directly
// in two dimensions. The weights are computed from the distance of a source pixel to the centre
// where they are used, because a multiplication costs less than reading a table. Neighbouring
// threads read neighbouring pixels, and write with one store of 4 or 8 channels.
//
// Why not separably, with a buffer between the two directions? When an image is reduced, about four
// outputs read each pixel, whatever the step, since neighbouring filters overlap by half in each
// direction. So the cost of a source pixel is constant: four multiplications and additions per
// channel. Decoding that pixel costs much more. Only the time of one thread grows with the step,
// because it reads about 4 * step_y * step_x pixels. decoded_images.hpp bounds the step, and in
// hardware_decoder.hpp the images have to fit its memory.

#include <cuda_runtime_api.h>

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <penstock/images/view.hpp>
#include <penstock/launch.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace penstock::inline PENSTOCK_ABI::images {

/// The place of an image in the memory of its batch, and its view. It is copied to the device with
/// the batch. An image whose region is empty becomes zeros.
struct ImageGeometry {
  std::int64_t offset = 0;  ///< bytes to the first pixel, see ImageBatch
  std::int64_t stride = 0;  ///< bytes from one row of pixels to the next
  View view;                ///< what the output is made of, in the coordinates of these pixels
};

/// Images in device memory: interleaved red, green and blue, 3 bytes a pixel. The first pixel of
/// image i is at bytes + i * spacing + geometry[i].offset.
struct ImageBatch {
  const std::uint8_t* bytes = nullptr;      ///< device memory
  std::int64_t spacing = 0;                 ///< bytes from one image to the next
  const ImageGeometry* geometry = nullptr;  ///< geometries of `count` images, in device memory
  std::int64_t count = 0;                   ///< number of images
};

/// The order of an output's values in memory.
enum class PixelOrder : std::uint8_t {
  nhwc,  ///< height, width, channels
  nchw,  ///< channels, height, width
};

/// The format of a batch of outputs. A value of a floating type is (pixel / 255 - mean) /
/// standard_deviation, where a pixel is 0 ... 255; a std::uint8_t is the pixel, rounded to nearest.
struct OutputFormat {
  ImageSize size{};                     ///< size of an output in pixels
  PixelOrder order = PixelOrder::nhwc;  ///< order of the values in memory
  int channels = 3;                     ///< 3, 4 or 8: the channels after the third are zero
  std::array<float, 3> mean{0, 0, 0};   ///< means of red, green and blue, where 1 is full
  std::array<float, 3> standard_deviation{1, 1, 1};  ///< standard deviations, the same way

  /// The number of values of one output.
  std::int64_t values() const noexcept { return std::int64_t{size.height} * size.width * channels; }
};

/// The element types of an output: float, __half, __nv_bfloat16 and the like, or std::uint8_t.
template <class T>
concept OutputElement = std::same_as<T, std::uint8_t> ||
    (std::is_trivially_copyable_v<T> && !std::is_integral_v<T> && requires(float f) { T(f); });

namespace detail {

/// The source pixels of an output pixel, in one direction, and their weights.
struct Taps {
  std::int32_t first, last;  ///< `last` is one past the end
  float distance;            ///< of the first pixel's centre to the output's centre
  float slope;               ///< of the triangle

  PENSTOCK_HOST_DEVICE Taps(double centre, double step, std::int32_t low, std::int32_t size) {
    const double half = step > 1 ? step : 1;
    const double begin = centre - half + 0.5, end = centre + half + 0.5, most = low + size;
    first = static_cast<std::int32_t>(begin < low ? low : begin > most - 1 ? most - 1 : begin);
    last = static_cast<std::int32_t>(end > most ? most : end < first + 1 ? first + 1 : end);
    distance = static_cast<float>(first + 0.5 - centre);
    slope = static_cast<float>(1 / half);
  }
  /// Returns the weight of a pixel at this distance from the centre.
  PENSTOCK_HOST_DEVICE float weight(float at) const {
    const float weight = 1 - (at < 0 ? -at : at) * slope;
    return weight > 0 ? weight : 0;
  }
};

struct Rgb {
  float red = 0, green = 0, blue = 0;
};

PENSTOCK_HOST_DEVICE inline float load(const std::uint8_t* pixel) {
#ifdef __CUDA_ARCH__
  return static_cast<float>(__ldg(pixel));
#else
  return static_cast<float>(*pixel);
#endif
}

/// The weighted mean of the pixels of both directions' taps.
PENSTOCK_HOST_DEVICE inline Rgb mean_of(const std::uint8_t* pixels, std::int64_t stride,
                                        const Taps& rows, const Taps& columns) {
  Rgb sum;
  float total = 0, row_distance = rows.distance;
  for (std::int32_t y = rows.first; y < rows.last; ++y, row_distance += 1) {
    const std::uint8_t* pixel = pixels + y * stride + std::int64_t{3} * columns.first;
    Rgb row;
    float row_total = 0, distance = columns.distance;
    for (std::int32_t x = columns.first; x < columns.last; ++x, pixel += 3, distance += 1) {
      const float weight = columns.weight(distance);
      row.red += weight * load(pixel);
      row.green += weight * load(pixel + 1);
      row.blue += weight * load(pixel + 2);
      row_total += weight;
    }
    const float weight = rows.weight(row_distance);
    sum.red += weight * row.red;
    sum.green += weight * row.green;
    sum.blue += weight * row.blue;
    total += weight * row_total;
  }
  const float scale = total > 0 ? 1 / total : 0;
  const auto mean = [scale](float of_all) {
    const float value = of_all * scale;
    return value < 255 ? value : 255;  // Rounding may exceed 255 for white pixels.
  };
  return {mean(sum.red), mean(sum.green), mean(sum.blue)};
}

template <class T>
PENSTOCK_HOST_DEVICE T output_value(float value) {
  if constexpr (std::is_same_v<T, std::uint8_t>)
    return static_cast<T>(value + 0.5f);  // NOLINT(bugprone-incorrect-roundings): 0 to 255
  else
    return T(value);
}

/// Channels of one pixel that are written at once.
template <class T, std::size_t channels>
struct alignas(sizeof(T) * channels) PixelVector {
  T values[channels];
};

/// Writes the pixels of a batch of outputs.
template <class T>
struct OutputPixels {
  T* out;
  std::uint32_t height, width, channels;
  PixelOrder order;
  float scale[3], shift[3];

  /// Writes pixel `at` of output `image`, counted over its rows. `colour`: 0 ... 255.
  PENSTOCK_HOST_DEVICE void write(std::int64_t image, std::uint32_t at, const Rgb& colour) const {
    const T values[3] = {output_value<T>(colour.red * scale[0] + shift[0]),
                         output_value<T>(colour.green * scale[1] + shift[1]),
                         output_value<T>(colour.blue * scale[2] + shift[2])};
    write_values(image, at, values);
  }
  /// Writes zeros.
  PENSTOCK_HOST_DEVICE void clear(std::int64_t image, std::uint32_t at) const {
    const T values[3] = {T(0), T(0), T(0)};
    write_values(image, at, values);
  }

 private:
  PENSTOCK_HOST_DEVICE void write_values(std::int64_t image, std::uint32_t at,
                                         const T (&values)[3]) const {
    const std::uint32_t area = height * width;
    T* const first = out + image * area * channels;
    if (order == PixelOrder::nhwc) {
      T* const to = first + static_cast<std::int64_t>(at) * channels;
      if (channels == 4) return write_vector<4>(values, to);
      if (channels == 8) return write_vector<8>(values, to);
      for (int c = 0; c < 3; ++c) to[c] = values[c];
      return;
    }
    for (std::uint32_t c = 0; c < channels; ++c)
      first[static_cast<std::int64_t>(c) * area + at] = c < 3 ? values[c] : T(0);
  }
  template <std::size_t number>
  PENSTOCK_HOST_DEVICE static void write_vector(const T (&values)[3], T* to) {
    PixelVector<T, number> vector;
    for (std::size_t c = 0; c < number; ++c) vector.values[c] = c < 3 ? values[c] : T(0);
    *reinterpret_cast<PixelVector<T, number>*>(to) = vector;
  }
};

/// The kernel for output pixel `i`, counted over rows, images and the batch.
template <class T>
struct ResizePixel {
  ImageBatch images;
  OutputPixels<T> to;

  PENSTOCK_HOST_DEVICE void operator()(std::int64_t i) const {
    // It uses 32 bits, because a division of 64 bits takes as long as the rest.
    const auto pixel = static_cast<std::uint32_t>(i);
    const std::uint32_t area = to.height * to.width;
    const std::uint32_t image = pixel / area, at = pixel - image * area;
    const std::uint32_t y = at / to.width, x = at - y * to.width;
    const ImageGeometry& geometry = images.geometry[image];
    const View& view = geometry.view;
    if (view.region.height <= 0 || view.region.width <= 0) return to.clear(image, at);
    const std::uint32_t column = view.flip ? to.width - 1 - x : x;
    const Taps rows(view.origin_y + (y + 0.5) * view.step_y, view.step_y, view.region.top,
                    view.region.height);
    const Taps columns(view.origin_x + (column + 0.5) * view.step_x, view.step_x, view.region.left,
                       view.region.width);
    to.write(image, at,
             mean_of(images.bytes + image * images.spacing + geometry.offset, geometry.stride, rows,
                     columns));
  }
};

[[noreturn]] inline void reject_format(const std::string& why) {
  throw std::invalid_argument("OutputFormat: " + why);
}

/// Throws std::invalid_argument for a format that resize_batch cannot write.
template <OutputElement T>
void check_format(const OutputFormat& format) {
  const std::int64_t area = std::int64_t{format.size.height} * format.size.width;
  if (format.size.height < 1 || format.size.width < 1 || area > INT32_MAX)
    reject_format("the size is " + std::to_string(format.size.height) + " x " +
                  std::to_string(format.size.width) + ": both must be at least 1, and an output " +
                  "has at most 2^31 - 1 pixels");
  if (format.channels != 3 && format.channels != 4 && format.channels != 8)
    reject_format(std::to_string(format.channels) + " channels: it must be 3, 4 or 8");
  for (std::size_t c = 0; c < 3; ++c) {
    const float mean = format.mean[c], deviation = format.standard_deviation[c];
    if (std::is_same_v<T, std::uint8_t> && (mean != 0 || deviation != 1))
      reject_format("bytes are not normalised: leave mean and standard_deviation as they are");
    if (!(deviation > 0) || !std::isfinite(deviation) || !std::isfinite(mean))
      reject_format("channel " + std::to_string(c) + " has the mean " + std::to_string(mean) +
                    " and the standard deviation " + std::to_string(deviation) +
                    ": they must be finite, and the latter above 0");
  }
}

/// Throws std::invalid_argument for a format that cannot be written, and if `out` is not aligned.
/// `caller`: for the message.
template <OutputElement T>
OutputPixels<T> output_pixels(const OutputFormat& format, T* out, const char* caller) {
  check_format<T>(format);
  const bool is_vector = format.order == PixelOrder::nhwc && format.channels != 3;
  const std::size_t alignment =
      is_vector ? sizeof(T) * static_cast<std::size_t>(format.channels) : alignof(T);
  if (reinterpret_cast<std::uintptr_t>(out) % alignment != 0)
    throw std::invalid_argument(std::string(caller) + ": the output is not aligned to the " +
                                std::to_string(alignment) + " bytes of a pixel");
  OutputPixels<T> pixels{out,
                         static_cast<std::uint32_t>(format.size.height),
                         static_cast<std::uint32_t>(format.size.width),
                         static_cast<std::uint32_t>(format.channels),
                         format.order,
                         {1, 1, 1},
                         {0, 0, 0}};
  for (std::size_t c = 0; c < 3 && !std::is_same_v<T, std::uint8_t>; ++c) {
    pixels.scale[c] = 1 / (255 * format.standard_deviation[c]);
    pixels.shift[c] = -format.mean[c] / format.standard_deviation[c];
  }
  return pixels;
}

}  // namespace detail

/// Writes images.count outputs of format.values() values each to `out`, in device memory. It queues
/// one kernel (several only beyond 2^31 pixels) on `stream`, and returns without blocking or
/// synchronising. The size of the outputs is that of `format`; `output` of the views is not read.
/// Views must lie in the memory of their images; this is not checked.
///
/// Throws std::invalid_argument for a format that it cannot write, and if `out` is not aligned to
/// its pixels (4 or 8 channels, NHWC); CudaError if the launch fails.
template <OutputElement T>
[[gnu::always_inline]] inline void resize_batch(StreamRef stream, const ImageBatch& images,
                                                const OutputFormat& format, T* out) {
  detail::ResizePixel<T> op{images, detail::output_pixels(format, out, "resize_batch")};
  const std::int64_t area = std::int64_t{format.size.height} * format.size.width;
  const std::int64_t at_once = INT32_MAX / area;
  for (std::int64_t first = 0; first < images.count; first += at_once) {
    const std::int64_t left = images.count - first;
    op.images.bytes = images.bytes + first * images.spacing;
    op.images.geometry = images.geometry + first;
    op.to.out = out + first * format.values();
    for_each(stream, (left < at_once ? left : at_once) * area, op);
  }
}

}  // namespace penstock::images
