// SPDX-License-Identifier: Apache-2.0
#include "inference_layers.hpp"

#include <algorithm>
#include <cmath>

#include "parallel.hpp"
#include "pooling.hpp"
#include "rounding.hpp"

namespace resnet::reference {

void round_all(Precision precision, const float* in, float* out, std::int64_t count) {
  std::transform(in, in + count, out, [=](float value) { return rounded(precision, value); });
}

template <class T>
void convert_images(const ImageInput& input, Precision precision, Format format, const T* images,
                    float* x, int threads) {
  const ActivationLayout from(input.images, input.format), to(input.images, format);
  parallel_for(threads, input.images.n * input.images.c, [&](std::int64_t plane, int) {
    const std::int64_t n = plane / input.images.c, c = plane % input.images.c;
    const auto channel = static_cast<std::size_t>(c);
    for (std::int64_t i = 0; i < from.pixels(); ++i) {
      const auto pixel = static_cast<float>(images[from.row(n, c) + i * from.pixel]);
      x[to.row(n, c) + i * to.pixel] =
          rounded(precision, pixel * input.factor[channel] + input.offset[channel]);
    }
  });
}

template void convert_images(const ImageInput&, Precision, Format, const float*, float*, int);
template void convert_images(const ImageInput&, Precision, Format, const std::uint8_t*, float*,
                             int);

namespace {

bool is_nan(float value) {
  return std::isnan(value);
}
bool is_nan(std::int8_t) {
  return false;
}

template <class T>
void pool(const PoolShape& shape, Format format, const T* x, T* y, int threads) {
  const std::int64_t step = ActivationLayout(shape.in, format).pixel;
  for_each_window(shape, format, threads, [&](auto row, auto to, auto h, auto w) {
    bool any = false;
    for_each_in_window(shape, h, w, [&](std::int64_t, std::int64_t index) {
      const T value = x[row + index * step];
      if (any && !(value > y[to]) && !is_nan(value)) return;  // NaN wins, as in training
      any = true;
      y[to] = value;
    });
  });
}

}  // namespace

void max_pool(const PoolShape& shape, Format format, Precision precision, const void* x, void* y,
              int threads) {
  if (precision == Precision::int8)
    pool(shape, format, static_cast<const std::int8_t*>(x), static_cast<std::int8_t*>(y), threads);
  else
    pool(shape, format, static_cast<const float*>(x), static_cast<float*>(y), threads);
}

void average_pool(const ActivationLayout& layout, Precision precision, const void* x, float scale,
                  float* y, int threads) {
  const Extents& in = layout.extents;
  parallel_for(threads, in.n * in.c, [&](std::int64_t channel, int) {
    const std::int64_t row = layout.row(channel / in.c, channel % in.c);
    float sum = 0;
    for (std::int64_t i = 0; i < layout.pixels(); ++i) {
      const std::int64_t at = row + i * layout.pixel;
      sum += precision == Precision::int8
                 ? static_cast<float>(static_cast<const std::int8_t*>(x)[at])
                 : static_cast<const float*>(x)[at];
    }
    y[channel] = rounded(floating(precision), scale * (sum / static_cast<float>(layout.pixels())));
  });
}

}  // namespace resnet::reference
