// SPDX-License-Identifier: Apache-2.0

#include "pooling.hpp"

#include <cub/warp/warp_reduce.cuh>

#include "numbers.cuh"

namespace resnet::cudnn {

namespace {

/// Extents as kernels use them: 32 bits divide faster.
struct Plane {
  std::uint32_t n, c, h, w;

  explicit Plane(const Extents& e)
      : n(static_cast<std::uint32_t>(e.n)),
        c(static_cast<std::uint32_t>(e.c)),
        h(static_cast<std::uint32_t>(e.h)),
        w(static_cast<std::uint32_t>(e.w)) {}
};

/// Where a pack of V lies: of V channels (nhwc), or a single element (nchw, where V is 1).
template <int V, Format F>
struct Place {
  std::uint32_t n, c, h, w;

  /// The packs of a tensor, in the order of its memory.
  __device__ Place(const Plane& extents, std::uint32_t pack) {
    if constexpr (F == Format::nhwc) {
      const std::uint32_t wide = extents.c / V;
      c = pack % wide * V, pack /= wide;
      w = pack % extents.w, pack /= extents.w;
      h = pack % extents.h, n = pack / extents.h;
    } else {
      w = pack % extents.w, pack /= extents.w;
      h = pack % extents.h, pack /= extents.h;
      c = pack % extents.c, n = pack / extents.c;
    }
  }
  /// Of the element (h, w) of the same image and channels in a tensor of such extents.
  __device__ std::size_t offset(const Plane& extents, std::uint32_t at_h,
                                std::uint32_t at_w) const {
    if constexpr (F == Format::nhwc)
      return ((std::size_t{n} * extents.h + at_h) * extents.w + at_w) * extents.c + c;
    else
      return ((std::size_t{n} * extents.c + c) * extents.h + at_h) * extents.w + at_w;
  }
};

struct Window {
  int kernel, stride, padding;

  explicit Window(const PoolShape& shape)
      : kernel(static_cast<int>(shape.kernel)),
        stride(static_cast<int>(shape.stride)),
        padding(static_cast<int>(shape.padding)) {}
};

template <int V>
struct Best {
  Floats<V> value;
  Pack<std::uint8_t, V> chosen{};

  /// NaN wins, as in PyTorch: it must not get lost.
  __device__ void see(const Floats<V>& candidates, int element, bool first) {
#pragma unroll
    for (int i = 0; i < V; ++i)
      if (first || candidates[i] > value[i] || isnan(candidates[i])) {
        value[i] = candidates[i];
        chosen.value[i] = static_cast<std::uint8_t>(element);
      }
  }
};

template <class T, int V, Format F>
__global__ void max_pool_kernel(Plane in, Plane out, Window window, std::uint32_t packs, const T* x,
                                T* y, std::uint8_t* chosen) {
  const std::uint32_t pack = thread_index();
  if (pack >= packs) return;
  const Place<V, F> place(out, pack);
  Best<V> best;
  bool first = true;
  for (int r = 0; r < window.kernel; ++r)
    for (int s = 0; s < window.kernel; ++s) {
      // In the padding, at -1, the unsigned numbers are beyond the extents as well.
      const std::uint32_t h = place.h * window.stride + r - window.padding;
      const std::uint32_t w = place.w * window.stride + s - window.padding;
      if (h >= in.h || w >= in.w) continue;
      best.see(load<V>(x + place.offset(in, h, w)), r * window.kernel + s, first);
      first = false;
    }
  const std::size_t at = place.offset(out, place.h, place.w);
  store<V>(y + at, best.value);
  *reinterpret_cast<Pack<std::uint8_t, V>*>(chosen + at) = best.chosen;
}

template <class T, int V, Format F>
__global__ void max_pool_gradient_kernel(Plane in, Plane out, Window window, std::uint32_t packs,
                                         const std::uint8_t* chosen, const T* gradient,
                                         const T* more, T* x_gradient) {
  const std::uint32_t pack = thread_index();
  if (pack >= packs) return;
  const Place<V, F> place(in, pack);
  Floats<V> sum{};
  for (int r = 0; r < window.kernel; ++r)
    for (int s = 0; s < window.kernel; ++s) {
      // The window in which this element is (r, s), if there is one.
      const int h = static_cast<int>(place.h) + window.padding - r;
      const int w = static_cast<int>(place.w) + window.padding - s;
      if (h < 0 || w < 0 || h % window.stride != 0 || w % window.stride != 0) continue;
      const auto out_h = static_cast<std::uint32_t>(h / window.stride);
      const auto out_w = static_cast<std::uint32_t>(w / window.stride);
      if (out_h >= out.h || out_w >= out.w) continue;
      const std::size_t at = place.offset(out, out_h, out_w);
      const auto choice = *reinterpret_cast<const Pack<std::uint8_t, V>*>(chosen + at);
      Floats<V> gradients = load<V>(gradient + at);
      Floats<V> others{};
      if (more != nullptr) others = load<V>(more + at);
#pragma unroll
      for (int i = 0; i < V; ++i)
        if (choice.value[i] == r * window.kernel + s) sum[i] += gradients[i] + others[i];
    }
  store<V>(x_gradient + place.offset(in, place.h, place.w), sum);
}

/// The same for four neighbours of a row, nchw, and windows of 3 x 3 at every second element, the
/// first at -1: six windows at most, where four threads of the kernel above try nine each.
template <class T>
__global__ void max_pool_gradient_of_four(Plane in, Plane out, std::uint32_t packs,
                                          const std::uint8_t* chosen, const T* gradient,
                                          const T* more, T* x_gradient) {
  const std::uint32_t pack = thread_index();
  if (pack >= packs) return;
  const std::uint32_t wide = in.w / 4, w = pack % wide, h = pack / wide % in.h,
                      plane = pack / wide / in.h;
  Floats<4> sum{};
  const auto see_row = [&](std::uint32_t out_h, int r) {
    if (out_h >= out.h) return;
    const std::size_t row = (std::size_t{plane} * out.h + out_h) * out.w;
#pragma unroll
    for (int window = 2; window >= 0; --window) {
      const std::uint32_t out_w = 2 * w + window;
      if (out_w >= out.w) continue;
      float value = to_float(gradient[row + out_w]);
      if (more != nullptr) value += to_float(more[row + out_w]);
      const int choice = chosen[row + out_w];
#pragma unroll
      for (int s = 0; s < 3; ++s) {
        const int element = 2 * window - 1 + s;
        if (element >= 0 && element < 4 && choice == 3 * r + s) sum[element] += value;
      }
    }
  };
  if (h % 2 == 1) see_row(h / 2 + 1, 0);
  see_row(h / 2, h % 2 == 1 ? 2 : 1);
  store<4>(x_gradient + std::size_t{pack} * 4, sum);
}

/// nhwc: a thread has V channels of one image.
template <class T, int V>
__global__ void average_rows(Plane in, std::uint32_t packs, const T* x, T* y) {
  const std::uint32_t pack = thread_index();
  if (pack >= packs) return;
  const std::uint32_t wide = in.c / V, image = pack / wide, channel = pack % wide * V;
  const std::uint32_t rows = in.h * in.w;
  Floats<V> sum{};
  for (std::uint32_t row = 0; row < rows; ++row) {
    const Floats<V> values = load<V>(x + (std::size_t{image} * rows + row) * in.c + channel);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += values[i];
  }
#pragma unroll
  for (int i = 0; i < V; ++i) sum[i] /= static_cast<float>(rows);
  store<V>(y + std::size_t{image} * in.c + channel, sum);
}

/// nchw: a warp has a plane.
template <class T>
__global__ void average_planes(Plane in, const T* x, T* y) {
  using Reduce = cub::WarpReduce<float>;
  constexpr unsigned warps = block_threads / 32;
  __shared__ typename Reduce::TempStorage storage[warps];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::uint32_t plane = blockIdx.x * warps + warp, elements = in.h * in.w;
  if (plane >= in.n * in.c) return;
  float mine = 0;
  for (std::uint32_t i = lane; i < elements; i += 32)
    mine += to_float(x[std::size_t{plane} * elements + i]);
  const float sum = Reduce(storage[warp]).Sum(mine);
  if (lane == 0) y[plane] = from_float<T>(sum / static_cast<float>(elements));
}

template <class T, int V, Format F>
__global__ void average_pool_gradient_kernel(Plane in, std::uint32_t packs, const T* gradient,
                                             T* x_gradient) {
  const std::uint32_t pack = thread_index();
  if (pack >= packs) return;
  const Place<V, F> place(in, pack);
  Floats<V> values = load<V>(gradient + std::size_t{place.n} * in.c + place.c);
#pragma unroll
  for (int i = 0; i < V; ++i) values[i] /= static_cast<float>(in.h * in.w);
  store<V>(x_gradient + place.offset(in, place.h, place.w), values);
}

/// launch.operator()<T, V, F>(packs of those extents): packs of channels, thus nhwc alone is wide.
template <class Launch>
void dispatch_packs(const Context& context, const Extents& extents,
                    std::initializer_list<const void*> pointers, const Launch& launch) {
  const bool wide = context.format == Format::nhwc &&
                    extents.c % widest_of(context.precision) == 0 && aligned(pointers);
  dispatch(context.precision, context.format, wide, [&]<class T, int V, Format F>() {
    if constexpr (F == Format::nhwc || V == 1)
      launch.template operator()<T, V, F>(static_cast<std::uint32_t>(extents.count() / V));
  });
}

}  // namespace

void max_pool(const Context& context, const PoolShape& shape, const void* x, void* y,
              std::uint8_t* chosen, cudaStream_t stream) {
  dispatch_packs(context, shape.out(), {x, y, chosen},
                 [&]<class T, int V, Format F>(std::uint32_t packs) {
                   max_pool_kernel<T, V, F><<<blocks_for(packs), block_threads, 0, stream>>>(
                       Plane(shape.in), Plane(shape.out()), Window(shape), packs,
                       static_cast<const T*>(x), static_cast<T*>(y), chosen);
                 });
  check_launch("max_pool");
}

void max_pool_gradient(const Context& context, const PoolShape& shape, const std::uint8_t* chosen,
                       const void* y_gradient, const void* more_y_gradient, void* x_gradient,
                       cudaStream_t stream) {
  const bool usual = shape.kernel == 3 && shape.stride == 2 && shape.padding == 1;
  if (context.format == Format::nchw && usual && shape.in.w % 4 == 0 && aligned({x_gradient})) {
    const std::int64_t packs = shape.in.count() / 4;
    dispatch(context.precision, false, [&]<class T, int V>() {
      max_pool_gradient_of_four<<<blocks_for(packs), block_threads, 0, stream>>>(
          Plane(shape.in), Plane(shape.out()), static_cast<std::uint32_t>(packs), chosen,
          static_cast<const T*>(y_gradient), static_cast<const T*>(more_y_gradient),
          static_cast<T*>(x_gradient));
    });
    return check_launch("max_pool_gradient");
  }
  dispatch_packs(context, shape.in, {chosen, y_gradient, more_y_gradient, x_gradient},
                 [&]<class T, int V, Format F>(std::uint32_t packs) {
                   max_pool_gradient_kernel<T, V, F>
                       <<<blocks_for(packs), block_threads, 0, stream>>>(
                           Plane(shape.in), Plane(shape.out()), Window(shape), packs, chosen,
                           static_cast<const T*>(y_gradient),
                           static_cast<const T*>(more_y_gradient), static_cast<T*>(x_gradient));
                 });
  check_launch("max_pool_gradient");
}

void average_pool(const Context& context, const Extents& extents, const void* x, void* y,
                  cudaStream_t stream) {
  const Extents out{extents.n, extents.c, 1, 1};
  dispatch_packs(context, out, {x, y}, [&]<class T, int V, Format F>(std::uint32_t packs) {
    const auto* input = static_cast<const T*>(x);
    auto* output = static_cast<T*>(y);
    if constexpr (F == Format::nhwc)
      average_rows<T, V>
          <<<blocks_for(packs), block_threads, 0, stream>>>(Plane(extents), packs, input, output);
    else
      average_planes<T><<<blocks_for(out.count() * 32), block_threads, 0, stream>>>(Plane(extents),
                                                                                    input, output);
  });
  check_launch("average_pool");
}

void average_pool_gradient(const Context& context, const Extents& extents, const void* y_gradient,
                           void* x_gradient, cudaStream_t stream) {
  dispatch_packs(
      context, extents, {y_gradient, x_gradient},
      [&]<class T, int V, Format F>(std::uint32_t packs) {
        average_pool_gradient_kernel<T, V, F><<<blocks_for(packs), block_threads, 0, stream>>>(
            Plane(extents), packs, static_cast<const T*>(y_gradient), static_cast<T*>(x_gradient));
      });
  check_launch("average_pool_gradient");
}

}  // namespace resnet::cudnn
