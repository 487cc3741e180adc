// SPDX-License-Identifier: Apache-2.0
#pragma once

// Softmax, cross entropy, its gradient, and hits, in one pass; then their sums. See Operations. A
// label that is no class makes the loss and its gradient NaN.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "context.hpp"

namespace resnet::cudnn {

void cross_entropy(const Context&, std::int64_t n, std::int64_t classes, const float* logits,
                   const std::int32_t* labels, const LossScale* loss_scale, float* logit_gradient,
                   Metrics* metrics, cudaStream_t);

}  // namespace resnet::cudnn
