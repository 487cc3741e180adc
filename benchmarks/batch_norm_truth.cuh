// SPDX-License-Identifier: Apache-2.0
#pragma once

// What batch_norm_benchmark compares with: batch norm in double, in NHWC, by kernels that are as
// simple as they can be. Launch them with block_threads; those for each channel with a block for
// each.

#include <cstddef>
#include <cstdint>

#include "../examples/resnet/ops/cudnn/numbers.cuh"

namespace resnet::cudnn {

struct Truth {
  const double *mean, *inverse;
  const float *gamma, *beta;
  __device__ double normal(double x, std::size_t channel) const {
    return (x - mean[channel]) * inverse[channel] * static_cast<double>(gamma[channel]) +
           static_cast<double>(beta[channel]);
  }
};

__device__ inline double block_sum(double mine) {
  __shared__ double shared[block_threads];
  __syncthreads();
  shared[threadIdx.x] = mine;
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  __syncthreads();
  return shared[0];
}

template <class T>
__global__ void true_moments(const T* x, std::size_t rows, std::size_t channels, double epsilon,
                             double* mean, double* inverse) {
  const std::size_t channel = blockIdx.x;
  double sum = 0;
  for (std::size_t row = threadIdx.x; row < rows; row += block_threads)
    sum += static_cast<double>(to_float(x[row * channels + channel]));
  const double average = block_sum(sum) / static_cast<double>(rows);
  double squares = 0;
  for (std::size_t row = threadIdx.x; row < rows; row += block_threads) {
    const double distance = static_cast<double>(to_float(x[row * channels + channel])) - average;
    squares += distance * distance;
  }
  const double variance = block_sum(squares) / static_cast<double>(rows);
  mean[channel] = average, inverse[channel] = 1 / sqrt(variance + epsilon);
}

/// y, and what arrives behind batch norm (in float: one rounding of a sum of two).
template <class T>
__global__ void true_elements(const T* x, const T* residual, const T* gradient, const T* more,
                              bool relu, std::size_t count, std::size_t channels, Truth truth,
                              float* y, float* arriving) {
  for (std::size_t i = thread_index(); i < count; i += std::size_t{gridDim.x} * block_threads) {
    double value = truth.normal(static_cast<double>(to_float(x[i])), i % channels);
    if (residual != nullptr) value += static_cast<double>(to_float(residual[i]));
    y[i] = static_cast<float>(relu && value < 0 ? 0 : value);
    float sum = to_float(gradient[i]);
    if (more != nullptr) sum += to_float(more[i]);
    arriving[i] = relu && value <= 0 ? 0 : sum;
  }
}

/// The window's choice, or -1 where ReLU stops it.
template <class T>
__device__ int true_choice(const T* x, Extents in, Truth truth, std::int64_t n, std::int64_t h,
                           std::int64_t w, std::size_t channel, double* value) {
  int choice = -1;
  *value = 0;
  for (int r = 0; r < 3; ++r)
    for (int s = 0; s < 3; ++s) {
      const std::int64_t at_h = 2 * h + r - 1, at_w = 2 * w + s - 1;
      if (at_h < 0 || at_w < 0 || at_h >= in.h || at_w >= in.w) continue;
      const auto at = static_cast<std::size_t>(((n * in.h + at_h) * in.w + at_w) * in.c);
      const double one = truth.normal(static_cast<double>(to_float(x[at + channel])), channel);
      if (one > *value) *value = one, choice = 3 * r + s;
    }
  return choice;
}

template <class T>
__global__ void true_pool(const T* x, const T* gradient, const T* more, Extents in, Extents out,
                          Truth truth, float* y, float* arriving) {
  const auto count = static_cast<std::size_t>(in.n * in.h * in.w * in.c);
  const auto channels = static_cast<std::size_t>(in.c);
  for (std::size_t i = thread_index(); i < count; i += std::size_t{gridDim.x} * block_threads) {
    const std::size_t channel = i % channels;
    auto pixel = static_cast<std::int64_t>(i / channels);
    const std::int64_t w = pixel % in.w, h = pixel / in.w % in.h, n = pixel / in.w / in.h;
    float sum = 0;
    for (std::int64_t out_h = h / 2; out_h <= (h + 1) / 2 && out_h < out.h; ++out_h)
      for (std::int64_t out_w = w / 2; out_w <= (w + 1) / 2 && out_w < out.w; ++out_w) {
        const auto at =
            static_cast<std::size_t>((n * out.h + out_h) * out.w + out_w) * channels + channel;
        double value = 0;
        const int choice = true_choice(x, in, truth, n, out_h, out_w, channel, &value);
        if (choice == (h - 2 * out_h + 1) * 3 + (w - 2 * out_w + 1))
          sum += to_float(gradient[at]) + to_float(more[at]);
        y[at] = static_cast<float>(value);  // Whoever comes last: all have the same.
      }
    arriving[i] = sum;
  }
}

template <class T>
__global__ void true_sums(const T* x, const float* arriving, std::size_t rows, std::size_t channels,
                          Truth truth, double* beta, double* gamma) {
  const std::size_t channel = blockIdx.x;
  double sum = 0, sum_x = 0;
  for (std::size_t row = threadIdx.x; row < rows; row += block_threads) {
    const std::size_t i = row * channels + channel;
    const double gradient = static_cast<double>(arriving[i]);
    sum += gradient;
    sum_x += gradient * (static_cast<double>(to_float(x[i])) - truth.mean[channel]) *
             truth.inverse[channel];
  }
  const double all = block_sum(sum), all_x = block_sum(sum_x);
  beta[channel] = all, gamma[channel] = all_x;
}

template <class T>
__global__ void true_gradient(const T* x, const float* arriving, std::size_t count,
                              std::size_t channels, Truth truth, const double* beta,
                              const double* gamma, float* x_gradient) {
  const double rows = static_cast<double>(count / channels);
  for (std::size_t i = thread_index(); i < count; i += std::size_t{gridDim.x} * block_threads) {
    const std::size_t c = i % channels;
    const double normal = (static_cast<double>(to_float(x[i])) - truth.mean[c]) * truth.inverse[c];
    x_gradient[i] = static_cast<float>(
        static_cast<double>(truth.gamma[c]) * truth.inverse[c] *
        (static_cast<double>(arriving[i]) - beta[c] / rows - normal * gamma[c] / rows));
  }
}

__device__ inline double as_double(double value) {
  return value;
}
template <class T>
__device__ double as_double(T value) {
  return static_cast<double>(to_float(value));
}

/// Adds to sums[0] the squares of differences, to sums[1] those of the truth.
template <class T, class U>
__global__ void differences(const T* values, const U* truth, std::size_t count, double* sums) {
  double mine = 0, size = 0;
  for (std::size_t i = thread_index(); i < count; i += std::size_t{gridDim.x} * block_threads) {
    const double right = as_double(truth[i]), distance = as_double(values[i]) - right;
    mine += distance * distance, size += right * right;
  }
  const double all = block_sum(mine), sizes = block_sum(size);
  if (threadIdx.x != 0) return;
  atomicAdd(sums, all);
  atomicAdd(sums + 1, sizes);
}

}  // namespace resnet::cudnn
