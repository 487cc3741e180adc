// SPDX-License-Identifier: Apache-2.0
#pragma once

// Maximum over windows and mean over whole channels, with their gradients; ops.hpp says what is
// computed. The n x c means lie side by side whatever the format.

#include <cstdint>

#include "../ops.hpp"
#include "layout.hpp"
#include "parallel.hpp"
#include "rows.hpp"

namespace resnet::reference {

/// The elements of a window that lie within the image, as f(element, index): element counts
/// through the window, 0 .. kernel * kernel - 1; index is the place in the channel's pixels.
template <class F>
void for_each_in_window(const PoolShape& shape, std::int64_t h, std::int64_t w, const F& f) {
  for (std::int64_t r = 0; r < shape.kernel; ++r)
    for (std::int64_t s = 0; s < shape.kernel; ++s) {
      const std::int64_t row = h * shape.stride - shape.padding + r;
      const std::int64_t column = w * shape.stride - shape.padding + s;
      if (row >= 0 && row < shape.in.h && column >= 0 && column < shape.in.w)
        f(r * shape.kernel + s, row * shape.in.w + column);
    }
}

/// f(x's row, y's row, pixel of y, h, w) for the outputs of every channel, one channel to a thread.
template <class F>
void for_each_window(const PoolShape& shape, Format format, int threads, const F& f) {
  const ActivationLayout in(shape.in, format), out(shape.out(), format);
  parallel_for(threads, shape.in.n * shape.in.c, [&](std::int64_t channel, int) {
    const std::int64_t n = channel / shape.in.c, c = channel % shape.in.c;
    for (std::int64_t i = 0; i < out.pixels(); ++i)
      f(in.row(n, c), out.row(n, c) + i * out.pixel, i / out.extents.w, i % out.extents.w);
  });
}

template <class T>
void max_pool(const PoolShape& shape, Format format, const T* x, T* y, std::uint8_t* chosen,
              int threads) {
  const std::int64_t step = ActivationLayout(shape.in, format).pixel;
  for_each_window(shape, format, threads, [&](auto row, auto to, auto h, auto w) {
    bool any = false;
    for_each_in_window(shape, h, w, [&](std::int64_t element, std::int64_t index) {
      const T value = x[row + index * step];
      // As PyTorch has it: the last NaN wins over everything else.
      if (any && !(value > y[to]) && value == value) return;
      any = true;
      y[to] = value;
      chosen[to] = static_cast<std::uint8_t>(element);
    });
  });
}

template <class T>
void max_pool_gradient(const PoolShape& shape, Format format, const std::uint8_t* chosen,
                       const T* y_gradient, const T* more_y_gradient, T* x_gradient, int threads) {
  const std::int64_t step = ActivationLayout(shape.in, format).pixel;
  parallel_for(threads, shape.in.n, [&](std::int64_t n, int) {
    const std::int64_t image = shape.in.c * shape.in.h * shape.in.w;
    for (std::int64_t i = 0; i < image; ++i) x_gradient[n * image + i] = T{0};
  });
  for_each_window(shape, format, threads, [&](auto row, auto from, auto h, auto w) {
    const std::int64_t pixel_row = h * shape.stride - shape.padding + chosen[from] / shape.kernel;
    const std::int64_t column = w * shape.stride - shape.padding + chosen[from] % shape.kernel;
    x_gradient[row + (pixel_row * shape.in.w + column) * step] +=
        more_y_gradient == nullptr ? y_gradient[from] : y_gradient[from] + more_y_gradient[from];
  });
}

template <class T>
void average_pool(const ActivationLayout& layout, const T* x, T* y, int threads) {
  const Extents& in = layout.extents;
  parallel_for(threads, in.n * in.c, [&](std::int64_t channel, int) {
    const std::int64_t row = layout.row(channel / in.c, channel % in.c);
    T sum{0};
    for (std::int64_t i = 0; i < layout.pixels(); ++i) sum += x[row + i * layout.pixel];
    y[channel] = sum / static_cast<T>(layout.pixels());
  });
}

template <class T>
void average_pool_gradient(const ActivationLayout& layout, const T* y_gradient, T* x_gradient,
                           int threads) {
  const Extents& in = layout.extents;
  parallel_for(threads, in.n * in.c, [&](std::int64_t channel, int) {
    const std::int64_t row = layout.row(channel / in.c, channel % in.c);
    const T share = y_gradient[channel] / static_cast<T>(layout.pixels());
    for (std::int64_t i = 0; i < layout.pixels(); ++i) x_gradient[row + i * layout.pixel] = share;
  });
}

}  // namespace resnet::reference
