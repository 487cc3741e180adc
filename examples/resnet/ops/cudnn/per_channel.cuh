// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sums over all elements of a channel, with the same bits each time: every block adds up a part of
// some channels (block_partials), then fold adds the parts in their order. The same walk over the
// elements serves the passes that write them.
//
//   Walk<F, V> walk(layout);               // V neighbours at a time: a pack
//   walk.each([&](std::size_t offset) { return load_pack<V>(x + offset); },
//             [&](std::size_t offset, const Pack<T, V>& pack) { ... });
//
// nhwc: a pack is of V channels, and a thread stays with its V. nchw: a pack is of one channel, as
// is the block.

#include <algorithm>
#include <cstdint>

#include "numbers.cuh"

namespace resnet::cudnn {

/// Blocks on a multiprocessor, all at the same time: none comes later, with what it has to read
/// first. It bounds a kernel's registers to 128.
constexpr unsigned resident_blocks = 2;

/// How a grid of blocks is laid over an activation.
struct Layout {
  std::uint32_t channels = 0;
  std::uint32_t plane = 1;  ///< packs of one channel in one image: nchw only
  std::uint32_t packs = 0;  ///< that a channel (nchw), or V channels (nhwc), have in all
  std::uint32_t lanes = 1;  ///< threads side by side, each with its channels; a power of two
  dim3 blocks;              ///< x: parts of a channel's packs, y: groups of channels

  template <int V, Format F>
  static Layout of(const Extents& extents, int multiprocessors) {
    Layout layout;
    layout.channels = static_cast<std::uint32_t>(extents.c);
    std::uint32_t groups = layout.channels;
    if (F == Format::nhwc) {
      const std::uint32_t wide = layout.channels / V;
      while (layout.lanes < std::min(wide, block_threads)) layout.lanes *= 2;
      layout.packs = static_cast<std::uint32_t>(extents.n * extents.h * extents.w);
      groups = (wide + layout.lanes - 1) / layout.lanes;
    } else {
      layout.plane = static_cast<std::uint32_t>(extents.h * extents.w / V);
      layout.packs = static_cast<std::uint32_t>(extents.n) * layout.plane;
    }
    const std::uint32_t rows = block_threads / layout.lanes;
    const std::uint32_t wanted =
        static_cast<std::uint32_t>(multiprocessors) * resident_blocks / groups;
    layout.blocks.x = std::clamp((layout.packs + rows - 1) / rows, 1u, std::max(wanted, 1u));
    layout.blocks.y = groups;
    return layout;
  }
};

/// Whether packs of 16 bytes can be used.
inline bool can_be_wide(const Context& context, const Extents& extents) {
  const std::int64_t run = context.format == Format::nhwc ? extents.c : extents.h * extents.w;
  return run % widest_of(context.precision) == 0;
}

/// What comes last is in the L2 cache for whoever begins there: passes that sum go forward, those
/// that write behind them backward, and the convolutions that read what they wrote forward.
enum class Order { forward, backward };

template <Format F, int V>
class Walk {
 public:
  /// Different channels in one pack.
  static constexpr int slots = F == Format::nhwc ? V : 1;

  __device__ explicit Walk(const Layout& layout)
      : layout_(layout),
        rows_(block_threads / layout.lanes),
        row_(threadIdx.x / layout.lanes),
        first_channel_((blockIdx.y * layout.lanes + threadIdx.x % layout.lanes) *
                       static_cast<std::uint32_t>(slots)) {}

  /// Whether there is something for this thread. All threads of a block sum, these or not.
  __device__ bool has_channels() const { return first_channel_ < layout_.channels; }
  __device__ std::uint32_t channel(int slot) const {
    return first_channel_ + static_cast<std::uint32_t>(slot);
  }
  /// The slot of a pack's element.
  __device__ static constexpr int slot(int element) { return F == Format::nhwc ? element : 0; }
  __device__ std::uint32_t row() const { return row_; }

  /// Packs of this thread.
  __device__ std::uint32_t count() const {
    const std::uint32_t first = blockIdx.x * rows_ + row_, step = gridDim.x * rows_;
    return has_channels() && first < layout_.packs ? (layout_.packs - first + step - 1) / step : 0;
  }
  /// use(offset, fetch(offset)) for each pack. `ahead` packs are fetched before the first of them
  /// is used: the memory is as fast as there are loads under way, and a compiler may not move loads
  /// across the stores of `use`. What `use` writes, no other pack's `fetch` reads. Backward: from
  /// the last pack to the first.
  template <Order order, std::uint32_t ahead = 4, class Fetch, class Use>
  __device__ void each(const Fetch& fetch, const Use& use) const {
    if (!has_channels()) return;
    const std::uint32_t step = gridDim.x * rows_;
    const auto at = [&](std::uint32_t i) {
      return offset(order == Order::backward ? layout_.packs - 1 - i : i);
    };
    decltype(fetch(std::size_t{})) fetched[ahead];
    std::uint32_t i = blockIdx.x * rows_ + row_;
    for (; i + (ahead - 1) * step < layout_.packs; i += ahead * step) {
#pragma unroll
      for (std::uint32_t k = 0; k < ahead; ++k) fetched[k] = fetch(at(i + k * step));
#pragma unroll
      for (std::uint32_t k = 0; k < ahead; ++k) use(at(i + k * step), fetched[k]);
    }
#pragma unroll
    for (std::uint32_t k = 0; k < ahead - 1; ++k)
      if (i + k * step < layout_.packs) fetched[k] = fetch(at(i + k * step));
#pragma unroll
    for (std::uint32_t k = 0; k < ahead - 1; ++k)
      if (i + k * step < layout_.packs) use(at(i + k * step), fetched[k]);
  }
  /// body(pack) for each, by its number: nhwc's are pixels.
  template <Order order, class Body>
  __device__ void each_number(const Body& body) const {
    if (!has_channels()) return;
    for (std::uint32_t i = blockIdx.x * rows_ + row_; i < layout_.packs; i += gridDim.x * rows_)
      body(order == Order::backward ? layout_.packs - 1 - i : i);
  }
  /// The first of this thread's packs; count() is not 0.
  __device__ std::size_t first() const {
    return offset(blockIdx.x * rows_ + row_);
  }

  /// Of a pack, by its number.
  __device__ std::size_t offset(std::uint32_t pack) const {
    if constexpr (F == Format::nhwc) {
      return std::size_t{pack} * layout_.channels + first_channel_;
    } else {
      const std::uint32_t image = pack / layout_.plane;
      return ((std::size_t{image} * layout_.channels + first_channel_) * layout_.plane +
              pack % layout_.plane) *
             V;
    }
  }

 private:
  const Layout& layout_;
  std::uint32_t rows_, row_, first_channel_;
};

/// What a channel is normalised with.
struct Affine {
  float mean = 0, scale = 0, bias = 0;
  /// Distance first: x * scale + bias' would lose digits where the mean is far from 0.
  __device__ float operator()(float x) const { return (x - mean) * scale + bias; }
};

/// By the batch's statistics, or the running ones.
__device__ inline Affine affine(const BatchNorm& norm, bool running, std::uint32_t channel) {
  const float inverse = running ? 1 / sqrtf(norm.running_variance[channel] + norm.epsilon)
                                : norm.inverse_deviation[channel];
  return {running ? norm.running_mean[channel] : norm.mean[channel], norm.gamma[channel] * inverse,
          norm.beta[channel]};
}

/// Adds up what the block's threads have for the same channels, and writes it to
/// partials[blockIdx.x][channel]. Value: combine(other); Value{} adds nothing. (No initializers: it
/// lies in shared memory, where constructors do not run.)
template <class Value, Format F, int V>
__device__ void block_partials(const Layout& layout, const Walk<F, V>& walk,
                               const Value (&mine)[Walk<F, V>::slots], Value* partials) {
  constexpr int slots = Walk<F, V>::slots;
  __shared__ Value shared[slots][block_threads];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot) shared[slot][threadIdx.x] = mine[slot];
  for (std::uint32_t half = block_threads / layout.lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (walk.row() < half)
#pragma unroll
      for (int slot = 0; slot < slots; ++slot)
        shared[slot][threadIdx.x].combine(shared[slot][threadIdx.x + half * layout.lanes]);
  }
  if (walk.row() != 0 || !walk.has_channels()) return;
#pragma unroll
  for (int slot = 0; slot < slots; ++slot)
    partials[std::size_t{blockIdx.x} * layout.channels + walk.channel(slot)] =
        shared[slot][threadIdx.x];
}

/// Channels in a block of fold, threads for each, and partials that a thread reads at a time.
constexpr unsigned fold_channels = 32, fold_rows = 16, fold_ahead = 8;

/// finish(channel, sum of the channel's partials).
template <class Value, class Finish>
__global__ void fold(const Value* partials, std::uint32_t parts, std::uint32_t channels,
                     Finish finish) {
  __shared__ Value shared[fold_rows][fold_channels];
  const std::uint32_t channel = blockIdx.x * fold_channels + threadIdx.x;
  Value sum{};
  for (std::uint32_t part = threadIdx.y; part < parts; part += fold_ahead * fold_rows) {
    Value read[fold_ahead];
#pragma unroll
    for (unsigned i = 0; i < fold_ahead; ++i) {
      const std::uint32_t at = part + i * fold_rows;
      read[i] = at < parts && channel < channels ? partials[std::size_t{at} * channels + channel]
                                                 : Value{};
    }
#pragma unroll
    for (unsigned i = 0; i < fold_ahead; ++i) sum.combine(read[i]);
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  for (unsigned half = fold_rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half)
      shared[threadIdx.y][threadIdx.x].combine(shared[threadIdx.y + half][threadIdx.x]);
  }
  if (threadIdx.y == 0 && channel < channels) finish(channel, shared[0][threadIdx.x]);
}

template <class Value, class Finish>
void launch_fold(const Value* partials, std::uint32_t parts, std::uint32_t channels,
                 const Finish& finish, cudaStream_t stream) {
  const unsigned blocks = (channels + fold_channels - 1) / fold_channels;
  fold<<<blocks, dim3(fold_channels, fold_rows), 0, stream>>>(partials, parts, channels, finish);
  check_launch("fold");
}

}  // namespace resnet::cudnn
