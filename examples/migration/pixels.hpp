// SPDX-License-Identifier: Apache-2.0
#pragma once

// The arithmetic of all five programs, for the CPU and the GPU: what one pixel becomes. Integers
// alone, so that every program has the same results, bit for bit.

#include <cuda_runtime_api.h>  // __host__ and __device__, which mean nothing to a C++ compiler

#include <cstdint>

namespace migration {

/// Images lie one behind the other: height x width x 3 bytes each, red, green and blue interleaved.
struct Shape {
  int images = 1, height = 0, width = 0;

  __host__ __device__ int values() const { return images * height * width * 3; }
};

/// Counts of an image: one for each of 256 brightnesses of red, green and blue.
inline constexpr int kBins = 3 * 256;

/// Weighted sum of a value and the seven on either side of it, `stride` elements apart: a Gaussian
/// of standard deviation 2.5 whose weights add up to 256. Beyond the border the last value counts.
template <class T>
__host__ __device__ std::uint32_t weighted_sum(const T* value, int position, int length,
                                               int stride) {
  constexpr std::uint32_t weights[] = {1, 2, 6, 11, 20, 30, 38, 40, 38, 30, 20, 11, 6, 2, 1};
  constexpr int radius = 7;
  std::uint32_t sum = 0;
  if (position >= radius && position < length - radius) {
    for (int i = -radius; i <= radius; ++i) sum += weights[i + radius] * value[i * stride];
  } else {
    for (int i = -radius; i <= radius; ++i) {
      const int neighbour = position + i;
      const int inside = neighbour < 0 ? 0 : neighbour < length ? neighbour : length - 1;
      sum += weights[i + radius] * value[(inside - position) * stride];
    }
  }
  return sum;
}

/// The blur has two passes, along the rows and along the columns. The first leaves 16 bits.
__host__ __device__ inline std::uint16_t blurred_in_row(const std::uint8_t* value, int column,
                                                        Shape shape) {
  return static_cast<std::uint16_t>(weighted_sum(value, column, shape.width, 3));
}
__host__ __device__ inline std::uint8_t blurred_in_column(const std::uint16_t* value, int row,
                                                          Shape shape) {
  return static_cast<std::uint8_t>(
      (weighted_sum(value, row, shape.height, 3 * shape.width) + 0x8000) >> 16);
}

}  // namespace migration
