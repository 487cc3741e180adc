// SPDX-License-Identifier: Apache-2.0
#pragma once

// The learning rate of a run that names none: proportional to the batch, that of all ranks together
// (linear scaling), 0.1 for 256 images, behind a linear warm-up.
//
// What a fresh network takes depends on its last layer: the more features that sums, the steeper is
// the loss in its weights. So a network with more than 128 of them has a lower rate, in proportion,
// and each a warm-up of its own slope. The slope is the same for every batch and for a run of any
// length: a network diverges at the start at a rate that it takes well some hundred steps later. So
// a higher rate warms up for longer, and a run that is shorter than its warm-up stays at low rates.
//
// These are rates at which the loss falls from the first steps on. A long run may end better with a
// higher one (--rate), once it is through its warm-up.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../model/network.hpp"

namespace resnet {

/// Inputs of the last layer.
inline std::int64_t features_of(const Network& network) {
  return network.table().parameter("fc.weight").shape.at(1);
}

inline float usual_rate(std::int64_t batch, std::int64_t features) {
  const float part = 128.0f / static_cast<float>(std::max<std::int64_t>(features, 128));
  return 0.1f * static_cast<float>(batch) / 256 * part;
}

/// By how much the rate rises in a step of the warm-up.
inline double warmup_slope(std::int64_t features) {
  return 0.04 / static_cast<double>(features);
}

/// Of a warm-up to `rate`; a million at most.
inline std::int64_t warmup_steps(float rate, std::int64_t features) {
  return static_cast<std::int64_t>(
      std::ceil(std::min(static_cast<double>(rate) / warmup_slope(features), 1e6)));
}

/// For `total` steps; `rate` 0: the usual one. What decays begins to do so behind the warm-up: in a
/// short run, never.
inline Schedule schedule_for(const Network& network, Decay decay, float rate, std::int64_t total) {
  const std::int64_t features = features_of(network);
  const NetworkOptions& options = network.options();
  if (rate == 0) rate = usual_rate(options.images.n * options.ranks, features);
  return {.decay = decay,
          .base = rate,
          .warmup_steps = warmup_steps(rate, features),
          .total_steps = total};
}

}  // namespace resnet
