// SPDX-License-Identifier: Apache-2.0

#include "framing.hpp"

#include <algorithm>
#include <cmath>

namespace resnet::classify {
namespace {

std::uint8_t rounded(float value) {
  return static_cast<std::uint8_t>(std::min(value + 0.5f, 255.0f));
}

/// Of a side of the picture when the shorter one becomes `resize`; torchvision rounds down.
std::int64_t resized(std::int32_t side, std::int32_t shorter, std::int32_t resize) {
  return std::int64_t{resize} * side / shorter;
}

}  // namespace

/// For the middle `crop` of `out` pixels that `in` pixels become.
void Framer::find_taps(Taps& taps, std::int32_t in, std::int64_t out) const {
  // Python's round: a half to the even number.
  const double start = std::nearbyint(static_cast<double>(out - framing_.crop) / 2);
  const double scale = in / static_cast<double>(out);
  const double reach = std::max(scale, 1.0);  // of the triangle, to either side
  taps.first.clear();
  taps.weights.clear();
  taps.offsets.assign(1, 0);
  for (std::int32_t at = 0; at < framing_.crop; ++at) {
    const double centre = (start + at + 0.5) * scale;
    const auto first = std::max(static_cast<std::int32_t>(std::lround(centre - reach)), 0);
    const auto end = std::min(static_cast<std::int32_t>(std::lround(centre + reach)), in);
    const auto weight = [&](std::int32_t x) {
      return std::max(1 - std::abs(x + 0.5 - centre) / reach, 0.0);
    };
    double sum = 0;
    for (std::int32_t x = first; x < end; ++x) sum += weight(x);
    for (std::int32_t x = first; x < end; ++x)
      taps.weights.push_back(static_cast<float>(weight(x) / sum));
    taps.first.push_back(first);
    taps.offsets.push_back(taps.weights.size());
  }
}

void Framer::across(const Picture& picture) {
  const auto crop = static_cast<std::size_t>(framing_.crop);
  first_row_ = rows_.first.front();
  const auto last_taps = static_cast<std::int32_t>(rows_.offsets[crop] - rows_.offsets[crop - 1]);
  const std::int32_t end_row = rows_.first.back() + last_taps;
  narrow_.resize(static_cast<std::size_t>(end_row - first_row_) * crop * 3);
  std::uint8_t* out = narrow_.data();
  const std::size_t stride = static_cast<std::size_t>(picture.width) * 3;
  for (std::int32_t y = first_row_; y < end_row; ++y) {
    const std::uint8_t* row = picture.rgb.data() + static_cast<std::size_t>(y) * stride;
    for (std::size_t x = 0; x < crop; ++x) {
      const std::uint8_t* in = row + columns_.first[x] * 3;
      float red = 0, green = 0, blue = 0;
      for (std::size_t tap = columns_.offsets[x]; tap < columns_.offsets[x + 1]; ++tap, in += 3) {
        const float weight = columns_.weights[tap];
        red += weight * static_cast<float>(in[0]);
        green += weight * static_cast<float>(in[1]);
        blue += weight * static_cast<float>(in[2]);
      }
      *out++ = rounded(red);
      *out++ = rounded(green);
      *out++ = rounded(blue);
    }
  }
}

void Framer::down(std::uint8_t* out) {
  const std::size_t crop = static_cast<std::size_t>(framing_.crop), width = crop * 3;
  for (std::size_t y = 0; y < crop; ++y) {
    const std::uint8_t* in =
        narrow_.data() + static_cast<std::size_t>(rows_.first[y] - first_row_) * width;
    sums_.assign(width, 0.0f);
    for (std::size_t tap = rows_.offsets[y]; tap < rows_.offsets[y + 1]; ++tap, in += width)
      for (std::size_t x = 0; x < width; ++x)
        sums_[x] += rows_.weights[tap] * static_cast<float>(in[x]);
    out = std::transform(sums_.begin(), sums_.end(), out, rounded);
  }
}

void Framer::operator()(const Picture& picture, std::uint8_t* out) {
  const std::int32_t shorter = std::min(picture.width, picture.height);
  find_taps(columns_, picture.width, resized(picture.width, shorter, framing_.resize));
  find_taps(rows_, picture.height, resized(picture.height, shorter, framing_.resize));
  across(picture);
  down(out);
}

}  // namespace resnet::classify
