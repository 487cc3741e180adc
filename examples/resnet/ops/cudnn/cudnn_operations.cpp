// SPDX-License-Identifier: Apache-2.0

#include "cudnn_operations.hpp"

#include <cublasLt.h>

#include <penstock/cuda.hpp>

#include "batch_norm.hpp"
#include "cross_entropy.hpp"
#include "elementwise.hpp"
#include "pooling.hpp"
#include "sgd.hpp"

namespace resnet {

namespace cudnn {

namespace {

bool is_16_bits(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16;
}

}  // namespace

CudnnOperations::CudnnOperations(const Settings& settings)
    : settings_(settings),
      context_{settings.precision, settings.format, settings.fusion, multiprocessors(), {}},
      convolutions_(settings, context_),
      batch_norm_parts_(context_) {}

std::size_t CudnnOperations::element_bytes() const {
  return is_16_bits(settings_.precision) ? 2 : 4;
}

std::int64_t CudnnOperations::padded_channels(std::int64_t channels) const {
  // Tensor cores read whole groups of channels, and cuDNN would pad an image by itself each time.
  const bool tensor_cores = settings_.precision != Precision::fp32;
  return tensor_cores && settings_.format == Format::nhwc && channels < 4 ? 4 : channels;
}

void CudnnOperations::from_float(const float* in, void* out, std::int64_t count,
                                 cudaStream_t stream) {
  cudnn::from_float(settings_.precision, in, out, count, stream);
}

void CudnnOperations::to_float(const void* in, float* out, std::int64_t count,
                               cudaStream_t stream) {
  cudnn::to_float(settings_.precision, in, out, count, stream);
}

void CudnnOperations::prepare(const ConvolutionShape& shape) {
  convolutions_.prepare(shape);
}

void CudnnOperations::convolution(const ConvolutionShape& shape, const void* x, const void* weights,
                                  void* y, cudaStream_t stream) {
  convolutions_.run(Graph::forward, shape, {x, weights, y}, stream);
}

void CudnnOperations::convolution_data_gradient(const ConvolutionShape& shape,
                                                const void* y_gradient, const void* weights,
                                                void* x_gradient, cudaStream_t stream) {
  convolutions_.run(Graph::data_gradient, shape, {y_gradient, weights, x_gradient}, stream);
}

void CudnnOperations::convolution_weight_gradient(const ConvolutionShape& shape, const void* x,
                                                  const void* y_gradient, void* weight_gradient,
                                                  cudaStream_t stream) {
  convolutions_.run(Graph::weight_gradient, shape, {x, y_gradient, weight_gradient}, stream);
}

void CudnnOperations::batch_norm(const Extents& extents, const void* x, const BatchNorm& norm,
                                 const void* residual, bool relu, void* y, cudaStream_t stream) {
  cudnn::batch_norm(context_, extents, x, norm, residual, relu, y, stream);
}

void CudnnOperations::batch_norm_inference(const Extents& extents, const void* x,
                                           const BatchNorm& norm, const void* residual, bool relu,
                                           void* y, cudaStream_t stream) {
  cudnn::batch_norm_inference(context_, extents, x, norm, residual, relu, y, stream);
}

void CudnnOperations::batch_norm_gradient(const Extents& extents, const void* x, const void* y,
                                          const void* y_gradient, const void* more_y_gradient,
                                          const BatchNorm& norm, bool relu, void* x_gradient,
                                          void* residual_gradient, cudaStream_t stream) {
  cudnn::batch_norm_gradient(context_, extents,
                             {x, y, y_gradient, more_y_gradient, x_gradient, residual_gradient},
                             norm, relu, stream);
}

std::int64_t CudnnOperations::relu_bits_bytes(const Extents& extents) const {
  return cudnn::relu_bits_bytes(context_, extents);
}

bool CudnnOperations::fuses(const ConvolutionShape& shape, bool normalized_input) {
  if (settings_.fusion != Fusion::full || settings_.deterministic) return false;
  return !normalized_input || convolutions_.has(normalized_graphs.front(), shape);
}

void CudnnOperations::convolution_statistics(const ConvolutionShape& shape, const void* x,
                                             const BatchNorm* before, const void* weights, void* y,
                                             const BatchNorm& norm, cudaStream_t stream) {
  if (before == nullptr && !convolutions_.has(Graph::forward_statistics, shape)) {
    // No engine, or a slower one: the statistics are a pass over y, as batch_norm's are.
    convolutions_.run(Graph::forward, shape, {x, weights, y}, stream);
    batch_norm_statistics(context_, shape.out(), y, norm, stream);
    return;
  }
  convolutions_.prepare(shape);  // so that the sums stay where they are
  float* sums = convolutions_.channel_sums(shape, 0);
  float* squares = convolutions_.channel_sums(shape, 1);
  if (before == nullptr)
    convolutions_.run(Graph::forward_statistics, shape, {x, weights, y, sums, squares}, stream);
  else
    convolutions_.run(Graph::normalized_forward_statistics, shape,
                      {x, before->scale, before->bias, weights, y, sums, squares}, stream);
  batch_norm_statistics_of_sums(context_, shape.out(), sums, squares, norm, stream);
}

void CudnnOperations::batch_norm_apply(const Extents& extents, const void* x, const BatchNorm& norm,
                                       const void* residual, const BatchNorm* residual_norm,
                                       bool relu, void* y, cudaStream_t stream) {
  cudnn::batch_norm_apply(context_, extents, x, norm, residual, residual_norm, relu, y, stream);
}

void CudnnOperations::normalized_weight_gradient(const ConvolutionShape& shape, const void* x,
                                                 const BatchNorm& before, const void* y_gradient,
                                                 void* weight_gradient, cudaStream_t stream) {
  convolutions_.run(Graph::normalized_weight_gradient, shape,
                    {x, before.scale, before.bias, y_gradient, weight_gradient}, stream);
}

void CudnnOperations::normalized_data_gradient(const ConvolutionShape& shape,
                                               const void* y_gradient, const void* weights,
                                               const void* x, const BatchNorm& before,
                                               void* x_gradient, cudaStream_t stream) {
  convolutions_.prepare(shape);
  // The graph's coefficients are not used: they follow from the gradients of gamma and beta, which
  // the second pass of batch_norm_gradient takes as they are.
  convolutions_.run(Graph::data_gradient_statistics, shape,
                    {y_gradient, weights, x, before.mean, before.inverse_deviation, before.gamma,
                     before.beta, x_gradient, before.gamma_gradient, before.beta_gradient,
                     convolutions_.channel_sums(shape, 0), convolutions_.channel_sums(shape, 1),
                     convolutions_.channel_sums(shape, 2)},
                    stream);
  batch_norm_gradient_apply(context_, shape.in, x, x_gradient, before, x_gradient, stream);
}

bool CudnnOperations::fuses_pool(const PoolShape& shape) {
  return settings_.fusion == Fusion::full && cudnn::fuses_pool(context_, shape);
}

void CudnnOperations::batch_norm_max_pool(const PoolShape& shape, const void* x,
                                          const BatchNorm& norm, void* y, std::uint8_t* chosen,
                                          cudaStream_t stream) {
  cudnn::batch_norm_max_pool(context_, shape, x, norm, y, chosen, stream);
}

void CudnnOperations::batch_norm_max_pool_gradient(
    const PoolShape& shape, const void* x, const std::uint8_t* chosen, const void* y_gradient,
    const void* more_y_gradient, const BatchNorm& norm, void* x_gradient, cudaStream_t stream) {
  cudnn::batch_norm_max_pool_gradient(context_, shape, x, chosen, y_gradient, more_y_gradient, norm,
                                      x_gradient, stream);
}

void CudnnOperations::max_pool(const PoolShape& shape, const void* x, void* y, std::uint8_t* chosen,
                               cudaStream_t stream) {
  cudnn::max_pool(context_, shape, x, y, chosen, stream);
}

void CudnnOperations::max_pool_gradient(const PoolShape& shape, const std::uint8_t* chosen,
                                        const void* y_gradient, const void* more_y_gradient,
                                        void* x_gradient, cudaStream_t stream) {
  cudnn::max_pool_gradient(context_, shape, chosen, y_gradient, more_y_gradient, x_gradient,
                           stream);
}

void CudnnOperations::average_pool(const Extents& extents, const void* x, void* y,
                                   cudaStream_t stream) {
  cudnn::average_pool(context_, extents, x, y, stream);
}

void CudnnOperations::average_pool_gradient(const Extents& extents, const void* y_gradient,
                                            void* x_gradient, cudaStream_t stream) {
  cudnn::average_pool_gradient(context_, extents, y_gradient, x_gradient, stream);
}

void CudnnOperations::linear(std::int64_t n, std::int64_t features, std::int64_t classes,
                             const void* x, const void* weights, const float* bias, float* logits,
                             cudaStream_t stream) {
  linear_.forward(context_, n, features, classes, x, weights, bias, logits, stream);
}

void CudnnOperations::linear_gradient(std::int64_t n, std::int64_t features, std::int64_t classes,
                                      const void* x, const void* weights,
                                      const float* logit_gradient, void* x_gradient,
                                      void* weight_gradient, float* bias_gradient,
                                      cudaStream_t stream) {
  linear_.gradient(context_, n, features, classes, x, weights, logit_gradient, x_gradient,
                   weight_gradient, bias_gradient, stream);
}

void CudnnOperations::cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                                    const std::int32_t* labels, const LossScale* loss_scale,
                                    float* logit_gradient, Metrics* metrics, cudaStream_t stream) {
  cudnn::cross_entropy(context_, n, classes, logits, labels, loss_scale, logit_gradient, metrics,
                       stream);
}

void CudnnOperations::sgd(const SgdState& state, const SgdOptions& options, cudaStream_t stream) {
  cudnn::sgd(context_, state, options, stream);
}

}  // namespace cudnn

std::unique_ptr<Operations> make_operations(const Settings& settings) {
  if (settings.precision == Precision::int8)
    throw std::invalid_argument("int8 is for inference alone");
  return std::make_unique<cudnn::CudnnOperations>(settings);
}

std::string operations_name() {
  const std::size_t blas = cublasLtGetVersion();
  return "cudnn: " + cudnn::cudnn_version() + ", cuBLASLt " + std::to_string(blas / 10000) + '.' +
         std::to_string(blas / 100 % 100) + '.' + std::to_string(blas % 100);
}

}  // namespace resnet
