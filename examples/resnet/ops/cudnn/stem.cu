// SPDX-License-Identifier: Apache-2.0

// An implicit matrix product on tensor cores: rows are pixels of the convolution, columns its 64
// channels. What a pixel reads of an input row, 7 pixels of 4 channels, is one run of memory, and
// with an eighth pixel (whose weights are zero) 32 numbers long: two steps of 16. The next pixel's
// run begins 16 bytes later. So the rows of a matrix lie in shared memory as the image does, one
// over the other, and nothing is rearranged: ldmatrix takes any 16 bytes as a row.
//
// A block has a strip of an image: up to 112 pixels wide, some rows of the pool high. It goes down
// the strip by one row of the pool, that is by two of the convolution, which a warp computes for
// 16 pixels and all channels. The larger of three rows is found in registers, as a warp keeps the
// last row of before; the larger of three columns through shared memory. Meanwhile the next four
// input rows come, into a ring of sixteen.

#include "stem.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "context.hpp"
#include "numbers.cuh"

namespace resnet::cudnn {

namespace {

constexpr int channels = 4, outputs = 64, kernel = 7;
constexpr int warps = 7, threads = 32 * warps, columns = 16 * warps;
constexpr int pixels = 2 * columns + 8;  ///< of an input row: with the kernel's edges, and one more
constexpr int pixel_bytes = 2 * channels, row_bytes = pixels * pixel_bytes;
constexpr int ring = 16;                    ///< input rows
constexpr int run_bytes = 8 * pixel_bytes;  ///< of a row, that one output reads
// 16 bytes more than there are numbers: eight rows then begin in different banks.
constexpr int weights_pitch = kernel * run_bytes + 16, pool_pitch = 2 * outputs + 16;

constexpr int weights_bytes = outputs * weights_pitch, pool_bytes = columns * pool_pitch;
constexpr int shared_bytes = ring * row_bytes + weights_bytes + 2 * pool_bytes;

struct Shape {
  int h, w;  ///< of the input
  int conv_h, conv_w, out_h, out_w;
  int strip_rows;  ///< of the pool, that a block has
};

/// Columns of the pool that a block has. The first tile's left edge is padding; others compute a
/// column more there.
struct Tile {
  int first, count;  ///< of the pool
  int column;        ///< the first of the convolution

  static constexpr int widest = columns / 2, other = widest - 1;
  __device__ Tile(const Shape& shape, int index)
      : first(index == 0 ? 0 : widest + other * (index - 1)),
        count(min(index == 0 ? widest : other, shape.out_w - first)),
        column(index == 0 ? 0 : 2 * first - 1) {}
  static int number(int out_w) {
    return out_w <= widest ? 1 : 1 + (out_w - widest + other - 1) / other;
  }
};

template <class T>
struct Pair;
template <>
struct Pair<__half> {
  using Type = __half2;
  __device__ static Type of(float a, float b) { return __floats2half2_rn(a, b); }
};
template <>
struct Pair<__nv_bfloat16> {
  using Type = __nv_bfloat162;
  __device__ static Type of(float a, float b) { return __floats2bfloat162_rn(a, b); }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

__device__ inline std::uint32_t address_of(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// 8 bytes of global memory, or zeros. They are there behind wait_for_copies().
__device__ inline void copy(std::uint32_t to, const void* from, bool there) {
  const int bytes = there ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Four matrices of 8 x 8 numbers of 16 bits. Lane i names the i-th row of all.
__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

/// sums (16 x 8) += a (16 x 16) b (16 x 8).
__device__ inline void multiply(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1, __half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1, __nv_bfloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// What a block does, one row of the pool after the other.
template <class T>
class Strip {
 public:
  using Two = typename Pair<T>::Type;

  __device__ Strip(const Shape& shape, const T* x, const float* bias, T* y, char* shared)
      : shape_(shape),
        tile_(shape, static_cast<int>(blockIdx.x)),
        x_(x + std::size_t{blockIdx.z} * shape.h * shape.w * channels),
        bias_(bias),
        y_(y + std::size_t{blockIdx.z} * shape.out_h * shape.out_w * outputs),
        rows_(address_of(shared)),
        weights_(rows_ + ring * row_bytes),
        pool_(shared + ring * row_bytes + weights_bytes) {}

  __device__ void load_weights(const T* weights) const {
    constexpr int runs = outputs * kernel;
    for (int i = static_cast<int>(threadIdx.x); i < runs * 8; i += threads) {
      const int run = i / 8, tap = i % 8;
      copy(weights_ + run / kernel * weights_pitch + run % kernel * run_bytes + tap * pixel_bytes,
           weights + (run * kernel + min(tap, kernel - 1)) * channels, tap < kernel);
    }
  }

  /// Of the input, from `first` on: rows and pixels outside the image are zeros.
  __device__ void load_rows(int first, int count) const {
    const int left = 2 * tile_.column - 3;
    for (int h = first; h < first + count; ++h)
      for (int i = static_cast<int>(threadIdx.x); i < pixels; i += threads) {
        const int w = left + i;
        const bool there = h >= 0 && h < shape_.h && w >= 0 && w < shape_.w;
        copy(row(h) + i * pixel_bytes, there ? x_ + (std::size_t(h) * shape_.w + w) * channels : x_,
             there);
      }
  }

  /// The first row of the input that a row of the pool needs.
  __device__ static int first_row(int pooled) { return 4 * pooled - 3; }

  /// Two rows of the convolution, and the largest of each column in these and the one before.
  __device__ void compute(int pooled) {
    if (tile_.column + warp() * 16 >= shape_.conv_w) return;
    float sums[2][outputs / 8][4];
    begin_sums(sums);
    const std::uint32_t run = static_cast<std::uint32_t>(warp() * 16 + lane() % 16) * 16 +
                              static_cast<std::uint32_t>(lane() / 16) * 16;
    const std::uint32_t weights =
        weights_ + (lane() % 8 + lane() / 16 * 8) * weights_pitch + lane() / 8 % 2 * 16;
#pragma unroll
    for (int r = 0; r < kernel; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t a[2][4];
        load_matrices(a[0], row(first_row(pooled) + r) + run + half * 32);
        load_matrices(a[1], row(first_row(pooled) + r + 2) + run + half * 32);
#pragma unroll
        for (int sixteen = 0; sixteen < outputs / 16; ++sixteen) {
          std::uint32_t b[4];
          load_matrices(b, weights + sixteen * 16 * weights_pitch + r * run_bytes + half * 32);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            multiply(sums[i][2 * sixteen], a[i], b[0], b[1], T());
            multiply(sums[i][2 * sixteen + 1], a[i], b[2], b[3], T());
          }
        }
      }
    keep_largest(sums, pooled);
  }

  /// The largest of three columns, to memory. Behind a barrier after compute().
  __device__ void store(int pooled) const {
    const char* largest = pool_ + pooled % 2 * pool_bytes;
    for (int i = static_cast<int>(threadIdx.x); i < tile_.count * (outputs / 8); i += threads) {
      const int out = i / (outputs / 8), eight = i % (outputs / 8) * 16;
      const int middle = 2 * (tile_.first + out) - tile_.column;
      Eight values = eight_at(largest, middle, eight);
      if (middle > 0) values = larger(values, eight_at(largest, middle - 1, eight));
      if (tile_.column + middle + 1 < shape_.conv_w)
        values = larger(values, eight_at(largest, middle + 1, eight));
      char* to = reinterpret_cast<char*>(
          y_ + (std::size_t(pooled) * shape_.out_w + tile_.first + out) * outputs);
      *reinterpret_cast<Eight*>(to + eight) = values;
    }
  }

 private:
  struct alignas(16) Eight {
    Two two[4];
  };

  __device__ static int warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  __device__ std::uint32_t row(int h) const {
    return rows_ + (h & (ring - 1)) * row_bytes;
  }

  __device__ static Eight eight_at(const char* largest, int column, int bytes) {
    return *reinterpret_cast<const Eight*>(largest + column * pool_pitch + bytes);
  }
  __device__ static Eight larger(Eight a, const Eight& b) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a.two[i] = __hmax2_nan(a.two[i], b.two[i]);
    return a;
  }

  /// A lane has columns lane / 4 and 8 more, and of each 8 channels the pair lane % 4.
  __device__ void begin_sums(float (&sums)[2][outputs / 8][4]) const {
#pragma unroll
    for (int eight = 0; eight < outputs / 8; ++eight) {
      const float2 bias = __ldg(reinterpret_cast<const float2*>(bias_ + eight * 8) + lane() % 4);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        sums[i][eight][0] = sums[i][eight][2] = bias.x;
        sums[i][eight][1] = sums[i][eight][3] = bias.y;
      }
    }
  }

  /// ReLU leaves nothing below zero: zeros stand for rows that are not there.
  __device__ void keep_largest(const float (&sums)[2][outputs / 8][4], int pooled) {
    const Two zeros = Pair<T>::of(0, 0);
    const bool last_is_there = 2 * pooled + 1 < shape_.conv_h;
    char* largest =
        pool_ + pooled % 2 * pool_bytes + (warp() * 16 + lane() / 4) * pool_pitch + lane() % 4 * 4;
#pragma unroll
    for (int eight = 0; eight < outputs / 8; ++eight)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto rectified = [&](const float(&from)[4]) {
          return __hmax2_nan(Pair<T>::of(from[2 * i], from[2 * i + 1]), zeros);
        };
        const Two first = rectified(sums[0][eight]);
        const Two last = last_is_there ? rectified(sums[1][eight]) : zeros;
        *reinterpret_cast<Two*>(largest + i * 8 * pool_pitch + eight * 16) =
            __hmax2_nan(__hmax2_nan(before_[eight][i], first), last);
        before_[eight][i] = last;
      }
  }

  const Shape& shape_;
  Tile tile_;
  const T* x_;
  const float* bias_;
  T* y_;
  std::uint32_t rows_, weights_;  ///< in shared memory
  char* pool_;
  Two before_[outputs / 8][2] = {};  ///< the last row of the convolution
};

#endif

template <class T>
__global__ void __launch_bounds__(threads, 2)
    stem_kernel(Shape shape, const T* x, const T* weights, const float* bias, T* y) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) char shared[];
  Strip<T> strip(shape, x, bias, y, shared);
  const int begin = static_cast<int>(blockIdx.y) * shape.strip_rows;
  const int end = min(begin + shape.strip_rows, shape.out_h);
  const int first = max(begin - 1, 0);  // for the row of the convolution before the strip
  strip.load_weights(weights);
  strip.load_rows(strip.first_row(first), 9);
  wait_for_copies();
  __syncthreads();
  for (int pooled = first; pooled < end; ++pooled) {
    if (pooled + 1 < end) strip.load_rows(strip.first_row(pooled) + 9, 4);
    strip.compute(pooled);
    wait_for_copies();
    __syncthreads();
    if (pooled >= begin) strip.store(pooled);
  }
#endif
}

/// Of code that is compiled for devices before 8.0 the body is empty.
template <class T>
bool is_compiled() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, stem_kernel<T>) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return attributes.ptxVersion >= 80;
}

template <class T>
void allow_shared_memory() {
  penstock::detail::check(
      cudaFuncSetAttribute(stem_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           shared_bytes),
      "cudaFuncSetAttribute");
}

}  // namespace

bool stem_is_supported(const InferenceConvolution& what, Format format, const PoolShape& pool) {
  const ConvolutionShape& shape = what.shape;
  const bool narrow = what.precision == Precision::fp16 || what.precision == Precision::bf16;
  const bool convolution = shape.in.c == channels && shape.k == outputs && shape.kernel == kernel &&
                           shape.stride == 2 && shape.padding == 3 && what.relu && !what.residual;
  const bool pooling =
      pool.in == shape.out() && pool.kernel == 3 && pool.stride == 2 && pool.padding == 1;
  const bool small = shape.in.n < 65536 && shape.in.h < 65536 && shape.in.w < 65536;  // of a grid
  if (!narrow || what.result != what.precision || format != Format::nhwc) return false;
  return convolution && pooling && small &&
         (what.precision == Precision::fp16 ? is_compiled<__half>() : is_compiled<__nv_bfloat16>());
}

void prepare_stem() {
  allow_shared_memory<__half>();
  allow_shared_memory<__nv_bfloat16>();
}

void stem(const InferenceConvolution& what, const PoolShape& pool, const void* x,
          const ConvolutionOperands& operands, void* y, int multiprocessors, cudaStream_t stream) {
  const Extents in = what.shape.in, between = what.shape.out(), out = pool.out();
  const auto tiles = Tile::number(static_cast<int>(out.w));
  // Two blocks are resident on a multiprocessor: as many as there is room for, if there is work.
  const std::int64_t wanted = in.n * tiles * out.h / (2 * std::int64_t{multiprocessors});
  const std::int64_t rows = std::clamp<std::int64_t>(wanted, 1, out.h);
  const Shape shape{static_cast<int>(in.h),      static_cast<int>(in.w),
                    static_cast<int>(between.h), static_cast<int>(between.w),
                    static_cast<int>(out.h),     static_cast<int>(out.w),
                    static_cast<int>(rows)};
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>((out.h + rows - 1) / rows),
                  static_cast<unsigned>(in.n));
  const auto launch = [&]<class T>(T) {
    stem_kernel<T><<<grid, threads, shared_bytes, stream>>>(shape, static_cast<const T*>(x),
                                                            static_cast<const T*>(operands.weights),
                                                            operands.bias, static_cast<T*>(y));
  };
  if (what.precision == Precision::fp16)
    launch(__half());
  else
    launch(__nv_bfloat16());
  check_launch("stem");
}

}  // namespace resnet::cudnn
