// SPDX-License-Identifier: Apache-2.0
#pragma once

// SynchronisedBatchNorm: batch norm with the statistics of all ranks' batches. A layer takes two
// sums over the ranks, one forward and one backward, each of some floats a channel.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "../ops/batch_norm_parts.hpp"
#include "../ops/ops.hpp"
#include "device_array.hpp"

namespace resnet {

/// Which part of a batch this rank has, and how the ranks come together.
struct DividedBatch {
  int rank = 0, ranks = 1;
  /// Enqueues: the sum over all ranks of so many floats in device memory, in place, the same bits
  /// on each rank.
  std::function<void(float* values, std::int64_t count, cudaStream_t)> sum;
};

/// Its members enqueue their work, in the same order on all ranks.
class SynchronisedBatchNorm {
 public:
  /// For layers of up to `channels`. `ops` outlives this.
  SynchronisedBatchNorm(Operations& ops, const DividedBatch& batch, std::int64_t channels);

  /// As Operations::batch_norm and batch_norm_gradient. `extents` are this rank's.
  void forward(const Extents& extents, const void* x, const BatchNorm& norm, const void* residual,
               bool relu, void* y, cudaStream_t stream);
  void backward(const Extents& extents, const BatchNormOperands& operands, const BatchNorm& norm,
                bool relu, cudaStream_t stream);

 private:
  Operations& ops_;
  BatchNormParts& parts_;
  DividedBatch batch_;
  DeviceArray<float> moments_, sums_;  // ranks x 2 x channels, 2 x channels
};

}  // namespace resnet
