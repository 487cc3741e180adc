// SPDX-License-Identifier: Apache-2.0
#include "synchronised_batch_norm.hpp"

namespace resnet {

SynchronisedBatchNorm::SynchronisedBatchNorm(Operations& ops, const DividedBatch& batch,
                                             std::int64_t channels)
    : ops_(ops),
      parts_(ops.batch_norm_parts()),
      batch_(batch),
      moments_(2 * channels * batch.ranks),
      sums_(2 * channels) {}

/// The ranks' moments are added up where all others have zeros: nothing is rounded.
void SynchronisedBatchNorm::forward(const Extents& extents, const void* x, const BatchNorm& norm,
                                    const void* residual, bool relu, void* y, cudaStream_t stream) {
  const std::int64_t mine = 2 * extents.c, all = mine * batch_.ranks;
  examples::check(
      cudaMemsetAsync(moments_.data(), 0, static_cast<std::size_t>(all) * sizeof(float), stream),
      "cudaMemsetAsync");
  parts_.moments(extents, x, moments_.data() + batch_.rank * mine, stream);
  batch_.sum(moments_.data(), all, stream);
  parts_.merge(extents, batch_.ranks, moments_.data(), norm, stream);
  ops_.batch_norm_apply(extents, x, norm, residual, nullptr, relu, y, stream);
}

void SynchronisedBatchNorm::backward(const Extents& extents, const BatchNormOperands& operands,
                                     const BatchNorm& norm, bool relu, cudaStream_t stream) {
  parts_.gradient_sums(extents, operands, norm, relu, sums_.data(), stream);
  batch_.sum(sums_.data(), 2 * extents.c, stream);
  parts_.gradient(extents, batch_.ranks, operands, norm, relu, sums_.data(), stream);
}

}  // namespace resnet
