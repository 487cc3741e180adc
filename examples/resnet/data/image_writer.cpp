// SPDX-License-Identifier: Apache-2.0

#include "image_writer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace resnet {
namespace {

using detail::Neighbours;

constexpr std::size_t kSide = cifar10::width;
static_assert(cifar10::height == kSide, "rows and columns share a table of neighbours");

/// A channel of a record as a view shows it, 0 ... 255.
using Plane = std::array<std::array<float, kSide>, kSide>;

/// Some columns of an image, of each of the record's rows: 16 KiB, which stay in the first-level
/// cache and take no memory that would have to be kept from image to image.
constexpr std::size_t kStripColumns = 128;
using Strip = std::array<std::array<float, kStripColumns>, kSide>;

/// What Pixel reads, a plane at a time: a window of the image in its black margin, which a
/// view does not leave.
void show(const std::uint8_t* plane, const View& view, Plane& out) {
  constexpr std::size_t kMargin = crop_margin;
  std::array<std::array<float, kMargin + kSide + kMargin>, kMargin + kSide + kMargin> wide{};
  for (std::size_t y = 0; y < kSide; ++y)
    std::copy_n(plane + y * kSide, kSide, wide[kMargin + y].begin() + kMargin);
  const std::int32_t top = crop_margin + view.dy, left = crop_margin + view.dx;
  for (std::size_t y = 0; y < kSide; ++y) {
    const float* const crop = wide[static_cast<std::size_t>(top) + y].data() + left;
    if (view.flip)
      std::reverse_copy(crop, crop + kSide, out[y].begin());
    else
      std::copy_n(crop, kSide, out[y].begin());
  }
}

void resize_rows(const Plane& plane, std::span<const Neighbours> columns, Strip& out) {
  for (std::size_t y = 0; y < kSide; ++y)
    for (std::size_t x = 0; x < columns.size(); ++x) {
      const auto [first, second, weight] = columns[x];
      out[y][x] = detail::between(plane[y][static_cast<std::size_t>(first)],
                                  plane[y][static_cast<std::size_t>(second)], weight);
    }
}

/// A value of 0 ... 255 as it is written: normalised in float, and rounded to a byte.
void put(float value, std::int32_t channel, float& out) {
  out = detail::normalised(value, channel);
}
void put(float value, std::int32_t /*channel*/, std::uint8_t& out) {
  // std::lround would be a call for each value.
  out = static_cast<std::uint8_t>(value + 0.5f);  // NOLINT(bugprone-incorrect-roundings)
}

/// Writes `count` values of one row.
template <class T>
void blend_row(const float* above, const float* below, float weight, std::int32_t channel,
               std::size_t count, T* out) {
  for (std::size_t x = 0; x < count; ++x)
    put(detail::between(above[x], below[x], weight), channel, out[x]);
}

template <class T>
void write_resized(const Plane& plane, std::span<const Neighbours> neighbours, std::int32_t channel,
                   T* out) {
  const std::size_t size = neighbours.size();
  Strip strip;
  for (std::size_t left = 0; left < size; left += kStripColumns) {
    const std::size_t columns = std::min(kStripColumns, size - left);
    resize_rows(plane, neighbours.subspan(left, columns), strip);
    for (std::size_t y = 0; y < size; ++y) {
      const auto [above, below, weight] = neighbours[y];
      blend_row(strip[static_cast<std::size_t>(above)].data(),
                strip[static_cast<std::size_t>(below)].data(), weight, channel, columns,
                out + y * size + left);
    }
  }
}

/// The same with nothing to resize, in a seventh of the time.
template <class T>
void write_unresized(const Plane& plane, std::int32_t channel, T* out) {
  for (const auto& row : plane)
    for (const float value : row) put(value, channel, *out++);
}

}  // namespace

ImageWriter::ImageWriter(std::int32_t size) {
  for (std::int32_t at = 0; at < size; ++at)
    neighbours_.push_back(detail::neighbours(at, size, cifar10::width));
}

template <class T>
T* ImageWriter::write(const std::uint8_t* record, const View& view, T* pixels) const {
  const std::size_t size = neighbours_.size();
  Plane plane;
  for (std::int32_t channel = 0; channel < cifar10::channels; ++channel) {
    show(detail::plane_of(record, channel), view, plane);
    if (size == kSide)
      write_unresized(plane, channel, pixels);
    else
      write_resized(plane, neighbours_, channel, pixels);
    pixels += size * size;
  }
  return pixels;
}

float* ImageWriter::operator()(const std::uint8_t* record, const View& view, float* pixels) const {
  return write(record, view, pixels);
}
std::uint8_t* ImageWriter::operator()(const std::uint8_t* record, const View& view,
                                      std::uint8_t* pixels) const {
  return write(record, view, pixels);
}

}  // namespace resnet
