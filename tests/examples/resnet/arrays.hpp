// SPDX-License-Identifier: Apache-2.0
#pragma once

// Arrays of tests: their sizes, which are signed elsewhere, and activations in the other format.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace resnet::test {

inline std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

/// The same activation in the other format.
template <class T>
std::vector<T> transposed(const std::vector<T>& values, std::int64_t images, std::int64_t channels,
                          std::int64_t pixels) {
  std::vector<T> other(values.size());
  for (std::int64_t n = 0; n < images; ++n)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t i = 0; i < pixels; ++i)
        other[size((n * pixels + i) * channels + c)] =
            values[size((n * channels + c) * pixels + i)];
  return other;
}

}  // namespace resnet::test
