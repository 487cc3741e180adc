// SPDX-License-Identifier: Apache-2.0

// A GPU tells how much of its memory is taken, and no more. It counts other processes' memory too.

#include <cuda_runtime_api.h>

#include <penstock/error.hpp>

#include "vitals.hpp"

namespace penstock::test {

std::vector<ObjectCount> cuda_objects() {
  std::size_t free = 0, all = 0;
  detail::check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return {{"device bytes", all - free}};
}

}  // namespace penstock::test
