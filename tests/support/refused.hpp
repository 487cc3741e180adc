// SPDX-License-Identifier: Apache-2.0
#pragma once

// Calls that CUDA refuses:
//
//   CHECK(refused(cudaGraphDestroy(nullptr), cudaErrorInvalidValue));

#include "catch.hpp"

namespace penstock::test {

/// Whether the call returned this error, and it is the last one, which is forgotten.
inline bool refused(cudaError_t status, cudaError_t expected) {
  return status == expected && cudaGetLastError() == expected;
}

}  // namespace penstock::test
