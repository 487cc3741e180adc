// SPDX-License-Identifier: Apache-2.0

#include "inference_kernels.hpp"

#include <type_traits>

#include "numbers.cuh"

namespace resnet::cudnn {

__device__ inline float to_float(std::int8_t value) {
  return static_cast<float>(value);
}
__device__ inline float to_float(std::int32_t value) {
  return static_cast<float>(value);
}
__device__ inline float to_float(std::uint8_t value) {
  return static_cast<float>(value);
}

template <>
__device__ inline std::int8_t from_float<std::int8_t>(float value) {
  return static_cast<std::int8_t>(__float2int_rn(fminf(fmaxf(value, -128.0f), 127.0f)));
}

namespace {

/// V neighbours as floats. (numbers.cuh's load does not see the conversions above.)
template <int V, class T>
__device__ Floats<V> read(const T* memory) {
  const auto pack = *reinterpret_cast<const Pack<T, V>*>(memory);
  Floats<V> floats;
#pragma unroll
  for (int i = 0; i < V; ++i) floats[i] = to_float(pack.value[i]);
  return floats;
}

template <int V, class T>
__device__ void write(T* memory, const Floats<V>& floats) {
  Pack<T, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) pack.value[i] = from_float<T>(floats[i]);
  *reinterpret_cast<Pack<T, V>*>(memory) = pack;
}

// ---- Behind a convolution -----------------------------------------------------------------------

/// Of the packs of an activation, in the order of its memory.
struct Channels {
  std::uint32_t count;  ///< of them
  std::uint32_t plane;  ///< packs of one channel in one image: nchw; 0: nhwc

  /// Of a pack's first element.
  template <int V>
  __device__ std::uint32_t first(std::uint32_t pack) const {
    return plane == 0 ? pack * V % count : pack / plane % count;
  }
  __device__ std::uint32_t step() const { return plane == 0 ? 1 : 0; }
};

template <int V, class X, class Y, class R>
__global__ void finish_kernel(Channels channels, std::uint32_t packs, Finish what) {
  const std::uint32_t pack = thread_index();
  if (pack >= packs) return;
  const std::size_t at = std::size_t{pack} * V;
  const std::uint32_t first = channels.first<V>(pack), step = channels.step();
  Floats<V> values = read<V>(static_cast<const X*>(what.x) + at);
  Floats<V> residual{};
  if (what.residual != nullptr) residual = read<V>(static_cast<const R*>(what.residual) + at);
  const float residual_scale = what.residual_scale == nullptr ? 1 : *what.residual_scale;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const std::uint32_t channel = first + static_cast<std::uint32_t>(i) * step;
    float value = values[i];
    if (what.scale != nullptr) value *= what.scale[channel];
    if (what.bias != nullptr) value += what.bias[channel];
    if (what.residual != nullptr) value += residual_scale * residual[i];
    values[i] = what.relu && value < 0 ? 0 : value;
  }
  write<V>(static_cast<Y*>(what.y) + at, values);
}

template <class X, class Y, class R>
void launch_finish(Format format, const Extents& extents, const Finish& what, cudaStream_t stream) {
  constexpr int wide = 4;  // numbers: int32, the largest, in 16 bytes
  const std::int64_t run = format == Format::nhwc ? extents.c : extents.h * extents.w;
  const auto with = [&]<int V>() {
    const std::int64_t packs = extents.count() / V;
    const std::int64_t plane = format == Format::nhwc ? 0 : run / V;
    finish_kernel<V, X, Y, R><<<blocks_for(packs), block_threads, 0, stream>>>(
        Channels{static_cast<std::uint32_t>(extents.c), static_cast<std::uint32_t>(plane)},
        static_cast<std::uint32_t>(packs), what);
  };
  // pack * V stays below 2^32: blocks_for refuses more.
  if (run % wide == 0 && aligned({what.x, what.y, what.residual}) &&
      extents.count() <= std::int64_t{0xffffffff})
    with.template operator()<wide>();
  else
    with.template operator()<1>();
  check_launch("finish");
}

}  // namespace

Number number_of(Precision precision) {
  switch (precision) {
    case Precision::fp16:
      return Number::fp16;
    case Precision::bf16:
      return Number::bf16;
    case Precision::int8:
      return Number::int8;
    default:
      return Number::fp32;
  }
}

std::size_t bytes_of(Number number) {
  switch (number) {
    case Number::int8:
      return 1;
    case Number::fp16:
    case Number::bf16:
      return 2;
    default:
      return 4;
  }
}

void finish(Format format, const Extents& extents, const Finish& what, cudaStream_t stream) {
  const auto is = [&](Number x, Number y, Number residual) {
    return what.x_number == x && what.y_number == y &&
           (what.residual == nullptr || what.residual_number == residual);
  };
  using enum Number;
  if (is(fp32, fp32, fp32))
    return launch_finish<float, float, float>(format, extents, what, stream);
  if (is(fp16, fp16, fp16))
    return launch_finish<__half, __half, __half>(format, extents, what, stream);
  if (is(bf16, bf16, bf16))
    return launch_finish<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16>(format, extents, what,
                                                                      stream);
  // int8: in one kernel, and in three.
  if (is(int32, int8, int8))
    return launch_finish<std::int32_t, std::int8_t, std::int8_t>(format, extents, what, stream);
  if (is(int32, fp32, int8))
    return launch_finish<std::int32_t, float, std::int8_t>(format, extents, what, stream);
  if (is(fp32, fp32, int8))
    return launch_finish<float, float, std::int8_t>(format, extents, what, stream);
  if (is(fp32, int8, int8))
    return launch_finish<float, std::int8_t, std::int8_t>(format, extents, what, stream);
  // The first convolution of a network in int8.
  if (is(fp16, int8, int8))
    return launch_finish<__half, std::int8_t, std::int8_t>(format, extents, what, stream);
  throw UnsupportedOperation("a convolution's results in such a precision");
}

// ---- Is a convolution of int8 right? ------------------------------------------------------------

namespace {

struct Convolved {
  std::int64_t c, h, w, k, out_h, out_w, kernel, stride, padding;
};

/// A thread for one output of nhwc: every step-th.
__global__ void count_wrong_sums_kernel(Convolved shape, std::int64_t outputs, std::int64_t step,
                                        const std::int8_t* x, const std::int8_t* weights,
                                        const std::int32_t* sums, int* wrong) {
  const std::int64_t output = std::int64_t{thread_index()} * step;
  if (output >= outputs) return;
  const std::int64_t k = output % shape.k, pixel = output / shape.k, q = pixel % shape.out_w,
                     p = pixel / shape.out_w % shape.out_h, n = pixel / shape.out_w / shape.out_h;
  std::int32_t sum = 0;
  for (std::int64_t r = 0; r < shape.kernel; ++r)
    for (std::int64_t s = 0; s < shape.kernel; ++s) {
      const std::int64_t h = p * shape.stride + r - shape.padding,
                         w = q * shape.stride + s - shape.padding;
      if (h < 0 || h >= shape.h || w < 0 || w >= shape.w) continue;
      const std::int8_t* from = x + ((n * shape.h + h) * shape.w + w) * shape.c;
      const std::int8_t* by = weights + ((k * shape.kernel + r) * shape.kernel + s) * shape.c;
      for (std::int64_t c = 0; c < shape.c; ++c) sum += std::int32_t{from[c]} * std::int32_t{by[c]};
    }
  if (sums[output] != sum) atomicAdd(wrong, 1);
}

}  // namespace

void count_wrong_sums(const ConvolutionShape& shape, const void* x, const void* weights,
                      const void* sums, int* wrong, cudaStream_t stream) {
  constexpr std::int64_t samples = 4096;
  const Extents in = shape.in, out = shape.out();
  // Odd, so that it meets every channel where their number is a power of two.
  const std::int64_t step = out.count() / samples | 1;
  count_wrong_sums_kernel<<<blocks_for((out.count() + step - 1) / step), block_threads, 0,
                            stream>>>(
      {in.c, in.h, in.w, shape.k, out.h, out.w, shape.kernel, shape.stride, shape.padding},
      out.count(), step, static_cast<const std::int8_t*>(x),
      static_cast<const std::int8_t*>(weights), static_cast<const std::int32_t*>(sums), wrong);
  check_launch("count_wrong_sums");
}

// ---- Pooling ------------------------------------------------------------------------------------

namespace {

struct Window {
  std::uint32_t channels, in_h, in_w, out_h, out_w;
  int kernel, stride, padding;
  bool channels_last;

  Window(const PoolShape& shape, Format format)
      : channels(static_cast<std::uint32_t>(shape.in.c)),
        in_h(static_cast<std::uint32_t>(shape.in.h)),
        in_w(static_cast<std::uint32_t>(shape.in.w)),
        out_h(static_cast<std::uint32_t>(shape.out().h)),
        out_w(static_cast<std::uint32_t>(shape.out().w)),
        kernel(static_cast<int>(shape.kernel)),
        stride(static_cast<int>(shape.stride)),
        padding(static_cast<int>(shape.padding)),
        channels_last(format == Format::nhwc) {}
};

/// One output pixel's V channels (nhwc), or one output (nchw, where V is 1). A maximum rounds
/// nothing: numbers are compared as floats.
template <int V, class T>
__global__ void max_pool_values_kernel(Window window, std::uint32_t packs, const T* x, T* y) {
  const std::uint32_t pack = thread_index();
  if (pack >= packs) return;
  std::uint32_t rest = pack, c = 0;
  const std::uint32_t wide = window.channels / V;
  if (window.channels_last) c = rest % wide * V, rest /= wide;
  const std::uint32_t out_w = rest % window.out_w;
  rest /= window.out_w;
  const std::uint32_t out_h = rest % window.out_h;
  rest /= window.out_h;  // nhwc: the image; nchw: image and channel
  Floats<V> best{};
  bool first = true;
  for (int r = 0; r < window.kernel; ++r)
    for (int s = 0; s < window.kernel; ++s) {
      // In the padding, at -1, the unsigned numbers are beyond the extents as well.
      const std::uint32_t h = out_h * window.stride + r - window.padding;
      const std::uint32_t w = out_w * window.stride + s - window.padding;
      if (h >= window.in_h || w >= window.in_w) continue;
      const std::size_t pixel = (std::size_t{rest} * window.in_h + h) * window.in_w + w;
      const Floats<V> values =
          read<V>(x + (window.channels_last ? pixel * window.channels + c : pixel));
#pragma unroll
      for (int i = 0; i < V; ++i)
        if (first || values[i] > best[i] || isnan(values[i])) best[i] = values[i];
      first = false;
    }
  write<V>(y + std::size_t{pack} * V, best);
}

template <class T>
void launch_max_pool(const PoolShape& shape, Format format, const void* x, void* y,
                     cudaStream_t stream) {
  constexpr int wide = 16 / sizeof(T) < 8 ? 16 / sizeof(T) : 8;
  const std::int64_t count = shape.out().count();
  const auto with = [&]<int V>() {
    max_pool_values_kernel<V><<<blocks_for(count / V), block_threads, 0, stream>>>(
        Window(shape, format), static_cast<std::uint32_t>(count / V), static_cast<const T*>(x),
        static_cast<T*>(y));
  };
  if (format == Format::nhwc && shape.in.c % wide == 0 && aligned({x, y}))
    with.template operator()<wide>();
  else
    with.template operator()<1>();
  check_launch("max_pool_values");
}

/// A thread has V channels of one image. Sums of int8 are exact in int32.
template <int V>
__global__ void average_int8(std::uint32_t channels, std::uint32_t pixels, std::uint32_t packs,
                             const std::int8_t* x, float scale, __half* y) {
  const std::uint32_t pack = thread_index();
  if (pack >= packs) return;
  const std::uint32_t wide = channels / V, image = pack / wide, channel = pack % wide * V;
  std::int32_t sums[V] = {};
  for (std::uint32_t pixel = 0; pixel < pixels; ++pixel) {
    const std::int8_t* from = x + (std::size_t{image} * pixels + pixel) * channels + channel;
    const auto values = *reinterpret_cast<const Pack<std::int8_t, V>*>(from);
#pragma unroll
    for (int i = 0; i < V; ++i) sums[i] += values.value[i];
  }
  Floats<V> means;
#pragma unroll
  for (int i = 0; i < V; ++i)
    means[i] = scale * (static_cast<float>(sums[i]) / static_cast<float>(pixels));
  write<V>(y + std::size_t{image} * channels + channel, means);
}

}  // namespace

void max_pool_values(const PoolShape& shape, Precision precision, Format format, const void* x,
                     void* y, cudaStream_t stream) {
  if (precision == Precision::int8)
    return launch_max_pool<std::int8_t>(shape, format, x, y, stream);
  dispatch(precision, false,
           [&]<class T, int V>() { launch_max_pool<T>(shape, format, x, y, stream); });
}

void average_pool_int8(const Extents& extents, const void* x, float scale, void* y,
                       cudaStream_t stream) {
  const auto with = [&]<int V>() {
    const std::int64_t packs = extents.n * extents.c / V;
    average_int8<V><<<blocks_for(packs), block_threads, 0, stream>>>(
        static_cast<std::uint32_t>(extents.c), static_cast<std::uint32_t>(extents.h * extents.w),
        static_cast<std::uint32_t>(packs), static_cast<const std::int8_t*>(x), scale,
        static_cast<__half*>(y));
  };
  if (extents.c % 4 == 0 && aligned({x, y}))
    with.template operator()<4>();
  else
    with.template operator()<1>();
  check_launch("average_pool_int8");
}

// ---- Images -------------------------------------------------------------------------------------

namespace {

/// Factors and offsets travel as arguments: there is nothing to copy.
struct Conversion {
  std::uint32_t channels, padded, pixels;  ///< of an image
  bool from_nhwc, to_nhwc;
  bool whole;  ///< four channels side by side: one store for a pixel
  float factor[4], offset[4];
};

/// One pixel, all of its channels.
template <class In, class Out>
__global__ void convert_kernel(Conversion what, std::uint32_t all_pixels, const In* images,
                               Out* x) {
  const std::uint32_t index = thread_index();
  if (index >= all_pixels) return;
  const std::uint32_t image = index / what.pixels, pixel = index % what.pixels;
  const auto place = [&](std::uint32_t channels, bool nhwc, std::uint32_t c) {
    return nhwc ? std::size_t{index} * channels + c
                : (std::size_t{image} * channels + c) * what.pixels + pixel;
  };
  const auto converted = [&](std::uint32_t c) {
    return c < what.channels
               ? to_float(images[place(what.channels, what.from_nhwc, c)]) * what.factor[c] +
                     what.offset[c]
               : 0.0f;
  };
  if (what.whole) {
    Floats<4> pixel;
#pragma unroll
    for (std::uint32_t c = 0; c < 4; ++c) pixel[static_cast<int>(c)] = converted(c);
    write<4>(x + std::size_t{index} * 4, pixel);
  } else {
    for (std::uint32_t c = 0; c < what.padded; ++c)
      x[place(what.padded, what.to_nhwc, c)] = from_float<Out>(converted(c));
  }
}

/// Four pixels of three channels, in a plane each or side by side: twelve numbers by three loads,
/// sixteen by stores of 16 bytes.
template <class In, class Out>
__global__ void convert_four_kernel(Conversion what, std::uint32_t packs, const In* images,
                                    Out* x) {
  const std::uint32_t index = thread_index();
  if (index >= packs) return;
  const std::uint32_t wide = what.pixels / 4, image = index / wide, pack = index % wide;
  const In* from = images + (what.from_nhwc ? std::size_t{index} * 12
                                            : (std::size_t{image} * 3 * wide + pack) * 4);
  const std::size_t step = what.from_nhwc ? 4 : what.pixels;
  Pack<In, 4> in[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) in[i] = load_pack<4>(from + static_cast<std::size_t>(i) * step);
  constexpr int wide_out = widest<Out>;
#pragma unroll
  for (int first = 0; first < 16; first += wide_out) {
    Floats<wide_out> out;
#pragma unroll
    for (int i = 0; i < wide_out; ++i) {
      const int pixel = (first + i) / 4, c = (first + i) % 4;
      if (c == 3) {
        out[i] = 0;
        continue;
      }
      const int beside = 3 * pixel + c;
      const In value = what.from_nhwc ? in[beside / 4].value[beside % 4] : in[c].value[pixel];
      out[i] = to_float(value) * what.factor[c] + what.offset[c];
    }
    write<wide_out>(x + std::size_t{index} * 16 + first, out);
  }
}

template <class In>
void launch_convert(const ImageInput& input, const In* images, const Extents& to,
                    Precision precision, Format format, void* x, cudaStream_t stream) {
  Conversion what{static_cast<std::uint32_t>(input.images.c),
                  static_cast<std::uint32_t>(to.c),
                  static_cast<std::uint32_t>(to.h * to.w),
                  input.format == Format::nhwc,
                  format == Format::nhwc,
                  format == Format::nhwc && to.c == 4 && aligned({x}),
                  {},
                  {}};
  if (what.channels > 4) throw UnsupportedOperation("images of more than 4 channels");
  for (std::size_t c = 0; c < what.channels; ++c) {
    what.factor[c] = input.factor[c];
    what.offset[c] = input.offset[c];
  }
  const std::int64_t all_pixels = input.images.n * to.h * to.w;
  const bool by_four = what.whole && what.channels == 3 && what.pixels % 4 == 0 &&
                       reinterpret_cast<std::uintptr_t>(images) % (4 * sizeof(In)) == 0;
  dispatch(precision, false, [&]<class T, int V>() {
    if (by_four)
      convert_four_kernel<<<blocks_for(all_pixels / 4), block_threads, 0, stream>>>(
          what, static_cast<std::uint32_t>(all_pixels / 4), images, static_cast<T*>(x));
    else
      convert_kernel<<<blocks_for(all_pixels), block_threads, 0, stream>>>(
          what, static_cast<std::uint32_t>(all_pixels), images, static_cast<T*>(x));
  });
  check_launch("convert");
}

}  // namespace

void convert(const ImageInput& input, const float* images, const Extents& to, Precision precision,
             Format format, void* x, cudaStream_t stream) {
  launch_convert(input, images, to, precision, format, x, stream);
}

void convert(const ImageInput& input, const std::uint8_t* images, const Extents& to,
             Precision precision, Format format, void* x, cudaStream_t stream) {
  launch_convert(input, images, to, precision, format, x, stream);
}

}  // namespace resnet::cudnn
