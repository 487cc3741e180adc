// SPDX-License-Identifier: Apache-2.0

// What a program over the CUDA runtime says where there is no GPU: CTest hides those that there
// are.

#include <cstdio>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>

int main() {
  try {
    const penstock::Stream stream;
    std::puts("there is a GPU");
  } catch (const penstock::CudaError& error) {
    std::puts(error.what());
  }
}
