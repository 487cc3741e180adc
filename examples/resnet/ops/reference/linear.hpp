// SPDX-License-Identifier: Apache-2.0
#pragma once

// The last layer and its gradients, for n samples; ops.hpp says what is computed. Every output is
// one sum in a fixed order.

#include <cstdint>

#include "parallel.hpp"

namespace resnet::reference {

struct LinearShape {
  std::int64_t n, features, classes;
};

template <class T>
void linear(const LinearShape& shape, const T* x, const T* weights, const T* bias, T* logits,
            int threads) {
  constexpr std::int64_t lanes = 16;
  parallel_for(threads, shape.n, [&](std::int64_t n, int) {
    const T* sample = x + n * shape.features;
    for (std::int64_t k = 0; k < shape.classes; ++k) {
      const T* row = weights + k * shape.features;
      T partial[lanes] = {};
      std::int64_t i = 0;
      for (; i + lanes <= shape.features; i += lanes)
        for (std::int64_t lane = 0; lane < lanes; ++lane)
          partial[lane] += sample[i + lane] * row[i + lane];
      for (; i < shape.features; ++i) partial[i % lanes] += sample[i] * row[i];
      T sum{0};
      for (const T value : partial) sum += value;
      logits[n * shape.classes + k] = sum + bias[k];
    }
  });
}

template <class T>
void linear_gradient(const LinearShape& shape, const T* x, const T* weights,
                     const T* logit_gradient, T* x_gradient, T* weight_gradient, T* bias_gradient,
                     int threads) {
  const auto add = [&](T factor, const T* from, T* to) {
    for (std::int64_t i = 0; i < shape.features; ++i) to[i] += factor * from[i];
  };
  const auto clear = [&](T* to) {
    for (std::int64_t i = 0; i < shape.features; ++i) to[i] = T{0};
  };
  parallel_for(threads, shape.n, [&](std::int64_t n, int) {
    clear(x_gradient + n * shape.features);
    for (std::int64_t k = 0; k < shape.classes; ++k)
      add(logit_gradient[n * shape.classes + k], weights + k * shape.features,
          x_gradient + n * shape.features);
  });
  parallel_for(threads, shape.classes, [&](std::int64_t k, int) {
    clear(weight_gradient + k * shape.features);
    bias_gradient[k] = T{0};
    for (std::int64_t n = 0; n < shape.n; ++n) {
      const T gradient = logit_gradient[n * shape.classes + k];
      add(gradient, x + n * shape.features, weight_gradient + k * shape.features);
      bias_gradient[k] += gradient;
    }
  });
}

}  // namespace resnet::reference
