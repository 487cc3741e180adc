// SPDX-License-Identifier: Apache-2.0
#pragma once

// The check of numbers.hpp as a kernel: is a batch what its samples' numbers say?

#include <cstdint>

#include "support/numbers.hpp"

namespace penstock::test {

/// Checks each payload twice, with work between, so that a slot that is written too early shows.
/// Adds number + 1 of every sample to `sum`, and what is wrong to `torn`.
static __global__ void check_batch(Numbers batch, std::uint64_t* sum, unsigned* torn) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < batch.sample.extent(0);
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    for (int pass = 0; pass < 2; ++pass) {
      const std::uint64_t sample = batch.sample(i);
      for (std::int64_t j = 0; j < kPayload; ++j) {
        std::uint64_t x = (sample + 1) * 0x9E3779B97F4A7C15u +
                          static_cast<std::uint64_t>(j) * 0xD1B54A32D192ED03u;
        x ^= x >> 29;
        if (batch.payload(i, j) != static_cast<std::uint32_t>(x * 0xBF58476D1CE4E5B9u >> 32))
          atomicAdd(torn, 1u);
      }
      if (pass == 0) __nanosleep(1000);
    }
    atomicAdd(reinterpret_cast<unsigned long long*>(sum), batch.sample(i) + 1);
  }
}

}  // namespace penstock::test
