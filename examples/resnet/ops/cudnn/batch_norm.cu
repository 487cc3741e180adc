// SPDX-License-Identifier: Apache-2.0

#include "batch_norm.hpp"

#include "elementwise.hpp"
#include "moments.hpp"
#include "per_channel.cuh"

namespace resnet::cudnn {

namespace {

template <class T, int V, Format F>
__global__ void statistics(Layout layout, const T* x, Moments* partials) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  ShiftedSums sums[slots];
  std::uint32_t packs = 0;
  walk.each([&](std::size_t offset) {
    const Floats<V> values = load<V>(x + offset);
    if (packs++ == 0)
#pragma unroll
      for (int slot = 0; slot < slots; ++slot) sums[slot].shift = values[slot];
#pragma unroll
    for (int i = 0; i < V; ++i) sums[walk.slot(i)].add(values[i]);
  });
  Moments moments[slots];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot)
    moments[slot] = sums[slot].moments(static_cast<float>(packs * (V / slots)));
  block_partials(layout, walk, moments, partials);
}

/// What becomes of a channel's moments. T: of scale and bias.
template <class T>
struct FinishStatistics {
  BatchNorm norm;

  __device__ void operator()(std::uint32_t channel, const Moments& moments) const {
    const float variance = moments.squares / moments.count;
    const float inverse = 1 / sqrtf(variance + norm.epsilon);
    norm.mean[channel] = moments.mean;
    norm.inverse_deviation[channel] = inverse;
    // Of one value there is no unbiased variance; the running one then takes the biased.
    const float unbiased = moments.squares / fmaxf(moments.count - 1, 1);
    move(norm.running_mean[channel], moments.mean);
    move(norm.running_variance[channel], unbiased);
    if (norm.scale == nullptr) return;
    const T scale = from_float<T>(norm.gamma[channel] * inverse);
    static_cast<T*>(norm.scale)[channel] = scale;
    // By the scale as it is rounded: then what lies at the mean becomes beta all the same.
    static_cast<T*>(norm.bias)[channel] =
        from_float<T>(fmaf(-moments.mean, to_float(scale), norm.beta[channel]));
  }
  /// A forward pass that overflowed leaves no trace: the step is skipped, too (LossScale).
  __device__ void move(float& running, float batch) const {
    if (!isfinite(batch)) return;
    running = (1 - norm.momentum) * running + norm.momentum * batch;
  }
};

/// A thread for each channel. In double: no more is lost than the sums have lost. Their difference
/// may then be below 0; NaN stays.
template <class T>
__global__ void finish_sums(const float* sums, const float* squares, double count,
                            std::uint32_t channels, BatchNorm norm) {
  const std::uint32_t channel = thread_index();
  if (channel >= channels) return;
  const double mean = sums[channel] / count;
  const double distances = squares[channel] - mean * sums[channel];
  const FinishStatistics<T> finish{norm};
  finish(channel, {static_cast<float>(count), static_cast<float>(mean),
                   distances < 0 ? 0 : static_cast<float>(distances)});
}

/// The other way out of the statistics: as they are, for a batch that is divided among ranks.
struct StoreMoments {
  float* moments;
  std::uint32_t channels;

  __device__ void operator()(std::uint32_t channel, const Moments& of) const {
    moments[channel] = of.mean;
    moments[std::size_t{channels} + channel] = of.squares;
  }
};

/// A thread for each channel. `count`: elements that a rank has of it.
template <class T>
__global__ void merge_ranks(int ranks, const float* moments, double count, std::uint32_t channels,
                            BatchNorm norm) {
  const std::uint32_t channel = thread_index();
  if (channel >= channels) return;
  FinishStatistics<T>{norm}(channel, merged(ranks, moments, channels, channel, count));
}

/// finish_as(T()): what becomes of the moments where x is of T.
template <class FinishAs>
void launch_statistics(const Context& context, const Extents& extents, const void* x,
                       const FinishAs& finish_as, cudaStream_t stream) {
  const bool wide = can_be_wide(context, extents) && aligned({x});
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    const Layout layout = Layout::of<V, F>(extents, context.multiprocessors, 4);
    auto* partials = context.scratch<Moments>(std::size_t{layout.blocks.x} * layout.channels);
    statistics<T, V, F>
        <<<layout.blocks, block_threads, 0, stream>>>(layout, static_cast<const T*>(x), partials);
    check_launch("statistics");
    launch_fold(partials, layout.blocks.x, layout.channels, finish_as(T()), stream);
  });
}

struct Affine {
  float mean = 0, scale = 0, bias = 0;
  /// Distance first: x * scale + bias' would lose digits where the mean is far from 0.
  __device__ float operator()(float x) const { return (x - mean) * scale + bias; }
};

/// What a channel is normalised with: the batch's statistics, or the running ones.
__device__ Affine affine(const BatchNorm& norm, bool running, std::uint32_t channel) {
  const float inverse = running ? 1 / sqrtf(norm.running_variance[channel] + norm.epsilon)
                                : norm.inverse_deviation[channel];
  return {running ? norm.running_mean[channel] : norm.mean[channel], norm.gamma[channel] * inverse,
          norm.beta[channel]};
}

template <class T, int V, Format F>
__global__ void normalize(Layout layout, const T* x, BatchNorm norm, bool running,
                          const T* residual, bool relu, T* y) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  if (!walk.has_channels()) return;
  Affine channel[slots];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot)
    channel[slot] = affine(norm, running, walk.channel(slot));
  walk.each([&](std::size_t offset) {
    Floats<V> values = load<V>(x + offset);
    Floats<V> others{};
    if (residual != nullptr) others = load<V>(residual + offset);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float value = channel[walk.slot(i)](values[i]) + others[i];
      values[i] = relu && value < 0 ? 0 : value;
    }
    store<V>(y + offset, values);
  });
}

void launch_normalize(const Context& context, const Extents& extents, const void* x,
                      const BatchNorm& norm, bool running, const void* residual, bool relu, void* y,
                      cudaStream_t stream) {
  const bool wide = can_be_wide(context, extents) && aligned({x, residual, y});
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    const Layout layout = Layout::of<V, F>(extents, context.multiprocessors, 16);
    normalize<T, V, F><<<layout.blocks, block_threads, 0, stream>>>(
        layout, static_cast<const T*>(x), norm, running, static_cast<const T*>(residual), relu,
        static_cast<T*>(y));
  });
  check_launch("normalize");
}

void apply(const Context& context, const Extents& extents, const void* x, const BatchNorm& norm,
           bool running, const void* residual, bool with_relu, void* y, cudaStream_t stream) {
  if (context.fusion != Fusion::none) {
    launch_normalize(context, extents, x, norm, running, residual, with_relu, y, stream);
    return;
  }
  launch_normalize(context, extents, x, norm, running, nullptr, false, y, stream);
  if (residual != nullptr) add(context.precision, y, residual, y, extents.count(), stream);
  if (with_relu) relu(context.precision, y, y, extents.count(), stream);
}

}  // namespace

void batch_norm_statistics(const Context& context, const Extents& extents, const void* x,
                           const BatchNorm& norm, cudaStream_t stream) {
  launch_statistics(
      context, extents, x, [&]<class T>(T) { return FinishStatistics<T>{norm}; }, stream);
}

void batch_norm_moments(const Context& context, const Extents& extents, const void* x,
                        float* moments, cudaStream_t stream) {
  const StoreMoments store{moments, static_cast<std::uint32_t>(extents.c)};
  launch_statistics(
      context, extents, x, [&]<class T>(T) { return store; }, stream);
}

void batch_norm_merge(const Context& context, const Extents& extents, int ranks,
                      const float* moments, const BatchNorm& norm, cudaStream_t stream) {
  dispatch(context.precision, false, [&]<class T, int V>() {
    merge_ranks<T><<<blocks_for(extents.c), block_threads, 0, stream>>>(
        ranks, moments, static_cast<double>(extents.n * extents.h * extents.w),
        static_cast<std::uint32_t>(extents.c), norm);
  });
  check_launch("merge_ranks");
}

void batch_norm_statistics_of_sums(const Context& context, const Extents& extents,
                                   const float* sums, const float* squares, const BatchNorm& norm,
                                   cudaStream_t stream) {
  dispatch(context.precision, false, [&]<class T, int V>() {
    finish_sums<T><<<blocks_for(extents.c), block_threads, 0, stream>>>(
        sums, squares, static_cast<double>(extents.n * extents.h * extents.w),
        static_cast<std::uint32_t>(extents.c), norm);
  });
  check_launch("finish_sums");
}

void batch_norm_apply(const Context& context, const Extents& extents, const void* x,
                      const BatchNorm& norm, const void* residual, bool relu, void* y,
                      cudaStream_t stream) {
  apply(context, extents, x, norm, false, residual, relu, y, stream);
}

void batch_norm(const Context& context, const Extents& extents, const void* x,
                const BatchNorm& norm, const void* residual, bool relu, void* y,
                cudaStream_t stream) {
  batch_norm_statistics(context, extents, x, norm, stream);
  batch_norm_apply(context, extents, x, norm, residual, relu, y, stream);
}

void batch_norm_inference(const Context& context, const Extents& extents, const void* x,
                          const BatchNorm& norm, const void* residual, bool relu, void* y,
                          cudaStream_t stream) {
  apply(context, extents, x, norm, true, residual, relu, y, stream);
}

}  // namespace resnet::cudnn
