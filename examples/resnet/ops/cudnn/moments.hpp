// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mean and variance of a channel from those of its parts: what batch norm's kernels compute with,
// and tests without a GPU too.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace resnet::cudnn {

/// Count, mean and sum of squared distances from it: these can be combined without the loss of
/// digits that sums of squares suffer where the mean is far from 0.
struct Moments {
  float count, mean, squares;

  __host__ __device__ void combine(const Moments& other) {
    const float all = count + other.count;
    if (all == 0) return;
    const float distance = other.mean - mean, share = other.count / all;
    mean += distance * share;
    squares += other.squares + distance * distance * count * share;
    count = all;
  }
};

/// Sums of one thread's values, each less the first of them.
struct ShiftedSums {
  float shift = 0, sum = 0, squares = 0;

  __host__ __device__ void add(float value) {
    const float distance = value - shift;
    sum += distance;
    squares += distance * distance;
  }
  __host__ __device__ Moments moments(float count) const {
    if (count == 0) return {0, 0, 0};
    return {count, shift + sum / count, squares - sum * sum / count};
  }
};

/// Of all ranks, each of which has `count` elements of the channel: by Chan, Golub and LeVeque, in
/// double. `moments`: of each rank `channels` means, then `channels` sums of squared distances. Of
/// one rank they stay as they are.
__host__ __device__ inline Moments merged(int ranks, const float* moments, std::size_t channels,
                                          std::size_t channel, double count) {
  const auto of = [&](int rank) { return moments + 2 * channels * static_cast<std::size_t>(rank); };
  double mean = 0, squares = 0;
  for (int rank = 0; rank < ranks; ++rank) mean += static_cast<double>(of(rank)[channel]) / ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const double distance = static_cast<double>(of(rank)[channel]) - mean;
    squares += static_cast<double>(of(rank)[channels + channel]) + count * distance * distance;
  }
  return {static_cast<float>(ranks * count), static_cast<float>(mean), static_cast<float>(squares)};
}

}  // namespace resnet::cudnn
