// SPDX-License-Identifier: Apache-2.0

// The second source of the program that includes all headers: what they define exists once.

#include <array>
#include <cstdio>

#include "batch.hpp"

bool arrive_in_order(const Batch& batch, int& arrived, const penstock::Stream& stream) {
  std::array<int, 4> numbers{};
  cudaMemcpyAsync(numbers.data(), batch.numbers.data_handle(), sizeof numbers,
                  cudaMemcpyDeviceToHost, stream.get());
  stream.synchronize();
  for (const int number : numbers) {
    if (number != arrived++) return std::fprintf(stderr, "%d came out of turn\n", number), false;
  }
  return true;
}
