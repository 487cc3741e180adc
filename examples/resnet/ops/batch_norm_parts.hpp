// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batch norm of a batch that is divided among ranks, in parts: between them, whoever calls brings
// together what the ranks have.
//
//   parts.moments(extents, x, mine, stream);                   // then all ranks' moments to all
//   parts.merge(extents, ranks, moments, norm, stream);        // and y by batch_norm_apply
//
//   parts.gradient_sums(extents, of, norm, relu, sums, stream);     // then their sums over ranks
//   parts.gradient(extents, ranks, of, norm, relu, sums, stream);
//
// Each part enqueues its work, as Operations do. All ranks have as many samples.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops.hpp"

namespace resnet {

/// The operands of Operations::batch_norm_gradient.
struct BatchNormOperands {
  const void* x = nullptr;
  const void* y = nullptr;
  const void* y_gradient = nullptr;
  const void* more_y_gradient = nullptr;
  void* x_gradient = nullptr;
  void* residual_gradient = nullptr;
};

class BatchNormParts {
 public:
  virtual ~BatchNormParts() = default;

  /// Of this rank's x: c means, then c sums of squared distances from them.
  virtual void moments(const Extents&, const void* x, float* moments, cudaStream_t) = 0;
  /// All that batch_norm leaves in `norm`, scale and bias too, for the batch of all ranks, whose
  /// `moments` lie one behind the other: the same bits on each rank. `extents` are one rank's.
  virtual void merge(const Extents&, int ranks, const float* moments, const BatchNorm& norm,
                     cudaStream_t) = 0;
  /// Of this rank's samples: the gradients of beta and of gamma, to `norm` and, c floats each, to
  /// `sums`. May write to x_gradient and residual_gradient what `gradient` then reads, with the
  /// same operands.
  virtual void gradient_sums(const Extents&, const BatchNormOperands&, const BatchNorm& norm,
                             bool relu, float* sums, cudaStream_t) = 0;
  /// The rest of batch_norm_gradient, where `sums` are those of all ranks.
  virtual void gradient(const Extents&, int ranks, const BatchNormOperands&, const BatchNorm& norm,
                        bool relu, const float* sums, cudaStream_t) = 0;
};

}  // namespace resnet
