// SPDX-License-Identifier: Apache-2.0
#include "batch_norm_parts.hpp"

#include "batch_norm.hpp"
#include "enqueue.hpp"

namespace resnet::reference {
namespace {

BatchNormGradient<float> floats(const BatchNormOperands& of) {
  return {static_cast<const float*>(of.x),          static_cast<const float*>(of.y),
          static_cast<const float*>(of.y_gradient), static_cast<const float*>(of.more_y_gradient),
          static_cast<float*>(of.x_gradient),       static_cast<float*>(of.residual_gradient)};
}

}  // namespace

void ReferenceBatchNormParts::moments(const Extents& extents, const void* x, float* moments,
                                      cudaStream_t stream) {
  const auto* const values = static_cast<const float*>(x);
  const ActivationLayout layout(extents, format_);
  enqueue<kernel::batch_norm_moments>(
      stream, {reads(values, extents.count()), writes(moments, 2 * extents.c)},
      [=, threads = threads_] { batch_norm_moments(layout, values, moments, threads); });
}

void ReferenceBatchNormParts::merge(const Extents& extents, int ranks, const float* moments,
                                    const BatchNorm& norm, cudaStream_t stream) {
  const ActivationLayout layout(extents, format_);
  const Normalisation<float> of = normalisation(norm);
  enqueue<kernel::batch_norm_merge>(
      stream,
      {reads(moments, 2 * ranks * extents.c), reads(of.gamma, extents.c), reads(of.beta, extents.c),
       writes(of.running_mean, extents.c), writes(of.running_variance, extents.c),
       writes(of.mean, extents.c), writes(of.inverse_deviation, extents.c),
       writes(of.scale, extents.c), writes(of.bias, extents.c)},
      [=, threads = threads_] { batch_norm_merge(layout, ranks, moments, of, threads); });
}

void ReferenceBatchNormParts::gradient_sums(const Extents& extents,
                                            const BatchNormOperands& operands,
                                            const BatchNorm& norm, bool relu, float* sums,
                                            cudaStream_t stream) {
  const ActivationLayout layout(extents, format_);
  const BatchNormGradient<float> of = floats(operands);
  enqueue<kernel::batch_norm_gradient_sums>(
      stream,
      {reads(of.x, extents.count()), reads(relu ? of.y : nullptr, extents.count()),
       reads(of.y_gradient, extents.count()), reads(of.more_y_gradient, extents.count()),
       reads(norm.mean, extents.c), reads(norm.inverse_deviation, extents.c),
       writes(norm.gamma_gradient, extents.c), writes(norm.beta_gradient, extents.c),
       writes(sums, 2 * extents.c)},
      [=, threads = threads_, by = normalisation(norm)] {
        batch_norm_gradient_sums(layout, of, by, relu, sums, threads);
      });
}

void ReferenceBatchNormParts::gradient(const Extents& extents, int ranks,
                                       const BatchNormOperands& operands, const BatchNorm& norm,
                                       bool relu, const float* sums, cudaStream_t stream) {
  const ActivationLayout layout(extents, format_);
  const BatchNormGradient<float> of = floats(operands);
  enqueue<kernel::batch_norm_gradient_rest>(
      stream,
      {reads(of.x, extents.count()), reads(relu ? of.y : nullptr, extents.count()),
       reads(of.y_gradient, extents.count()), reads(of.more_y_gradient, extents.count()),
       reads(norm.mean, extents.c), reads(norm.inverse_deviation, extents.c),
       reads(norm.gamma, extents.c), reads(sums, 2 * extents.c),
       stores(of.x_gradient, extents.count(), precision_),
       stores(of.residual_gradient, extents.count(), precision_)},
      [=, threads = threads_, by = normalisation(norm)] {
        batch_norm_gradient_rest(layout, ranks, of, by, relu, sums, threads);
      });
}

}  // namespace resnet::reference
