// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batch norm in parts, as the reference operations compute it: host functions on the stream.

#include "../batch_norm_parts.hpp"

namespace resnet::reference {

class ReferenceBatchNormParts : public BatchNormParts {
 public:
  ReferenceBatchNormParts(Precision precision, Format format, int threads)
      : precision_(precision), format_(format), threads_(threads) {}

  void moments(const Extents&, const void* x, float* moments, cudaStream_t) override;
  void merge(const Extents&, int ranks, const float* moments, const BatchNorm& norm,
             cudaStream_t) override;
  void gradient_sums(const Extents&, const BatchNormOperands&, const BatchNorm& norm, bool relu,
                     float* sums, cudaStream_t) override;
  void gradient(const Extents&, int ranks, const BatchNormOperands&, const BatchNorm& norm,
                bool relu, const float* sums, cudaStream_t) override;

 private:
  Precision precision_;
  Format format_;
  int threads_;
};

}  // namespace resnet::reference
