// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batch normalisation with what usually follows it (addition, ReLU) on the CPU, in float or double;
// ops.hpp says what is computed. Each channel belongs to one thread, and its sums have a fixed
// order: the same bits for any number of threads and for both formats.

#include "../ops.hpp"
#include "layout.hpp"

namespace resnet::reference {

/// resnet::BatchNorm, for any number type.
template <class T>
struct Normalisation {
  const T* gamma = nullptr;
  const T* beta = nullptr;
  T* running_mean = nullptr;
  T* running_variance = nullptr;
  T* mean = nullptr;
  T* inverse_deviation = nullptr;
  T* gamma_gradient = nullptr;
  T* beta_gradient = nullptr;
  double momentum = 0.1, epsilon = 1e-5;
  T* scale = nullptr;
  T* bias = nullptr;
};

inline Normalisation<float> normalisation(const BatchNorm& norm) {
  return {norm.gamma,
          norm.beta,
          norm.running_mean,
          norm.running_variance,
          norm.mean,
          norm.inverse_deviation,
          norm.gamma_gradient,
          norm.beta_gradient,
          norm.momentum,
          norm.epsilon,
          static_cast<float*>(norm.scale),
          static_cast<float*>(norm.bias)};
}

template <class T>
void batch_norm(const ActivationLayout&, const T* x, const Normalisation<T>&, const T* residual,
                bool relu, T* y, int threads);

/// batch_norm in two: first everything but y, into `norm`, whose scale and bias apply reads.
/// Together they leave the bits that batch_norm does.
template <class T>
void batch_norm_statistics(const ActivationLayout&, const T* x, const Normalisation<T>&,
                           int threads);
template <class T>
void batch_norm_apply(const ActivationLayout&, const T* x, const Normalisation<T>&,
                      const T* residual, bool relu, T* y, int threads);

template <class T>
void batch_norm_inference(const ActivationLayout&, const T* x, const Normalisation<T>&,
                          const T* residual, bool relu, T* y, int threads);

template <class T>
struct BatchNormGradient {
  const T* x = nullptr;
  const T* y = nullptr;
  const T* y_gradient = nullptr;
  const T* more_y_gradient = nullptr;  ///< may be null
  T* x_gradient = nullptr;             ///< may be y_gradient
  T* residual_gradient = nullptr;      ///< may be null
};

template <class T>
void batch_norm_gradient(const ActivationLayout&, const BatchNormGradient<T>&,
                         const Normalisation<T>&, bool relu, int threads);

// The same in parts (BatchNormParts). For one rank in float, gradients differ from
// batch_norm_gradient's by the rounding of their sums.

template <class T>
void batch_norm_moments(const ActivationLayout&, const T* x, T* moments, int threads);
template <class T>
void batch_norm_merge(const ActivationLayout&, int ranks, const T* moments, const Normalisation<T>&,
                      int threads);
template <class T>
void batch_norm_gradient_sums(const ActivationLayout&, const BatchNormGradient<T>&,
                              const Normalisation<T>&, bool relu, T* sums, int threads);
template <class T>
void batch_norm_gradient_rest(const ActivationLayout&, int ranks, const BatchNormGradient<T>&,
                              const Normalisation<T>&, bool relu, const T* sums, int threads);

}  // namespace resnet::reference
