// SPDX-License-Identifier: Apache-2.0
#pragma once

// The optimizer on the CPU: learning rates, the update, and the loss scale's rules.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "../ops.hpp"
#include "parallel.hpp"

namespace resnet::reference {

/// Of the step that is taken after `step` others. Warm-up goes from base / warmup_steps to base;
/// what decays begins behind it, and stays at its end after total_steps.
inline double learning_rate(const Schedule& schedule, std::int64_t step) {
  const double base = static_cast<double>(schedule.base);
  if (step < schedule.warmup_steps)
    return base * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  const std::int64_t decaying =
      std::max<std::int64_t>(1, schedule.total_steps - schedule.warmup_steps);
  const double done = static_cast<double>(std::min(step - schedule.warmup_steps, decaying)) /
                      static_cast<double>(decaying);
  switch (schedule.decay) {
    case Decay::cosine:
      return base * 0.5 * (1 + std::cos(std::numbers::pi * done));
    case Decay::steps: {
      const std::int64_t thirds = 3 * std::min(step, schedule.total_steps) /
                                  std::max<std::int64_t>(1, schedule.total_steps);
      return base * std::pow(0.1, static_cast<double>(std::min<std::int64_t>(thirds, 2)));
    }
    case Decay::constant:
      break;
  }
  return base;
}

template <class T>
struct Update {
  T rate, momentum, decay;
  T gradient_factor = 1;  ///< 1 / loss scale
};

/// v = momentum * v + (gradient + decay * w); w -= rate * v.
template <class T>
void update(const Update<T>& by, std::int64_t count, const T* gradients, T* momenta, T* parameters,
            int threads) {
  constexpr std::int64_t block = 1 << 14;
  parallel_for(threads, (count + block - 1) / block, [&](std::int64_t share, int) {
    for (std::int64_t i = share * block; i < std::min(count, (share + 1) * block); ++i) {
      const T gradient = gradients[i] * by.gradient_factor + by.decay * parameters[i];
      momenta[i] = by.momentum * momenta[i] + gradient;
      parameters[i] -= by.rate * momenta[i];
    }
  });
}

template <class T>
bool all_finite(std::int64_t count, const T* numbers) {
  return std::all_of(numbers, numbers + count, [](T number) { return std::isfinite(number); });
}

/// Is this step to be taken? The scale stays finite.
inline bool accept(LossScale& state, bool finite, std::int32_t growth_interval) {
  state.overflow = finite ? 0 : 1;
  if (!finite) {
    state.scale *= 0.5f;
    state.good_steps = 0;
    ++state.skipped;
  } else if (++state.good_steps >= growth_interval) {
    if (std::isfinite(state.scale * 2)) state.scale *= 2;
    state.good_steps = 0;
  }
  return finite;
}

}  // namespace resnet::reference
