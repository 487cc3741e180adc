// SPDX-License-Identifier: Apache-2.0
#pragma once

// check(cudaMalloc(&memory, bytes), "cudaMalloc"): throws penstock::CudaError unless the call
// succeeded.

#include <cuda_runtime_api.h>

#include <penstock/error.hpp>
#include <string>

namespace examples {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    throw penstock::CudaError(status, std::string(call) + " failed: " + cudaGetErrorString(status));
}

}  // namespace examples
