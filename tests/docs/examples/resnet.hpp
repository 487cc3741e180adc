// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the examples of examples/resnet take for granted. Compiled only.

#include <cstdint>

#include "../../../examples/resnet/infer/model.hpp"
#include "../../../examples/resnet/infer/network.hpp"

namespace {

using namespace resnet;

struct Bare {
  cudaStream_t stream = nullptr;
  std::int64_t n = 1;
  const std::uint8_t* pixels = nullptr;
  float* logits = nullptr;
};

void clean_up() {}

}  // namespace
