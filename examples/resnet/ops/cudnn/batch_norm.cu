// SPDX-License-Identifier: Apache-2.0

#include "batch_norm.hpp"

#include "elementwise.hpp"
#include "moments.hpp"
#include "per_channel.cuh"

namespace resnet::cudnn {

namespace {

template <class T, int V, Format F>
__global__ void __launch_bounds__(block_threads, resident_blocks)
    statistics(Layout layout, const T* x, Moments* partials) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  ShiftedSums sums[slots];
  if (walk.count() > 0) {
    const Floats<V> first = load<V>(x + walk.first());
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) sums[slot].shift = first[slot];
  }
  walk.template each<Order::forward, 8>(
      [&](std::size_t offset) { return load_pack<V>(x + offset); },
      [&](std::size_t, const Pack<T, V>& pack) {
        const Floats<V> values = floats_of(pack);
#pragma unroll
        for (int i = 0; i < V; ++i) sums[walk.slot(i)].add(values[i]);
      });
  const auto values = static_cast<float>(walk.count() * (V / slots));
  Moments moments[slots];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot) moments[slot] = sums[slot].moments(values);
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
    const Layout layout = Layout::of<V, F>(extents, context.multiprocessors);
    auto* partials = context.scratch<Moments>(std::size_t{layout.blocks.x} * layout.channels);
    statistics<T, V, F>
        <<<layout.blocks, block_threads, 0, stream>>>(layout, static_cast<const T*>(x), partials);
    check_launch("statistics");
    launch_fold(partials, layout.blocks.x, layout.channels, finish_as(T()), stream);
  });
}

/// What batch norm writes, and from what.
template <class T>
struct Normalised {
  const T *x, *residual;
  T* y;
  std::uint8_t* relu_bits;
  bool running, relu;
};

/// `raw`: the residual is normalised by residual_norm.
template <class T, int V, Format F, bool raw>
__global__ void __launch_bounds__(block_threads, resident_blocks)
    normalize(Layout layout, Normalised<T> of, BatchNorm norm, BatchNorm residual_norm) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  if (!walk.has_channels()) return;
  Affine channel[slots], residual_channel[slots];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot) {
    channel[slot] = affine(norm, of.running, walk.channel(slot));
    if constexpr (raw) residual_channel[slot] = affine(residual_norm, false, walk.channel(slot));
  }
  struct Packs {
    Pack<T, V> x, residual;
  };
  const auto fetch = [&](std::size_t offset) {
    Packs packs{load_pack<V>(of.x + offset), {}};
    if (of.residual != nullptr) packs.residual = load_pack<V>(of.residual + offset);
    return packs;
  };
  walk.template each<Order::backward>(fetch, [&](std::size_t offset, const Packs& packs) {
    Floats<V> values = floats_of(packs.x);
    Floats<V> others = floats_of(packs.residual);
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if constexpr (raw) others[i] = residual_channel[walk.slot(i)](others[i]);
      const float value = channel[walk.slot(i)](values[i]) + others[i];
      bits |= value <= 0 ? 0 : 1u << i;
      values[i] = of.relu && value < 0 ? 0 : value;
    }
    store<V>(of.y + offset, values);
    if (V > 1 && of.relu_bits != nullptr)
      of.relu_bits[offset / V] = static_cast<std::uint8_t>(bits);
  });
}

/// batch_norm_apply's, and batch_norm_inference's: with the running statistics.
struct Application {
  const void* x;
  const BatchNorm& norm;
  bool running;
  const void* residual;
  const BatchNorm* residual_norm;
  bool relu;
  void* y;
};

void launch_normalize(const Context& context, const Extents& extents, const Application& of,
                      cudaStream_t stream) {
  const bool wide = can_be_wide(context, extents) && aligned({of.x, of.residual, of.y});
  const bool writes_bits = wide && !of.running && of.relu && of.residual != nullptr;
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    const Layout layout = Layout::of<V, F>(extents, context.multiprocessors);
    const Normalised<T> arrays{static_cast<const T*>(of.x),
                               static_cast<const T*>(of.residual),
                               static_cast<T*>(of.y),
                               writes_bits ? of.norm.relu_bits : nullptr,
                               of.running,
                               of.relu};
    if (of.residual_norm == nullptr)
      normalize<T, V, F, false>
          <<<layout.blocks, block_threads, 0, stream>>>(layout, arrays, of.norm, {});
    else
      normalize<T, V, F, true>
          <<<layout.blocks, block_threads, 0, stream>>>(layout, arrays, of.norm, *of.residual_norm);
  });
  check_launch("normalize");
}

void apply(const Context& context, const Extents& extents, const Application& of,
           cudaStream_t stream) {
  if (context.fusion != Fusion::none) return launch_normalize(context, extents, of, stream);
  if (of.residual_norm != nullptr)
    throw UnsupportedOperation("a residual's batch norm is fused, or an operation of its own");
  Application first = of;
  first.residual = nullptr, first.relu = false;
  launch_normalize(context, extents, first, stream);
  const std::int64_t count = extents.count();
  if (of.residual != nullptr) add(context.precision, of.y, of.residual, of.y, count, stream);
  if (of.relu) relu(context.precision, of.y, of.y, count, stream);
}

}  // namespace

/// A byte for each pack of 16: neighbours do not write to the same one.
std::int64_t relu_bits_bytes(const Context& context, const Extents& extents) {
  if (context.fusion == Fusion::none || !can_be_wide(context, extents)) return 0;
  return extents.count() / widest_of(context.precision);
}

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
                      const BatchNorm& norm, const void* residual, const BatchNorm* residual_norm,
                      bool relu, void* y, cudaStream_t stream) {
  apply(context, extents, {x, norm, false, residual, residual_norm, relu, y}, stream);
}

void batch_norm(const Context& context, const Extents& extents, const void* x,
                const BatchNorm& norm, const void* residual, bool relu, void* y,
                cudaStream_t stream) {
  batch_norm_statistics(context, extents, x, norm, stream);
  batch_norm_apply(context, extents, x, norm, residual, nullptr, relu, y, stream);
}

void batch_norm_inference(const Context& context, const Extents& extents, const void* x,
                          const BatchNorm& norm, const void* residual, bool relu, void* y,
                          cudaStream_t stream) {
  apply(context, extents, {x, norm, true, residual, nullptr, relu, y}, stream);
}

}  // namespace resnet::cudnn
