// SPDX-License-Identifier: Apache-2.0

// Over the real CUDA runtime the tests run where there is a GPU, and are skipped elsewhere.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "runtime.hpp"

namespace penstock::test {

constexpr int skipped = 77;  // SKIP_RETURN_CODE of the CTest tests

int before_tests() {
  // Loading a kernel, also one of the driver's own, on its first use may wait for a stream that a
  // gate holds.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaSuccess && devices > 0) return 0;
  std::fprintf(stderr, "skipped, no GPU: %s\n", cudaGetErrorString(status));
  return skipped;
}

int after_tests() {
  return 0;
}

}  // namespace penstock::test
