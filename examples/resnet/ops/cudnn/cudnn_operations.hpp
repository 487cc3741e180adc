// SPDX-License-Identifier: Apache-2.0
#pragma once

// Operations on an NVIDIA GPU: convolutions by cuDNN, the last layer by cuBLASLt, the rest by
// kernels of our own. On the device that is current at construction. Two further conditions: all
// calls are on one stream, or on streams that wait for each other, since operations share a
// workspace; memory is aligned to 16 bytes (as cudaMalloc's is, and what follows a whole tensor of
// ResNet's).

#include <string>

#include "batch_norm_parts.hpp"
#include "context.hpp"
#include "convolutions.hpp"
#include "linear.hpp"

namespace resnet::cudnn {

class CudnnOperations : public Operations {
 public:
  explicit CudnnOperations(const Settings& settings);
  CudnnOperations(const CudnnOperations&) = delete;
  CudnnOperations& operator=(const CudnnOperations&) = delete;

  const Settings& settings() const override { return settings_; }
  std::size_t element_bytes() const override;
  std::int64_t padded_channels(std::int64_t channels) const override;
  void from_float(const float* in, void* out, std::int64_t count, cudaStream_t) override;
  void to_float(const void* in, float* out, std::int64_t count, cudaStream_t) override;

  void prepare(const ConvolutionShape&) override;
  void convolution(const ConvolutionShape&, const void* x, const void* weights, void* y,
                   cudaStream_t) override;
  void convolution_data_gradient(const ConvolutionShape&, const void* y_gradient,
                                 const void* weights, void* x_gradient, cudaStream_t) override;
  void convolution_weight_gradient(const ConvolutionShape&, const void* x, const void* y_gradient,
                                   void* weight_gradient, cudaStream_t) override;

  void batch_norm(const Extents&, const void* x, const BatchNorm&, const void* residual, bool relu,
                  void* y, cudaStream_t) override;
  void batch_norm_inference(const Extents&, const void* x, const BatchNorm&, const void* residual,
                            bool relu, void* y, cudaStream_t) override;
  void batch_norm_gradient(const Extents&, const void* x, const void* y, const void* y_gradient,
                           const void* more_y_gradient, const BatchNorm&, bool relu,
                           void* x_gradient, void* residual_gradient, cudaStream_t) override;
  std::int64_t relu_bits_bytes(const Extents&) const override;
  BatchNormParts& batch_norm_parts() override { return batch_norm_parts_; }

  bool fuses(const ConvolutionShape&, bool normalized_input) override;
  void convolution_statistics(const ConvolutionShape&, const void* x, const BatchNorm* before,
                              const void* weights, void* y, const BatchNorm& norm,
                              cudaStream_t) override;
  void batch_norm_apply(const Extents&, const void* x, const BatchNorm&, const void* residual,
                        const BatchNorm* residual_norm, bool relu, void* y, cudaStream_t) override;
  void normalized_weight_gradient(const ConvolutionShape&, const void* x, const BatchNorm& before,
                                  const void* y_gradient, void* weight_gradient,
                                  cudaStream_t) override;
  void normalized_data_gradient(const ConvolutionShape&, const void* y_gradient,
                                const void* weights, const void* x, const BatchNorm& before,
                                void* x_gradient, cudaStream_t) override;

  bool fuses_pool(const PoolShape&) override;
  void batch_norm_max_pool(const PoolShape&, const void* x, const BatchNorm&, void* y,
                           std::uint8_t* chosen, cudaStream_t) override;
  void batch_norm_max_pool_gradient(const PoolShape&, const void* x, const std::uint8_t* chosen,
                                    const void* y_gradient, const void* more_y_gradient,
                                    const BatchNorm&, void* x_gradient, cudaStream_t) override;
  void max_pool(const PoolShape&, const void* x, void* y, std::uint8_t* chosen,
                cudaStream_t) override;
  void max_pool_gradient(const PoolShape&, const std::uint8_t* chosen, const void* y_gradient,
                         const void* more_y_gradient, void* x_gradient, cudaStream_t) override;
  void average_pool(const Extents&, const void* x, void* y, cudaStream_t) override;
  void average_pool_gradient(const Extents&, const void* y_gradient, void* x_gradient,
                             cudaStream_t) override;

  void linear(std::int64_t n, std::int64_t features, std::int64_t classes, const void* x,
              const void* weights, const float* bias, float* logits, cudaStream_t) override;
  void linear_gradient(std::int64_t n, std::int64_t features, std::int64_t classes, const void* x,
                       const void* weights, const float* logit_gradient, void* x_gradient,
                       void* weight_gradient, float* bias_gradient, cudaStream_t) override;

  void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                     const std::int32_t* labels, const LossScale* loss_scale, float* logit_gradient,
                     Metrics* metrics, cudaStream_t) override;
  void sgd(const SgdState&, const SgdOptions&, cudaStream_t) override;

 private:
  Settings settings_;
  Context context_;
  Convolutions convolutions_;
  CudnnBatchNormParts batch_norm_parts_;
  Linear linear_;
};

}  // namespace resnet::cudnn
