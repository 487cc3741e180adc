// SPDX-License-Identifier: Apache-2.0

#include "batch_norm.hpp"
#include "elementwise.hpp"
#include "per_channel.cuh"

namespace resnet::cudnn {

namespace {

/// Gradients of beta and of gamma.
struct Sums {
  float gradient, gradient_x;  ///< the latter: times x, normalised

  __device__ void combine(const Sums& other) {
    gradient += other.gradient;
    gradient_x += other.gradient_x;
  }
};

/// The gradient that arrives behind batch norm: a sum, where y is not 0.
template <class T>
struct Arriving {
  const T* gradient;
  const T* more;  ///< or null
  const T* y;     ///< null: without ReLU

  template <int V>
  __device__ Floats<V> at(std::size_t offset) const {
    Floats<V> sum = load<V>(gradient + offset);
    if (more != nullptr) {
      const Floats<V> others = load<V>(more + offset);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += others[i];
    }
    if (y != nullptr) {
      const Floats<V> outputs = load<V>(y + offset);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] = outputs[i] <= 0 ? 0 : sum[i];
    }
    return sum;
  }
};

/// First pass. Writes the residual's gradient, unless null.
template <class T, int V, Format F>
__global__ void gradient_sums(Layout layout, const T* x, Arriving<T> arriving, BatchNorm norm,
                              T* residual_gradient, Sums* partials) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  Sums sums[slots]{};
  float mean[slots], inverse[slots];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot) {
    mean[slot] = walk.has_channels() ? norm.mean[walk.channel(slot)] : 0;
    inverse[slot] = walk.has_channels() ? norm.inverse_deviation[walk.channel(slot)] : 0;
  }
  walk.each([&](std::size_t offset) {
    const Floats<V> values = load<V>(x + offset);
    const Floats<V> gradients = arriving.template at<V>(offset);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int slot = walk.slot(i);
      sums[slot].gradient += gradients[i];
      sums[slot].gradient_x += gradients[i] * (values[i] - mean[slot]) * inverse[slot];
    }
    if (residual_gradient != nullptr) store<V>(residual_gradient + offset, gradients);
  });
  block_partials(layout, walk, sums, partials);
}

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
  float mean, inverse, scale, mean_gradient, mean_gradient_x;

  __device__ Before(const BatchNorm& norm, const BatchSums& sums, std::uint32_t channel)
      : mean(norm.mean[channel]),
        inverse(norm.inverse_deviation[channel]),
        scale(norm.gamma[channel] * inverse),
        mean_gradient(sums.gradient[channel] / sums.count),
        mean_gradient_x(sums.gradient_x[channel] / sums.count) {}
  __device__ Before() {}  // NOLINT: an array's elements, assigned before they are read
  __device__ float operator()(float gradient, float x) const {
    return scale * (gradient - mean_gradient - (x - mean) * inverse * mean_gradient_x);
  }
};

/// Second pass.
template <class T, int V, Format F>
__global__ void gradient_before(Layout layout, const T* x, Arriving<T> arriving, BatchNorm norm,
                                BatchSums sums, T* x_gradient) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  if (!walk.has_channels()) return;
  Before before[slots];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot) before[slot] = Before(norm, sums, walk.channel(slot));
  walk.each([&](std::size_t offset) {
    const Floats<V> values = load<V>(x + offset);
    Floats<V> gradients = arriving.template at<V>(offset);
#pragma unroll
    for (int i = 0; i < V; ++i) gradients[i] = before[walk.slot(i)](gradients[i], values[i]);
    store<V>(x_gradient + offset, gradients);
  });
}

bool can_be_wide(const Context& context, const Extents& extents, const BatchNormOperands& of) {
  return cudnn::can_be_wide(context, extents) &&
         aligned(
             {of.x, of.y, of.y_gradient, of.more_y_gradient, of.x_gradient, of.residual_gradient});
}

template <class T>
Arriving<T> arriving_of(const BatchNormOperands& of) {
  return {static_cast<const T*>(of.y_gradient), static_cast<const T*>(of.more_y_gradient),
          static_cast<const T*>(of.y)};
}

/// The passes. `of.y` is null without ReLU.
void launch_sums(const Context& context, const Extents& extents, const BatchNormOperands& of,
                 const BatchNorm& norm, float* sums, cudaStream_t stream) {
  const bool wide = can_be_wide(context, extents, of);
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    const Layout layout = Layout::of<V, F>(extents, context.multiprocessors, 4);
    auto* partials = context.scratch<Sums>(std::size_t{layout.blocks.x} * layout.channels);
    gradient_sums<T, V, F><<<layout.blocks, block_threads, 0, stream>>>(
        layout, static_cast<const T*>(of.x), arriving_of<T>(of), norm,
        static_cast<T*>(of.residual_gradient), partials);
    check_launch("gradient_sums");
    launch_fold(partials, layout.blocks.x, layout.channels, FinishSums{norm, sums, layout.channels},
                stream);
  });
}

void launch_before(const Context& context, const Extents& extents, BatchNormOperands of,
                   const BatchNorm& norm, const BatchSums& sums, cudaStream_t stream) {
  // The first pass has left there what arrives.
  if (of.residual_gradient != nullptr)
    of = {of.x, nullptr, of.residual_gradient, nullptr, of.x_gradient, nullptr};
  const bool wide = can_be_wide(context, extents, of);
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    const Layout layout = Layout::of<V, F>(extents, context.multiprocessors, 16);
    gradient_before<T, V, F><<<layout.blocks, block_threads, 0, stream>>>(
        layout, static_cast<const T*>(of.x), arriving_of<T>(of), norm, sums,
        static_cast<T*>(of.x_gradient));
  });
  check_launch("gradient_before");
}

/// An operation, a kernel: each leaves its result in x_gradient.
void launch_separately(const Context& context, const Extents& extents, BatchNormOperands of,
                       bool relu, cudaStream_t stream) {
  const std::int64_t count = extents.count();
  if (of.more_y_gradient != nullptr) {
    add(context.precision, of.y_gradient, of.more_y_gradient, of.x_gradient, count, stream);
    of.y_gradient = of.x_gradient;
  }
  if (relu) {
    relu_gradient(context.precision, of.y, of.y_gradient, of.x_gradient, count, stream);
    of.y_gradient = of.x_gradient;
  }
  if (of.residual_gradient != nullptr) {
    const std::size_t bytes = static_cast<std::size_t>(count) * 16 /
                              static_cast<std::size_t>(widest_of(context.precision));
    penstock::detail::check(cudaMemcpyAsync(of.residual_gradient, of.y_gradient, bytes,
                                            cudaMemcpyDeviceToDevice, stream),
                            "cudaMemcpyAsync", bytes);
  }
}

/// What the passes take: behind launch_separately, where nothing is fused.
BatchNormOperands for_passes(const Context& context, BatchNormOperands of, bool relu) {
  if (context.fusion == Fusion::none) {
    const bool moved = relu || of.more_y_gradient != nullptr;
    return {of.x, nullptr, moved ? of.x_gradient : of.y_gradient, nullptr, of.x_gradient, nullptr};
  }
  if (!relu) of.y = nullptr;
  return of;
}

}  // namespace

void batch_norm_gradient_sums(const Context& context, const Extents& extents,
                              const BatchNormOperands& of, const BatchNorm& norm, bool relu,
                              float* sums, cudaStream_t stream) {
  if (context.fusion == Fusion::none) launch_separately(context, extents, of, relu, stream);
  launch_sums(context, extents, for_passes(context, of, relu), norm, sums, stream);
}

void batch_norm_gradient_rest(const Context& context, const Extents& extents, int ranks,
                              const BatchNormOperands& of, const BatchNorm& norm, bool relu,
                              const float* sums, cudaStream_t stream) {
  launch_before(context, extents, for_passes(context, of, relu), norm,
                {extents, ranks, sums, sums + extents.c}, stream);
}

void batch_norm_gradient(const Context& context, const Extents& extents,
                         const BatchNormOperands& of, const BatchNorm& norm, bool relu,
                         cudaStream_t stream) {
  batch_norm_gradient_sums(context, extents, of, norm, relu, nullptr, stream);
  launch_before(context, extents, for_passes(context, of, relu), norm,
                {extents, 1, norm.beta_gradient, norm.gamma_gradient}, stream);
}

void batch_norm_gradient_apply(const Context& context, const Extents& extents, const void* x,
                               const void* gradient, const BatchNorm& norm, void* x_gradient,
                               cudaStream_t stream) {
  launch_before(context, extents, {x, nullptr, gradient, nullptr, x_gradient, nullptr}, norm,
                {extents, 1, norm.beta_gradient, norm.gamma_gradient}, stream);
}

}  // namespace resnet::cudnn
