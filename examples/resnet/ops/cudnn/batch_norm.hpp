// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batch norm, with addition and ReLU in the same kernels unless the settings' fusion is none. See
// Operations for the arguments.
//
// Reads and writes, in activations, beside one read for the statistics: x, [residual], y. Gradient:
// first pass x, y, dy, [more dy] and, where there is a residual, its gradient; the second pass
// reads that instead of y, dy and more dy.

#include <cuda_runtime_api.h>

#include "context.hpp"

namespace resnet::cudnn {

void batch_norm(const Context&, const Extents&, const void* x, const BatchNorm&,
                const void* residual, bool relu, void* y, cudaStream_t);
void batch_norm_inference(const Context&, const Extents&, const void* x, const BatchNorm&,
                          const void* residual, bool relu, void* y, cudaStream_t);
void batch_norm_gradient(const Context&, const Extents&, const void* x, const void* y,
                         const void* y_gradient, const void* more_y_gradient, const BatchNorm&,
                         bool relu, void* x_gradient, void* residual_gradient, cudaStream_t);

}  // namespace resnet::cudnn
