// SPDX-License-Identifier: Apache-2.0
#include "batch_norm.hpp"

#include <cmath>

#include "parallel.hpp"
#include "rows.hpp"

namespace resnet::reference {
namespace {

template <class T>
T rectified(T value) {
  return value < T{0} ? T{0} : value;  // NaN stays NaN
}

/// y = [relu](x * scale + shift [+ residual]) over one channel.
template <class T>
void apply(const ActivationLayout& layout, std::int64_t c, const T* x, T scale, T shift,
           const T* residual, bool relu, T* y) {
  if (residual != nullptr && relu)
    for_each_pixel(layout, c,
                   [&](auto i) { y[i] = rectified(x[i] * scale + shift + residual[i]); });
  else if (residual != nullptr)
    for_each_pixel(layout, c, [&](auto i) { y[i] = x[i] * scale + shift + residual[i]; });
  else if (relu)
    for_each_pixel(layout, c, [&](auto i) { y[i] = rectified(x[i] * scale + shift); });
  else
    for_each_pixel(layout, c, [&](auto i) { y[i] = x[i] * scale + shift; });
}

/// Mean, and the sum of squares of the distances from it.
struct Moments {
  double mean, squares;
};

template <class T>
Moments moments(const ActivationLayout& layout, std::int64_t c, const T* x, double count) {
  const double mean = sum_over_channel<T>(layout, c, [x](auto i) { return x[i]; }) / count;
  // The mean is no T: what rounding left of the sum of distances is taken back below.
  const T near_mean = static_cast<T>(mean);
  const double rest = mean - static_cast<double>(near_mean);
  const double squares = sum_over_channel<T>(layout, c, [x, near_mean](auto i) {
    const T distance = x[i] - near_mean;
    return distance * distance;
  });
  return {mean, squares - count * rest * rest};
}

/// Normalised x is x * scale + shift.
template <class T>
struct Affine {
  T scale, shift;
};

/// One channel's, with its statistics on the way.
template <class T>
Affine<T> settle(const Moments& of, double count, std::int64_t c, const Normalisation<T>& norm) {
  const double inverse = 1 / std::sqrt(of.squares / count + norm.epsilon);
  norm.mean[c] = static_cast<T>(of.mean);
  norm.inverse_deviation[c] = static_cast<T>(inverse);
  // A forward pass that overflowed leaves no trace: the step is skipped, too (LossScale).
  const auto run = [&](T& running, double batch) {
    if (!std::isfinite(batch)) return;
    running =
        static_cast<T>((1 - norm.momentum) * static_cast<double>(running) + norm.momentum * batch);
  };
  run(norm.running_mean[c], of.mean);
  run(norm.running_variance[c], of.squares / (count - 1));
  const double scale = static_cast<double>(norm.gamma[c]) * inverse;
  return {static_cast<T>(scale),
          static_cast<T>(static_cast<double>(norm.beta[c]) - of.mean * scale)};
}

double count_of(const ActivationLayout& layout) {
  return static_cast<double>(layout.extents.n * layout.pixels());
}

template <class T>
Affine<T> statistics(const ActivationLayout& layout, std::int64_t c, const T* x,
                     const Normalisation<T>& norm) {
  const double count = count_of(layout);
  return settle(moments(layout, c, x, count), count, c, norm);
}

/// Of the batch of all ranks, each of which has `count` elements: by Chan, Golub and LeVeque.
template <class T>
Moments merged(int ranks, const T* moments, std::int64_t channels, std::int64_t c, double count) {
  const auto mean_of = [&](std::int64_t rank) {
    return static_cast<double>(moments[2 * rank * channels + c]);
  };
  double mean = 0, squares = 0;
  for (int rank = 0; rank < ranks; ++rank) mean += mean_of(rank) / ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const double distance = mean_of(rank) - mean;
    squares +=
        static_cast<double>(moments[(2 * rank + 1) * channels + c]) + count * distance * distance;
  }
  return {mean, squares};
}

}  // namespace

template <class T>
void batch_norm(const ActivationLayout& layout, const T* x, const Normalisation<T>& norm,
                const T* residual, bool relu, T* y, int threads) {
  parallel_for(threads, layout.extents.c, [&](std::int64_t c, int) {
    const Affine<T> by = statistics(layout, c, x, norm);
    apply(layout, c, x, by.scale, by.shift, residual, relu, y);
  });
}

template <class T>
void batch_norm_statistics(const ActivationLayout& layout, const T* x, const Normalisation<T>& norm,
                           int threads) {
  parallel_for(threads, layout.extents.c, [&](std::int64_t c, int) {
    const Affine<T> by = statistics(layout, c, x, norm);
    norm.scale[c] = by.scale;
    norm.bias[c] = by.shift;
  });
}

template <class T>
void batch_norm_moments(const ActivationLayout& layout, const T* x, T* into, int threads) {
  const std::int64_t channels = layout.extents.c;
  parallel_for(threads, channels, [&](std::int64_t c, int) {
    const Moments of = moments(layout, c, x, count_of(layout));
    into[c] = static_cast<T>(of.mean);
    into[channels + c] = static_cast<T>(of.squares);
  });
}

template <class T>
void batch_norm_merge(const ActivationLayout& layout, int ranks, const T* moments,
                      const Normalisation<T>& norm, int threads) {
  const double count = count_of(layout);
  parallel_for(threads, layout.extents.c, [&](std::int64_t c, int) {
    const Affine<T> by =
        settle(merged(ranks, moments, layout.extents.c, c, count), ranks * count, c, norm);
    norm.scale[c] = by.scale;
    norm.bias[c] = by.shift;
  });
}

template <class T>
void batch_norm_apply(const ActivationLayout& layout, const T* x, const Normalisation<T>& norm,
                      const T* residual, bool relu, T* y, int threads) {
  parallel_for(threads, layout.extents.c, [&](std::int64_t c, int) {
    apply(layout, c, x, norm.scale[c], norm.bias[c], residual, relu, y);
  });
}

template <class T>
void batch_norm_inference(const ActivationLayout& layout, const T* x, const Normalisation<T>& norm,
                          const T* residual, bool relu, T* y, int threads) {
  parallel_for(threads, layout.extents.c, [&](std::int64_t c, int) {
    const double scale = static_cast<double>(norm.gamma[c]) /
                         std::sqrt(static_cast<double>(norm.running_variance[c]) + norm.epsilon);
    const double shift =
        static_cast<double>(norm.beta[c]) - static_cast<double>(norm.running_mean[c]) * scale;
    apply(layout, c, x, static_cast<T>(scale), static_cast<T>(shift), residual, relu, y);
  });
}

namespace {

/// The gradient that arrives at the normalised value: through ReLU, from one or two places.
template <class T>
struct Arriving {
  const BatchNormGradient<T>& of;
  bool relu;

  T operator()(std::int64_t i) const {
    const T sum =
        of.more_y_gradient == nullptr ? of.y_gradient[i] : of.y_gradient[i] + of.more_y_gradient[i];
    return relu && of.y[i] <= T{0} ? T{0} : sum;
  }
};

/// Sums over a channel: of the gradient, and of its product with normalised x.
struct GradientSums {
  double sum, product;
};

template <class T>
GradientSums gradient_sums(const ActivationLayout& layout, std::int64_t c,
                           const BatchNormGradient<T>& of, const Normalisation<T>& norm,
                           bool relu) {
  const Arriving<T> arriving{of, relu};
  const T mean = norm.mean[c], inverse = norm.inverse_deviation[c];
  const GradientSums sums{sum_over_channel<T>(layout, c, arriving),
                          sum_over_channel<T>(layout, c, [&](auto i) {
                            return arriving(i) * ((of.x[i] - mean) * inverse);
                          })};
  norm.beta_gradient[c] = static_cast<T>(sums.sum);
  norm.gamma_gradient[c] = static_cast<T>(sums.product);
  return sums;
}

/// `sums` are those of the whole batch, which has `count` elements in this channel.
template <class T>
void write_gradient(const ActivationLayout& layout, std::int64_t c, const BatchNormGradient<T>& of,
                    const Normalisation<T>& norm, bool relu, const GradientSums& sums,
                    double count) {
  const Arriving<T> arriving{of, relu};
  const T mean = norm.mean[c], inverse = norm.inverse_deviation[c];
  const T scale = norm.gamma[c] * inverse;
  const T mean_gradient = static_cast<T>(sums.sum / count);
  const T mean_product = static_cast<T>(sums.product / count);
  for_each_pixel(layout, c, [&](auto i) {
    const T gradient = arriving(i);
    if (of.residual_gradient != nullptr) of.residual_gradient[i] = gradient;
    of.x_gradient[i] =
        scale * (gradient - mean_gradient - (of.x[i] - mean) * inverse * mean_product);
  });
}

}  // namespace

template <class T>
void batch_norm_gradient(const ActivationLayout& layout, const BatchNormGradient<T>& of,
                         const Normalisation<T>& norm, bool relu, int threads) {
  parallel_for(threads, layout.extents.c, [&](std::int64_t c, int) {
    const GradientSums sums = gradient_sums(layout, c, of, norm, relu);
    write_gradient(layout, c, of, norm, relu, sums, count_of(layout));
  });
}

template <class T>
void batch_norm_gradient_sums(const ActivationLayout& layout, const BatchNormGradient<T>& of,
                              const Normalisation<T>& norm, bool relu, T* into, int threads) {
  const std::int64_t channels = layout.extents.c;
  parallel_for(threads, channels, [&](std::int64_t c, int) {
    const GradientSums sums = gradient_sums(layout, c, of, norm, relu);
    into[c] = static_cast<T>(sums.sum);
    into[channels + c] = static_cast<T>(sums.product);
  });
}

template <class T>
void batch_norm_gradient_rest(const ActivationLayout& layout, int ranks,
                              const BatchNormGradient<T>& of, const Normalisation<T>& norm,
                              bool relu, const T* sums, int threads) {
  const std::int64_t channels = layout.extents.c;
  parallel_for(threads, channels, [&](std::int64_t c, int) {
    write_gradient(layout, c, of, norm, relu,
                   {static_cast<double>(sums[c]), static_cast<double>(sums[channels + c])},
                   ranks * count_of(layout));
  });
}

template void batch_norm(const ActivationLayout&, const float*, const Normalisation<float>&,
                         const float*, bool, float*, int);
template void batch_norm_statistics(const ActivationLayout&, const float*,
                                    const Normalisation<float>&, int);
template void batch_norm_apply(const ActivationLayout&, const float*, const Normalisation<float>&,
                               const float*, bool, float*, int);
template void batch_norm_inference(const ActivationLayout&, const float*,
                                   const Normalisation<float>&, const float*, bool, float*, int);
template void batch_norm_gradient(const ActivationLayout&, const BatchNormGradient<float>&,
                                  const Normalisation<float>&, bool, int);
template void batch_norm_moments(const ActivationLayout&, const float*, float*, int);
template void batch_norm_merge(const ActivationLayout&, int, const float*,
                               const Normalisation<float>&, int);
template void batch_norm_gradient_sums(const ActivationLayout&, const BatchNormGradient<float>&,
                                       const Normalisation<float>&, bool, float*, int);
template void batch_norm_gradient_rest(const ActivationLayout&, int,
                                       const BatchNormGradient<float>&, const Normalisation<float>&,
                                       bool, const float*, int);
template void batch_norm(const ActivationLayout&, const double*, const Normalisation<double>&,
                         const double*, bool, double*, int);
template void batch_norm_statistics(const ActivationLayout&, const double*,
                                    const Normalisation<double>&, int);
template void batch_norm_apply(const ActivationLayout&, const double*, const Normalisation<double>&,
                               const double*, bool, double*, int);
template void batch_norm_inference(const ActivationLayout&, const double*,
                                   const Normalisation<double>&, const double*, bool, double*, int);
template void batch_norm_gradient(const ActivationLayout&, const BatchNormGradient<double>&,
                                  const Normalisation<double>&, bool, int);
template void batch_norm_moments(const ActivationLayout&, const double*, double*, int);
template void batch_norm_merge(const ActivationLayout&, int, const double*,
                               const Normalisation<double>&, int);
template void batch_norm_gradient_sums(const ActivationLayout&, const BatchNormGradient<double>&,
                                       const Normalisation<double>&, bool, double*, int);
template void batch_norm_gradient_rest(const ActivationLayout&, int,
                                       const BatchNormGradient<double>&,
                                       const Normalisation<double>&, bool, const double*, int);

}  // namespace resnet::reference
