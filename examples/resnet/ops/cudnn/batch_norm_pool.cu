// SPDX-License-Identifier: Apache-2.0

// Batch norm, ReLU and max pool in one kernel: what lies between them is four times as large as
// what comes out, and is never in memory. Backward the pool's gradient is gathered in both passes
// of batch norm's: a read of what is small in place of one of what is large.

#include "batch_norm.hpp"
#include "batch_norm_gradient.cuh"
#include "pooling.hpp"

namespace resnet::cudnn {

namespace {

/// Of `chosen`: ReLU stops the window's gradient.
constexpr std::uint8_t closed = 0xff;

/// An image before and behind the pool: windows of 3 x 3 elements, at every second one, the first
/// at -1.
struct Pooled {
  std::uint32_t h, w, out_h, out_w;

  explicit Pooled(const PoolShape& shape)
      : h(static_cast<std::uint32_t>(shape.in.h)),
        w(static_cast<std::uint32_t>(shape.in.w)),
        out_h(static_cast<std::uint32_t>(shape.out().h)),
        out_w(static_cast<std::uint32_t>(shape.out().w)) {}
};

/// A window, by its number in memory.
struct Place {
  std::uint32_t n, h, w;

  __device__ Place(const Pooled& image, std::uint32_t window) {
    w = window % image.out_w, window /= image.out_w;
    h = window % image.out_h, n = window / image.out_h;
  }
};

template <class T, int V>
__global__ void __launch_bounds__(block_threads, resident_blocks)
    normalize_and_pool(Layout layout, Pooled image, const T* x, BatchNorm norm, T* y,
                       std::uint8_t* chosen) {
  const Walk<Format::nhwc, V> walk(layout);
  if (!walk.has_channels()) return;
  Affine channel[V];
#pragma unroll
  for (int i = 0; i < V; ++i) channel[i] = affine(norm, false, walk.channel(i));
  walk.template each_number<Order::backward>([&](std::uint32_t window) {
    const Place place(image, window);
    Pack<T, V> packs[9];
    bool there[9];
#pragma unroll
    for (std::uint32_t i = 0; i < 9; ++i) {
      // In the padding, at -1, the unsigned numbers are beyond the extents as well.
      const std::uint32_t h = 2 * place.h + i / 3 - 1, w = 2 * place.w + i % 3 - 1;
      there[i] = h < image.h && w < image.w;
      if (there[i]) packs[i] = load_pack<V>(x + walk.offset((place.n * image.h + h) * image.w + w));
    }
    Floats<V> best{};  // ReLU's
    Pack<std::uint8_t, V> choice;
#pragma unroll
    for (int i = 0; i < V; ++i) choice.value[i] = closed;
#pragma unroll
    for (int element = 0; element < 9; ++element) {
      if (!there[element]) continue;
      const Floats<V> values = floats_of(packs[element]);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float value = channel[i](values[i]);
        if (!(value > best[i] || isnan(value))) continue;
        best[i] = value;
        choice.value[i] = static_cast<std::uint8_t>(element);
      }
    }
    store<V>(y + walk.offset(window), best);
    *reinterpret_cast<Pack<std::uint8_t, V>*>(chosen + walk.offset(window)) = choice;
  });
}

/// The gradient that arrives behind the pool.
template <class T>
struct BehindPool {
  const std::uint8_t* chosen;
  const T* gradient;
  const T* more;  ///< or null
};

/// Two by two elements of an image, and the windows that they are in. A thread has them whole:
/// what it reads, others need at the edges alone.
template <class T, int V>
class Quad {
 public:
  using Walk = cudnn::Walk<Format::nhwc, V>;

  __device__ Quad(const Pooled& image, const Walk& walk, std::uint32_t window,
                  const BehindPool<T>& behind, const T* x)
      : image_(image), walk_(walk), place_(image, window) {
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i)
      if (inside(i)) x_[i] = load_pack<V>(x + offset(i));
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t h = place_.h + i / 2, w = place_.w + i % 2;
#pragma unroll
      for (int j = 0; j < V; ++j) chosen_[i].value[j] = closed;
      gradient_[i] = more_[i] = {};
      if (h >= image.out_h || w >= image.out_w) continue;
      const std::size_t at = walk.offset((place_.n * image.out_h + h) * image.out_w + w);
      chosen_[i] = load_pack<V>(behind.chosen + at);
      gradient_[i] = load_pack<V>(behind.gradient + at);
      if (behind.more != nullptr) more_[i] = load_pack<V>(behind.more + at);
    }
  }

  /// body(offset, values of x, gradients behind batch norm) for each element.
  template <class Body>
  __device__ void each(const Body& body) const {
    Floats<V> windows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      windows[i] = floats_of(gradient_[i]);
      const Floats<V> more = floats_of(more_[i]);
#pragma unroll
      for (int j = 0; j < V; ++j) windows[i][j] += more[j];
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i)
      if (inside(i)) body(offset(i), floats_of(x_[i]), sum(windows, static_cast<int>(i)));
  }

 private:
  /// Of element i's windows: those that chose it.
  __device__ Floats<V> sum(const Floats<V> (&windows)[4], int i) const {
    Floats<V> all{};
#pragma unroll
    for (int window = 0; window < 4; ++window) {
      // Where the element is in this window: below and right of its first.
      const int r = i / 2 + 1 - 2 * (window / 2), s = i % 2 + 1 - 2 * (window % 2);
      if (r < 0 || s < 0) continue;
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (chosen_[window].value[j] == r * 3 + s) all[j] += windows[window][j];
    }
    return all;
  }
  __device__ bool inside(std::uint32_t i) const {
    return 2 * place_.h + i / 2 < image_.h && 2 * place_.w + i % 2 < image_.w;
  }
  __device__ std::size_t offset(std::uint32_t i) const {
    const std::uint32_t h = 2 * place_.h + i / 2, w = 2 * place_.w + i % 2;
    return walk_.offset((place_.n * image_.h + h) * image_.w + w);
  }

  const Pooled& image_;
  const Walk& walk_;
  Place place_;
  Pack<T, V> x_[4], gradient_[4], more_[4];
  Pack<std::uint8_t, V> chosen_[4];
};

template <class T, int V>
__global__ void __launch_bounds__(block_threads, resident_blocks)
    pooled_gradient_sums(Layout layout, Pooled image, const T* x, BehindPool<T> behind,
                         BatchNorm norm, Sums* partials) {
  const Walk<Format::nhwc, V> walk(layout);
  Sums sums[V]{};
  float mean[V];
#pragma unroll
  for (int i = 0; i < V; ++i) mean[i] = walk.has_channels() ? norm.mean[walk.channel(i)] : 0;
  walk.template each_number<Order::forward>([&](std::uint32_t window) {
    const Quad<T, V> quad(image, walk, window, behind, x);
    quad.each([&](std::size_t, const Floats<V>& values, const Floats<V>& gradients) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        sums[i].gradient += gradients[i];
        sums[i].gradient_x += gradients[i] * (values[i] - mean[i]);
      }
    });
  });
  if (walk.has_channels())
#pragma unroll
    for (int i = 0; i < V; ++i) sums[i].gradient_x *= norm.inverse_deviation[walk.channel(i)];
  block_partials(layout, walk, sums, partials);
}

template <class T, int V>
__global__ void __launch_bounds__(block_threads, resident_blocks)
    pooled_gradient_before(Layout layout, Pooled image, const T* x, BehindPool<T> behind,
                           BatchNorm norm, BatchSums sums, T* x_gradient) {
  const Walk<Format::nhwc, V> walk(layout);
  if (!walk.has_channels()) return;
  Before before[V];
#pragma unroll
  for (int i = 0; i < V; ++i) before[i] = Before(norm, sums, walk.channel(i));
  walk.template each_number<Order::backward>([&](std::uint32_t window) {
    const Quad<T, V> quad(image, walk, window, behind, x);
    quad.each([&](std::size_t offset, const Floats<V>& values, Floats<V> gradients) {
#pragma unroll
      for (int i = 0; i < V; ++i) gradients[i] = before[i](gradients[i], values[i]);
      store<V>(x_gradient + offset, gradients);
    });
  });
}

/// launch.operator()<T, V>().
template <class Launch>
void dispatch_pool(const Context& context, const PoolShape& shape, const Launch& launch) {
  if (!fuses_pool(context, shape)) throw UnsupportedOperation("a pool that is not fused");
  dispatch(context.precision, true, [&]<class T, int V>() {
    if constexpr (V > 1) launch.template operator()<T, V>();
  });
}

}  // namespace

bool fuses_pool(const Context& context, const PoolShape& shape) {
  return context.format == Format::nhwc && shape.kernel == 3 && shape.stride == 2 &&
         shape.padding == 1 && can_be_wide(context, shape.in);
}

void batch_norm_max_pool(const Context& context, const PoolShape& shape, const void* x,
                         const BatchNorm& norm, void* y, std::uint8_t* chosen,
                         cudaStream_t stream) {
  dispatch_pool(context, shape, [&]<class T, int V>() {
    const Layout layout = Layout::of<V, Format::nhwc>(shape.out(), context.multiprocessors);
    normalize_and_pool<T, V><<<layout.blocks, block_threads, 0, stream>>>(
        layout, Pooled(shape), static_cast<const T*>(x), norm, static_cast<T*>(y), chosen);
  });
  check_launch("normalize_and_pool");
}

void batch_norm_max_pool_gradient(const Context& context, const PoolShape& shape, const void* x,
                                  const std::uint8_t* chosen, const void* y_gradient,
                                  const void* more_y_gradient, const BatchNorm& norm,
                                  void* x_gradient, cudaStream_t stream) {
  dispatch_pool(context, shape, [&]<class T, int V>() {
    const BehindPool<T> behind{chosen, static_cast<const T*>(y_gradient),
                               static_cast<const T*>(more_y_gradient)};
    const auto* in = static_cast<const T*>(x);
    constexpr int few =
        4;  // Channels of a thread: four windows of eight have no room in registers.
    const Layout layout = Layout::of<few, Format::nhwc>(shape.out(), context.multiprocessors);
    auto* partials = context.scratch<Sums>(std::size_t{layout.blocks.x} * layout.channels);
    pooled_gradient_sums<T, few><<<layout.blocks, block_threads, 0, stream>>>(
        layout, Pooled(shape), in, behind, norm, partials);
    check_launch("pooled_gradient_sums");
    launch_fold(partials, layout.blocks.x, layout.channels,
                FinishSums{norm, nullptr, layout.channels}, stream);
    pooled_gradient_before<T, few><<<layout.blocks, block_threads, 0, stream>>>(
        layout, Pooled(shape), in, behind, norm,
        {shape.in, 1, norm.beta_gradient, norm.gamma_gradient}, static_cast<T*>(x_gradient));
  });
  check_launch("pooled_gradient_before");
}

}  // namespace resnet::cudnn
