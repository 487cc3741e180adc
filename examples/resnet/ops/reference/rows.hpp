// SPDX-License-Identifier: Apache-2.0
#pragma once

// Walks over one channel of an activation: for_each_pixel(layout, c, f) calls f(index) with the
// place of every element, sum_over_channel(layout, c, f) adds f(index) up, in double, in an order
// that depends on nothing but the extents. Both are quick where the pixels lie side by side.

#include <cstdint>
#include <type_traits>

#include "layout.hpp"

namespace resnet::reference {

/// f(first index, step) for each image's row of this channel; the step is a constant where it is 1,
/// so that the loop over the row becomes a vector loop.
template <class F>
void for_each_row(const ActivationLayout& layout, std::int64_t c, const F& f) {
  for (std::int64_t n = 0; n < layout.extents.n; ++n)
    if (layout.pixel == 1)
      f(layout.row(n, c), std::integral_constant<std::int64_t, 1>());
    else
      f(layout.row(n, c), layout.pixel);
}

template <class F>
void for_each_pixel(const ActivationLayout& layout, std::int64_t c, const F& f) {
  for_each_row(layout, c, [&](std::int64_t row, auto step) {
    for (std::int64_t i = 0; i < layout.pixels(); ++i) f(row + i * step);
  });
}

/// Within a row, partial sums in T, side by side as a vector register has them; in double beyond.
template <class T, class F>
double sum_over_channel(const ActivationLayout& layout, std::int64_t c, const F& f) {
  constexpr std::int64_t lanes = 16, block = 1024;
  double sum = 0;
  for_each_row(layout, c, [&](std::int64_t row, auto step) {
    for (std::int64_t begin = 0; begin < layout.pixels(); begin += block) {
      const std::int64_t end = begin + block < layout.pixels() ? begin + block : layout.pixels();
      T partial[lanes] = {};
      std::int64_t i = begin;
      for (; i + lanes <= end; i += lanes)
        for (std::int64_t lane = 0; lane < lanes; ++lane)
          partial[lane] += f(row + (i + lane) * step);
      for (; i < end; ++i) partial[i % lanes] += f(row + i * step);
      for (const T value : partial) sum += static_cast<double>(value);
    }
  });
  return sum;
}

}  // namespace resnet::reference
