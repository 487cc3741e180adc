// SPDX-License-Identifier: Apache-2.0
#pragma once

// Max pooling in windows, average pooling over whole planes, and their gradients. See Operations.
// Gradients gather: each element of x sums what it gave to, in one order.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "context.hpp"

namespace resnet::cudnn {

void max_pool(const Context&, const PoolShape&, const void* x, void* y, std::uint8_t* chosen,
              cudaStream_t);
void max_pool_gradient(const Context&, const PoolShape&, const std::uint8_t* chosen,
                       const void* y_gradient, const void* more_y_gradient, void* x_gradient,
                       cudaStream_t);
void average_pool(const Context&, const Extents&, const void* x, void* y, cudaStream_t);
void average_pool_gradient(const Context&, const Extents&, const void* y_gradient, void* x_gradient,
                           cudaStream_t);

}  // namespace resnet::cudnn
