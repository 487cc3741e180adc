// SPDX-License-Identifier: Apache-2.0
#pragma once

// Catch2, version 2 or 3, and how it shows a cudaError_t: by its name. Every test includes this and
// not Catch2 itself.
//
//   REQUIRE_CUDA(cudaMalloc(&data, 64));                       // ends the test unless cudaSuccess
//   CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);       // any other answer is shown by name

#include <cuda_runtime_api.h>

#if PENSTOCK_CATCH2_VERSION == 3  // of the package that CMake found
#include <catch2/catch_all.hpp>
using Catch::Approx;  // as version 2 has it
#else
#include <catch2/catch.hpp>
#endif

#include <string>

template <>
struct Catch::StringMaker<cudaError_t> {
  static std::string convert(cudaError_t status) { return cudaGetErrorName(status); }
};

/// The call must succeed; the test ends here if it does not. Only on the thread of the test.
#define REQUIRE_CUDA(call) REQUIRE((call) == cudaSuccess)
/// The call must succeed; the test goes on if it does not. Only on the thread of the test.
#define CHECK_CUDA(call) CHECK((call) == cudaSuccess)
