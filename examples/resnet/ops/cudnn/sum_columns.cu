// SPDX-License-Identifier: Apache-2.0

#include "linear.hpp"
#include "numbers.cuh"

namespace resnet::cudnn {

namespace {

constexpr unsigned columns_each = 32, rows_each = 8;

/// A block has 32 columns, and 8 threads for each.
__global__ void column_sums(const float* matrix, std::uint32_t rows, std::uint32_t columns,
                            float* sums) {
  __shared__ float shared[rows_each][columns_each];
  const std::uint32_t column = blockIdx.x * columns_each + threadIdx.x;
  float sum = 0;
  if (column < columns)
    for (std::uint32_t row = threadIdx.y; row < rows; row += rows_each)
      sum += matrix[std::size_t{row} * columns + column];
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (unsigned row = 1; row < rows_each; ++row) sum += shared[row][threadIdx.x];
  sums[column] = sum;
}

}  // namespace

void sum_columns(const float* matrix, std::int64_t rows, std::int64_t columns, float* sums,
                 cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((columns + columns_each - 1) / columns_each);
  column_sums<<<blocks, dim3(columns_each, rows_each), 0, stream>>>(
      matrix, static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns), sums);
  check_launch("column_sums");
}

}  // namespace resnet::cudnn
