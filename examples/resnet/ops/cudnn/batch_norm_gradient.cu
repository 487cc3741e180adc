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

  __device__ void operator()(std::uint32_t channel, const Sums& sums) const {
    norm.gamma_gradient[channel] = sums.gradient_x;
    norm.beta_gradient[channel] = sums.gradient;
  }
};

/// What a channel's gradient behind becomes before.
struct Before {
  float mean, inverse, scale, mean_gradient, mean_gradient_x;

  __device__ Before(const BatchNorm& norm, std::uint32_t channel, float count)
      : mean(norm.mean[channel]),
        inverse(norm.inverse_deviation[channel]),
        scale(norm.gamma[channel] * inverse),
        mean_gradient(norm.beta_gradient[channel] / count),
        mean_gradient_x(norm.gamma_gradient[channel] / count) {}
  __device__ Before() {}  // NOLINT: an array's elements, assigned before they are read
  __device__ float operator()(float gradient, float x) const {
    return scale * (gradient - mean_gradient - (x - mean) * inverse * mean_gradient_x);
  }
};

/// Second pass. `count`: elements of a channel.
template <class T, int V, Format F>
__global__ void gradient_before(Layout layout, const T* x, Arriving<T> arriving, BatchNorm norm,
                                float count, T* x_gradient) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  if (!walk.has_channels()) return;
  Before before[slots];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot) before[slot] = Before(norm, walk.channel(slot), count);
  walk.each([&](std::size_t offset) {
    const Floats<V> values = load<V>(x + offset);
    Floats<V> gradients = arriving.template at<V>(offset);
#pragma unroll
    for (int i = 0; i < V; ++i) gradients[i] = before[walk.slot(i)](gradients[i], values[i]);
    store<V>(x_gradient + offset, gradients);
  });
}

template <class T, int V, Format F>
void launch_before(const Context& context, const Extents& extents, const T* x,
                   const Arriving<T>& arriving, const BatchNorm& norm, void* x_gradient,
                   cudaStream_t stream) {
  const Layout layout = Layout::of<V, F>(extents, context.multiprocessors, 16);
  gradient_before<T, V, F><<<layout.blocks, block_threads, 0, stream>>>(
      layout, x, arriving, norm, static_cast<float>(extents.n * extents.h * extents.w),
      static_cast<T*>(x_gradient));
  check_launch("gradient_before");
}

/// `y` is null without ReLU.
struct Arguments {
  const void *x, *y, *gradient, *more;
  void *x_gradient, *residual_gradient;
};

void launch_passes(const Context& context, const Extents& extents, const Arguments& a,
                   const BatchNorm& norm, cudaStream_t stream) {
  const bool wide = can_be_wide(context, extents) &&
                    aligned({a.x, a.y, a.gradient, a.more, a.x_gradient, a.residual_gradient});
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    const auto* x = static_cast<const T*>(a.x);
    auto* residual_gradient = static_cast<T*>(a.residual_gradient);
    Arriving<T> arriving{static_cast<const T*>(a.gradient), static_cast<const T*>(a.more),
                         static_cast<const T*>(a.y)};
    const Layout sums = Layout::of<V, F>(extents, context.multiprocessors, 4);
    auto* partials = context.scratch<Sums>(std::size_t{sums.blocks.x} * sums.channels);
    gradient_sums<T, V, F><<<sums.blocks, block_threads, 0, stream>>>(sums, x, arriving, norm,
                                                                      residual_gradient, partials);
    check_launch("gradient_sums");
    launch_fold(partials, sums.blocks.x, sums.channels, FinishSums{norm}, stream);

    if (residual_gradient != nullptr) arriving = {residual_gradient, nullptr, nullptr};
    launch_before<T, V, F>(context, extents, x, arriving, norm, a.x_gradient, stream);
  });
}

/// An operation, a kernel: each leaves its result in x_gradient.
void launch_separately(const Context& context, const Extents& extents, Arguments a, bool relu,
                       const BatchNorm& norm, cudaStream_t stream) {
  const std::int64_t count = extents.count();
  if (a.more != nullptr) {
    add(context.precision, a.gradient, a.more, a.x_gradient, count, stream);
    a.gradient = a.x_gradient;
  }
  if (relu) {
    relu_gradient(context.precision, a.y, a.gradient, a.x_gradient, count, stream);
    a.gradient = a.x_gradient;
  }
  if (a.residual_gradient != nullptr) {
    const std::size_t bytes = static_cast<std::size_t>(count) * 16 /
                              static_cast<std::size_t>(widest_of(context.precision));
    penstock::detail::check(
        cudaMemcpyAsync(a.residual_gradient, a.gradient, bytes, cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync", bytes);
  }
  launch_passes(context, extents, {a.x, nullptr, a.gradient, nullptr, a.x_gradient, nullptr}, norm,
                stream);
}

}  // namespace

void batch_norm_gradient(const Context& context, const Extents& extents, const void* x,
                         const void* y, const void* y_gradient, const void* more_y_gradient,
                         const BatchNorm& norm, bool relu, void* x_gradient,
                         void* residual_gradient, cudaStream_t stream) {
  Arguments arguments{x, y, y_gradient, more_y_gradient, x_gradient, residual_gradient};
  if (context.fusion == Fusion::none) {
    launch_separately(context, extents, arguments, relu, norm, stream);
    return;
  }
  if (!relu) arguments.y = nullptr;
  launch_passes(context, extents, arguments, norm, stream);
}

void batch_norm_gradient_apply(const Context& context, const Extents& extents, const void* x,
                               const void* gradient, const BatchNorm& norm, void* x_gradient,
                               cudaStream_t stream) {
  const bool wide = can_be_wide(context, extents) && aligned({x, gradient, x_gradient});
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    const Arriving<T> arriving{static_cast<const T*>(gradient), nullptr, nullptr};
    launch_before<T, V, F>(context, extents, static_cast<const T*>(x), arriving, norm, x_gradient,
                           stream);
  });
}

}  // namespace resnet::cudnn
