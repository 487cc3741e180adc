// SPDX-License-Identifier: Apache-2.0

#include "batch_norm.hpp"
#include "batch_norm_gradient.cuh"
#include "elementwise.hpp"
#include "per_channel.cuh"

namespace resnet::cudnn {

namespace {

/// Where ReLU stops the gradient: nowhere; where normalised x is not positive; by the bits that
/// batch_norm wrote; where y is not positive.
enum class Gate { open, x, bits, y };

/// What the gradient is computed from, and the gradient that arrives behind batch norm: a sum.
template <class T, int V, Gate G>
struct Arriving {
  const T *x, *gradient;
  const T* more;  ///< or null
  const T* y;
  const std::uint8_t* bits;

  struct Packs {
    Pack<T, V> x, gradient, more;
    Pack<T, G == Gate::y ? V : 1> y;
    std::uint8_t bits;
  };
  __device__ Packs operator()(std::size_t offset) const {
    Packs packs{};
    packs.x = load_pack<V>(x + offset);
    packs.gradient = load_pack<V>(gradient + offset);
    if (more != nullptr) packs.more = load_pack<V>(more + offset);
    if constexpr (G == Gate::y) packs.y = load_pack<V>(y + offset);
    if constexpr (G == Gate::bits) packs.bits = bits[offset / V];
    return packs;
  }
};

/// Of a pack, behind ReLU. `normal(i)`: element i of normalised x.
template <class T, int V, Gate G, class Packs, class Normal>
__device__ Floats<V> arriving_gradients(const Packs& packs, const Normal& normal) {
  Floats<V> sum = floats_of(packs.gradient);
  const Floats<V> more = floats_of(packs.more);
#pragma unroll
  for (int i = 0; i < V; ++i) {
    sum[i] += more[i];
    bool stopped = false;
    if constexpr (G == Gate::x) stopped = normal(i) <= 0;
    if constexpr (G == Gate::bits) stopped = (packs.bits >> i & 1) == 0;
    if constexpr (G == Gate::y) stopped = to_float(packs.y.value[i]) <= 0;
    if (stopped) sum[i] = 0;
  }
  return sum;
}

/// First pass. Writes the residual's gradient, unless null.
template <class T, int V, Format F, Gate G>
__global__ void __launch_bounds__(block_threads, resident_blocks)
    gradient_sums(Layout layout, Arriving<T, V, G> arriving, BatchNorm norm, T* residual_gradient,
                  Sums* partials) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  Sums sums[slots]{};
  Affine channel[slots];
  if (walk.has_channels())
#pragma unroll
    for (int slot = 0; slot < slots; ++slot)
      channel[slot] = affine(norm, false, walk.channel(slot));
  using Packs = typename Arriving<T, V, G>::Packs;
  walk.template each<Order::forward>(arriving, [&](std::size_t offset, const Packs& packs) {
    const Floats<V> values = floats_of(packs.x);
    const Floats<V> gradients =
        arriving_gradients<T, V, G>(packs, [&](int i) { return channel[walk.slot(i)](values[i]); });
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int slot = walk.slot(i);
      sums[slot].gradient += gradients[i];
      sums[slot].gradient_x += gradients[i] * (values[i] - channel[slot].mean);
    }
    if (residual_gradient != nullptr) store<V>(residual_gradient + offset, gradients);
  });
  if (walk.has_channels())
#pragma unroll
    for (int slot = 0; slot < slots; ++slot)
      sums[slot].gradient_x *= norm.inverse_deviation[walk.channel(slot)];
  block_partials(layout, walk, sums, partials);
}

/// Second pass.
template <class T, int V, Format F, Gate G>
__global__ void __launch_bounds__(block_threads, resident_blocks)
    gradient_before(Layout layout, Arriving<T, V, G> arriving, BatchNorm norm, BatchSums sums,
                    T* x_gradient) {
  const Walk<F, V> walk(layout);
  constexpr int slots = Walk<F, V>::slots;
  if (!walk.has_channels()) return;
  Before before[slots];
#pragma unroll
  for (int slot = 0; slot < slots; ++slot) before[slot] = Before(norm, sums, walk.channel(slot));
  using Packs = typename Arriving<T, V, G>::Packs;
  walk.template each<Order::backward>(arriving, [&](std::size_t offset, const Packs& packs) {
    const Floats<V> values = floats_of(packs.x);
    Floats<V> gradients = arriving_gradients<T, V, G>(
        packs, [&](int i) { return before[walk.slot(i)].normal(values[i]); });
#pragma unroll
    for (int i = 0; i < V; ++i) gradients[i] = before[walk.slot(i)](gradients[i], values[i]);
    store<V>(x_gradient + offset, gradients);
  });
}

/// The passes' operands, and what stops the gradient.
struct Passes {
  BatchNormOperands of;
  Gate gate;
  const std::uint8_t* bits;
};

bool can_be_wide(const Context& context, const Extents& extents, const BatchNormOperands& of) {
  return cudnn::can_be_wide(context, extents) &&
         aligned(
             {of.x, of.y, of.y_gradient, of.more_y_gradient, of.x_gradient, of.residual_gradient});
}

/// launch(layout, arriving): the latter an Arriving<T, V, G>.
template <Gate... gates, class Launch>
void dispatch_gates(const Context& context, const Extents& extents, const Passes& passes,
                    const Launch& launch) {
  const BatchNormOperands& of = passes.of;
  const bool wide = can_be_wide(context, extents, of);
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    const Layout layout = Layout::of<V, F>(extents, context.multiprocessors);
    const auto with = [&]<Gate G>() {
      if (G != passes.gate) return;
      const Arriving<T, V, G> arriving{
          static_cast<const T*>(of.x), static_cast<const T*>(of.y_gradient),
          static_cast<const T*>(of.more_y_gradient), static_cast<const T*>(of.y), passes.bits};
      launch.template operator()<T, V, F, G>(layout, arriving);
    };
    (with.template operator()<gates>(), ...);
  });
}

void launch_sums(const Context& context, const Extents& extents, const Passes& passes,
                 const BatchNorm& norm, float* sums, cudaStream_t stream) {
  const auto launch = [&]<class T, int V, Format F, Gate G>(const Layout& layout,
                                                            const Arriving<T, V, G>& arriving) {
    auto* partials = context.scratch<Sums>(std::size_t{layout.blocks.x} * layout.channels);
    gradient_sums<T, V, F, G><<<layout.blocks, block_threads, 0, stream>>>(
        layout, arriving, norm, static_cast<T*>(passes.of.residual_gradient), partials);
    check_launch("gradient_sums");
    launch_fold(partials, layout.blocks.x, layout.channels, FinishSums{norm, sums, layout.channels},
                stream);
  };
  dispatch_gates<Gate::open, Gate::x, Gate::bits, Gate::y>(context, extents, passes, launch);
}

void launch_before(const Context& context, const Extents& extents, Passes passes,
                   const BatchNorm& norm, const BatchSums& sums, cudaStream_t stream) {
  const BatchNormOperands of = passes.of;
  if (of.residual_gradient != nullptr)  // The first pass has left there what arrives.
    passes = {{of.x, nullptr, of.residual_gradient, nullptr, of.x_gradient, nullptr},
              Gate::open,
              nullptr};
  const auto launch = [&]<class T, int V, Format F, Gate G>(const Layout& layout,
                                                            const Arriving<T, V, G>& arriving) {
    gradient_before<T, V, F, G><<<layout.blocks, block_threads, 0, stream>>>(
        layout, arriving, norm, sums, static_cast<T*>(of.x_gradient));
  };
  dispatch_gates<Gate::open, Gate::x>(context, extents, passes, launch);
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

/// What the passes take: behind launch_separately, where nothing is fused. Without a residual, what
/// ReLU stops follows from x, which the passes read anyway.
Passes for_passes(const Context& context, const Extents& extents, BatchNormOperands of,
                  const BatchNorm& norm, bool relu) {
  if (context.fusion == Fusion::none) {
    const bool moved = relu || of.more_y_gradient != nullptr;
    of = {of.x, nullptr, moved ? of.x_gradient : of.y_gradient, nullptr, of.x_gradient, nullptr};
    return {of, Gate::open, nullptr};
  }
  if (relu && of.residual_gradient != nullptr) {
    const bool bits = norm.relu_bits != nullptr && can_be_wide(context, extents, of);
    return {of, bits ? Gate::bits : Gate::y, norm.relu_bits};
  }
  of.y = nullptr;
  return {of, relu ? Gate::x : Gate::open, nullptr};
}

}  // namespace

void batch_norm_gradient_sums(const Context& context, const Extents& extents,
                              const BatchNormOperands& of, const BatchNorm& norm, bool relu,
                              float* sums, cudaStream_t stream) {
  if (context.fusion == Fusion::none) launch_separately(context, extents, of, relu, stream);
  launch_sums(context, extents, for_passes(context, extents, of, norm, relu), norm, sums, stream);
}

void batch_norm_gradient_rest(const Context& context, const Extents& extents, int ranks,
                              const BatchNormOperands& of, const BatchNorm& norm, bool relu,
                              const float* sums, cudaStream_t stream) {
  launch_before(context, extents, for_passes(context, extents, of, norm, relu), norm,
                {extents, ranks, sums, sums + extents.c}, stream);
}

void batch_norm_gradient(const Context& context, const Extents& extents,
                         const BatchNormOperands& of, const BatchNorm& norm, bool relu,
                         cudaStream_t stream) {
  batch_norm_gradient_sums(context, extents, of, norm, relu, nullptr, stream);
  launch_before(context, extents, for_passes(context, extents, of, norm, relu), norm,
                {extents, 1, norm.beta_gradient, norm.gamma_gradient}, stream);
}

void batch_norm_gradient_apply(const Context& context, const Extents& extents, const void* x,
                               const void* gradient, const BatchNorm& norm, void* x_gradient,
                               cudaStream_t stream) {
  const BatchNormOperands of{x, nullptr, gradient, nullptr, x_gradient, nullptr};
  launch_before(context, extents, {of, Gate::open, nullptr}, norm,
                {extents, 1, norm.beta_gradient, norm.gamma_gradient}, stream);
}

}  // namespace resnet::cudnn
