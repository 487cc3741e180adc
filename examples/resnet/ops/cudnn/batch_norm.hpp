// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batch norm, with addition and ReLU in the same kernels unless the settings' fusion is none. See
// Operations for the arguments.
//
// The second half of a fused convolution's batch norm is here too: its sums come out of the graph.
//
// Reads and writes, in activations, beside one read for the statistics: x, [residual], y. Gradient:
// first pass x, dy, [more dy] and, where there is a residual, its gradient, and ReLU's bits
// (one for an element of 16) or else y; second pass x, dy (where there is a residual,
// its gradient) and dx. docs/measured/kernels.md says what each costs.

#include <cuda_runtime_api.h>

#include "../batch_norm_parts.hpp"
#include "context.hpp"

namespace resnet::cudnn {

/// Everything of `norm` that batch_norm writes, and scale and bias, unless null; one read of x.
void batch_norm_statistics(const Context&, const Extents&, const void* x, const BatchNorm&,
                           cudaStream_t);
/// The same from each channel's sums of x and of x * x.
void batch_norm_statistics_of_sums(const Context&, const Extents&, const float* sums,
                                   const float* squares, const BatchNorm&, cudaStream_t);
/// batch_norm with the statistics that are there, those of residual_norm (unless null) too.
void batch_norm_apply(const Context&, const Extents&, const void* x, const BatchNorm&,
                      const void* residual, const BatchNorm* residual_norm, bool relu, void* y,
                      cudaStream_t);
void batch_norm(const Context&, const Extents&, const void* x, const BatchNorm&,
                const void* residual, bool relu, void* y, cudaStream_t);
void batch_norm_inference(const Context&, const Extents&, const void* x, const BatchNorm&,
                          const void* residual, bool relu, void* y, cudaStream_t);
std::int64_t relu_bits_bytes(const Context&, const Extents&);
void batch_norm_gradient(const Context&, const Extents&, const BatchNormOperands&, const BatchNorm&,
                         bool relu, cudaStream_t);
/// The second pass alone: `gradient` is that of normalised x, gamma's and beta's are there.
/// x_gradient may be it.
void batch_norm_gradient_apply(const Context&, const Extents&, const void* x, const void* gradient,
                               const BatchNorm&, void* x_gradient, cudaStream_t);

/// Whether the next two take this shape.
bool fuses_pool(const Context&, const PoolShape&);
/// max_pool of relu(x normalised) with the statistics that are there. `chosen` is for the gradient
/// below alone.
void batch_norm_max_pool(const Context&, const PoolShape&, const void* x, const BatchNorm&, void* y,
                         std::uint8_t* chosen, cudaStream_t);
void batch_norm_max_pool_gradient(const Context&, const PoolShape&, const void* x,
                                  const std::uint8_t* chosen, const void* y_gradient,
                                  const void* more_y_gradient, const BatchNorm&, void* x_gradient,
                                  cudaStream_t);

// In parts: BatchNormParts says what they are. The same bits each time.

void batch_norm_moments(const Context&, const Extents&, const void* x, float* moments,
                        cudaStream_t);
void batch_norm_merge(const Context&, const Extents&, int ranks, const float* moments,
                      const BatchNorm&, cudaStream_t);
/// `sums` may be null.
void batch_norm_gradient_sums(const Context&, const Extents&, const BatchNormOperands&,
                              const BatchNorm&, bool relu, float* sums, cudaStream_t);
void batch_norm_gradient_rest(const Context&, const Extents&, int ranks, const BatchNormOperands&,
                              const BatchNorm&, bool relu, const float* sums, cudaStream_t);

}  // namespace resnet::cudnn
