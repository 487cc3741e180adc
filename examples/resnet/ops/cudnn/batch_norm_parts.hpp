// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batch norm in parts, by the kernels that the whole has: one rank's parts are batch_norm.

#include "batch_norm.hpp"

namespace resnet::cudnn {

class CudnnBatchNormParts : public BatchNormParts {
 public:
  /// `context` outlives this.
  explicit CudnnBatchNormParts(const Context& context) : context_(context) {}

  void moments(const Extents& extents, const void* x, float* moments,
               cudaStream_t stream) override {
    batch_norm_moments(context_, extents, x, moments, stream);
  }
  void merge(const Extents& extents, int ranks, const float* moments, const BatchNorm& norm,
             cudaStream_t stream) override {
    batch_norm_merge(context_, extents, ranks, moments, norm, stream);
  }
  void gradient_sums(const Extents& extents, const BatchNormOperands& of, const BatchNorm& norm,
                     bool relu, float* sums, cudaStream_t stream) override {
    batch_norm_gradient_sums(context_, extents, of, norm, relu, sums, stream);
  }
  void gradient(const Extents& extents, int ranks, const BatchNormOperands& of,
                const BatchNorm& norm, bool relu, const float* sums, cudaStream_t stream) override {
    batch_norm_gradient_rest(context_, extents, ranks, of, norm, relu, sums, stream);
  }

 private:
  const Context& context_;
};

}  // namespace resnet::cudnn
