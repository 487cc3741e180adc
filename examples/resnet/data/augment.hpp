// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a CIFAR-10 record to what a network takes, one value at a time: random crop (4 pixels of
// black around the image), random flip, bilinear resize, normalisation. This is the definition.
// The kernel of T13, T14b and T14 (input.cpp) and the workers of T0 to T12 (ImageWriter) take the
// same steps (detail::) for many values at once and come to the same bits, so that all rungs train
// on the same images. (T14a rounds what is resized to bytes.)
//
//   const View view = random_view(seed, epoch, sample);   // or View{}, to evaluate
//   const float value = normalised_pixel(record, view, size, channel, y, x);
//
// Resizing follows the half-pixel convention (PyTorch's interpolate with align_corners=False): the
// centre of output pixel x lies at (x + 0.5) * 32 / size - 0.5 in the input.

#include <cstdint>

#include "../../data/cifar10.hpp"

#ifdef __CUDACC__
#define RESNET_HOST_DEVICE __host__ __device__
#else
#define RESNET_HOST_DEVICE
#endif

namespace resnet {

/// How one sample is looked at: its crop, and whether it is mirrored.
struct View {
  std::int32_t dx = 0, dy = 0;  ///< of the crop against the image, -4 ... 4
  bool flip = false;
};

inline constexpr std::int32_t crop_margin = 4;

namespace detail {

/// SplitMix64's output function (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, 2014).
RESNET_HOST_DEVICE inline std::uint64_t mixed(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// A channel of a record's image.
RESNET_HOST_DEVICE inline const std::uint8_t* plane_of(const std::uint8_t* record,
                                                       std::int32_t channel) {
  return record + 1 + channel * cifar10::height * cifar10::width;
}

/// What `view` shows of a record's plane at (y, x), 0 ... 255; black outside of the image.
RESNET_HOST_DEVICE inline float shown(const std::uint8_t* plane, const View& view, std::int32_t y,
                                      std::int32_t x) {
  const std::int32_t in_y = y + view.dy;
  const std::int32_t in_x = (view.flip ? cifar10::width - 1 - x : x) + view.dx;
  const bool inside = in_y >= 0 && in_y < cifar10::height && in_x >= 0 && in_x < cifar10::width;
  return inside ? static_cast<float>(plane[in_y * cifar10::width + in_x]) : 0.0f;
}

/// The two inputs that an output pixel lies between along one axis, and how near it is to the
/// second.
struct Neighbours {
  std::int32_t first, second;
  float weight;  ///< of the second
};
RESNET_HOST_DEVICE inline Neighbours neighbours(std::int32_t at, std::int32_t size,
                                                std::int32_t in_size) {
  const float scale = static_cast<float>(in_size) / static_cast<float>(size);
  float centre = (static_cast<float>(at) + 0.5f) * scale - 0.5f;
  if (centre < 0.0f) centre = 0.0f;
  const auto first = static_cast<std::int32_t>(centre);
  const std::int32_t second = first + 1 < in_size ? first + 1 : first;
  return {first, second, centre - static_cast<float>(first)};
}

RESNET_HOST_DEVICE inline float between(float first, float second, float weight) {
  return first + (second - first) * weight;
}

/// Mean and inverse standard deviation of the channels of CIFAR-10's training set, of 0 ... 255.
RESNET_HOST_DEVICE inline float mean_of(std::int32_t channel) {
  return channel == 0 ? 125.307f : channel == 1 ? 122.950f : 113.865f;
}
RESNET_HOST_DEVICE inline float inverse_deviation_of(std::int32_t channel) {
  return channel == 0 ? 1.0f / 62.993f : channel == 1 ? 1.0f / 62.089f : 1.0f / 66.705f;
}
RESNET_HOST_DEVICE inline float normalised(float value, std::int32_t channel) {
  return (value - mean_of(channel)) * inverse_deviation_of(channel);
}

}  // namespace detail

/// How `sample`, a number of the data set, is looked at in an epoch: a pure function of the three
/// numbers, whatever the batch.
RESNET_HOST_DEVICE inline View random_view(std::uint64_t seed, std::uint64_t epoch,
                                           std::uint64_t sample) {
  const std::uint64_t bits = detail::mixed(seed ^ detail::mixed(epoch ^ detail::mixed(sample)));
  constexpr std::uint64_t kShifts = 2 * crop_margin + 1;
  return {static_cast<std::int32_t>((bits & 0xffff) % kShifts) - crop_margin,
          static_cast<std::int32_t>((bits >> 16 & 0xffff) % kShifts) - crop_margin,
          (bits >> 32 & 1) != 0};
}

/// The value at (channel, y, x) of the size x size image that `view` of `record` makes.
RESNET_HOST_DEVICE inline float normalised_pixel(const std::uint8_t* record, const View& view,
                                                 std::int32_t size, std::int32_t channel,
                                                 std::int32_t y, std::int32_t x) {
  const detail::Neighbours rows = detail::neighbours(y, size, cifar10::height);
  const detail::Neighbours columns = detail::neighbours(x, size, cifar10::width);
  const std::uint8_t* plane = detail::plane_of(record, channel);
  const auto in_row = [&](std::int32_t row) {
    return detail::between(detail::shown(plane, view, row, columns.first),
                           detail::shown(plane, view, row, columns.second), columns.weight);
  };
  return detail::normalised(detail::between(in_row(rows.first), in_row(rows.second), rows.weight),
                            channel);
}

}  // namespace resnet
