// SPDX-License-Identifier: Apache-2.0
#pragma once

// launch_bulk(n, op, stream): calls op(i) for each i in [0, n), n > 0, in one kernel. Only nvcc
// compiles it. It uses CUB's function of CUDA 12.5 or newer, with a fallback for CUDA 12.4.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#if __has_include(<cub/device/device_for.cuh>)
#include <cub/device/device_for.cuh>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

template <class Op>
cudaError_t launch_bulk(std::int64_t n, Op op, cudaStream_t stream) {
  return cub::DeviceFor::Bulk(n, std::move(op), stream);
}

}  // namespace penstock::detail

#else

namespace penstock::inline PENSTOCK_ABI::detail {

template <class Op>
__global__ void bulk_kernel(std::int64_t n, Op op) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step)
    op(i);
}

template <class Op>
cudaError_t launch_bulk(std::int64_t n, Op op, cudaStream_t stream) {
  constexpr std::int64_t threads = 256, most_blocks = INT32_MAX;
  const std::int64_t blocks = n / threads + (n % threads != 0);
  const auto grid = static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks);
  bulk_kernel<<<grid, static_cast<unsigned>(threads), 0, stream>>>(n, std::move(op));
  return cudaGetLastError();
}

}  // namespace penstock::detail

#endif
