// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lanes: what works together on one row. On a GPU they are the threads of a block; on the host
// there is one lane, and rows follow one another. So a kernel is one function for both:
//
//   struct SumRow {
//     const float* values;
//     float* sums;
//     std::int64_t columns;
//     __host__ __device__ void operator()(const Lanes& lanes, std::int64_t row) const {
//       float sum = 0;
//       for (std::int64_t i = lanes.first; i < columns; i += lanes.count)
//         sum += values[row * columns + i];
//       sum = lanes.sum(sum);
//       if (lanes.first == 0) sums[row] = sum;
//     }
//   };
//   for_each_row(stream, rows, SumRow{values, sums, columns});

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <penstock/error.hpp>
#include <penstock/launch.hpp>
#include <string>
#include <type_traits>

namespace gpt {

using BFloat16 = __nv_bfloat16;

/// What is computed with values that are stored as T.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The value as it is computed with.
template <class T>
__host__ __device__ Compute<T> value_of(T stored) {
  return static_cast<Compute<T>>(stored);
}

struct Lanes {
  std::int64_t first =
      0;  ///< the number of this lane: it works on column first, first + count, ...
  std::int64_t count = 1;

  /// The sum over all lanes, which each of them gets. All lanes call it, and what they did in
  /// memory before is seen by each afterwards.
  template <class Value>
  __host__ __device__ Value sum(Value value) const {
#ifdef __CUDA_ARCH__
    return reduce(value, [](Value a, Value b) { return a + b; });
#else
    return value;
#endif
  }
  /// The same for the largest value.
  template <class Value>
  __host__ __device__ Value max(Value value) const {
#ifdef __CUDA_ARCH__
    return reduce(value, [](Value a, Value b) { return a < b ? b : a; });
#else
    return value;
#endif
  }

#ifdef __CUDACC__
 private:
  template <class Value, class Combine>
  static __device__ Value reduce(Value value, Combine combine) {
    constexpr unsigned kWarp = 32, kMostWarps = 32;
    __shared__ Value parts[kMostWarps];
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2)
      value = combine(value, __shfl_xor_sync(~0u, value, distance));
    __syncthreads();  // All lanes have read the parts of an earlier call.
    if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
    __syncthreads();
    Value all = parts[0];
    for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) all = combine(all, parts[warp]);
    return all;
  }
#endif
};

#ifdef __CUDACC__
inline constexpr unsigned kLanes = 256;

template <class Op>
__global__ void __launch_bounds__(kLanes) row_kernel(Op op) {
  op(Lanes{threadIdx.x, kLanes}, static_cast<std::int64_t>(blockIdx.x));
}

/// Calls op(lanes, row) for each row in [0, rows), in stream order. Throws penstock::CudaError.
template <class Op>
void for_each_row(cudaStream_t stream, std::int64_t rows, const Op& op) {
  row_kernel<<<static_cast<unsigned>(rows), kLanes, 0, stream>>>(op);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw penstock::CudaError(status, std::string("a kernel of the GPT could not be launched: ") +
                                          cudaGetErrorString(status));
}
#else
/// Calls op(lanes, row) for each row in [0, rows), in stream order. Throws penstock::CudaError.
template <class Op>
void for_each_row(cudaStream_t stream, std::int64_t rows, const Op& op) {
  penstock::for_each(stream, rows, [op](std::int64_t row) { op(Lanes{}, row); });
}
#endif

}  // namespace gpt
