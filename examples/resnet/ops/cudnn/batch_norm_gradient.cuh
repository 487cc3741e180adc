// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a channel's gradient behind batch norm becomes before it: two sums over the batch, then a
// formula for each element.

#include "per_channel.cuh"

namespace resnet::cudnn {

/// Gradients of beta and of gamma.
struct Sums {
  float gradient, gradient_x;  ///< the latter: times x, normalised

  __device__ void combine(const Sums& other) {
    gradient += other.gradient;
    gradient_x += other.gradient_x;
  }
};

struct FinishSums {
  BatchNorm norm;
  float* sums;  ///< beta's, then gamma's; or null
  std::uint32_t channels;

  __device__ void operator()(std::uint32_t channel, const Sums& of) const {
    norm.gamma_gradient[channel] = of.gradient_x;
    norm.beta_gradient[channel] = of.gradient;
    if (sums == nullptr) return;
    sums[channel] = of.gradient;
    sums[std::size_t{channels} + channel] = of.gradient_x;
  }
};

/// The sums of the whole batch, a channel of which has `count` elements.
struct BatchSums {
  const float *gradient, *gradient_x;
  float count;

  BatchSums(const Extents& extents, int ranks, const float* gradients, const float* gradients_x)
      : gradient(gradients),
        gradient_x(gradients_x),
        count(static_cast<float>(ranks * extents.n * extents.h * extents.w)) {}
};

/// What a channel's gradient behind becomes before.
struct Before {
  Affine normal;
  float by_x = 0, shift = 0;

  Before() = default;
  __device__ Before(const BatchNorm& norm, const BatchSums& sums, std::uint32_t channel)
      : normal(affine(norm, false, channel)),
        by_x(normal.scale * norm.inverse_deviation[channel] *
             (sums.gradient_x[channel] / sums.count)),
        shift(normal.scale * (sums.gradient[channel] / sums.count)) {}
  __device__ float operator()(float gradient, float x) const {
    return normal.scale * gradient - shift - (x - normal.mean) * by_x;
  }
};

}  // namespace resnet::cudnn
