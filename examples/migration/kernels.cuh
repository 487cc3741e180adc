// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of steps 2 to 5. Each goes through all values in strides of the whole grid.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "pixels.hpp"

namespace migration {

inline void check(cudaError_t status) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
}

/// Uninitialised device memory. cudaFree frees it.
template <class T>
T* device_array(int count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(count) * sizeof(T)));
  return static_cast<T*>(memory);
}

inline constexpr int kBlocks = 1024, kThreads = 256;

__global__ void blur_rows(const std::uint8_t* pixels, std::uint16_t* rows, Shape shape) {
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < shape.values();
       i += threads)
    rows[i] = blurred_in_row(pixels + i, i / 3 % shape.width, shape);
}

__global__ void blur_columns(const std::uint16_t* rows, std::uint8_t* blurred, Shape shape) {
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < shape.values();
       i += threads)
    blurred[i] = blurred_in_column(rows + i, i / (3 * shape.width) % shape.height, shape);
}

/// Adds to `counts`, of kBins for each image.
__global__ void count_values(const std::uint8_t* blurred, std::uint32_t* counts, Shape shape) {
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  const int values_of_image = shape.values() / shape.images;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < shape.values();
       i += threads)
    atomicAdd(&counts[i / values_of_image * kBins + i % 3 * 256 + blurred[i]], 1);
}

}  // namespace migration
