// SPDX-License-Identifier: Apache-2.0

#include "inference.hpp"

#include <stdexcept>

#include "elementwise.hpp"
#include "inference_kernels.hpp"
#include "pooling.hpp"
#include "stem.hpp"

namespace resnet {

namespace cudnn {

// ---- One convolution ----------------------------------------------------------------------------

GraphKey graph_of(const InferenceConvolution& what, const Settings& settings, Way way) {
  GraphKey key{Graph::forward, what.shape, what.precision, settings.format, settings.deterministic};
  if (way == Way::separate) return key;
  key.graph = Graph::inference;
  key.epilogue = {what.residual, what.relu, way == Way::narrow_bias};
  return key;
}

std::vector<Way> ways_of(const InferenceConvolution& what, const Settings& settings) {
  std::vector<Way> ways;
  if (settings.fusion == Fusion::full && what.precision == what.result) {
    ways.push_back(Way::fused);
    if (what.precision == Precision::fp16 || what.precision == Precision::bf16)
      ways.push_back(Way::narrow_bias);
  }
  ways.push_back(Way::separate);
  return ways;
}

namespace {

/// Of what the convolution writes before anything else is done.
Number sums_number(const InferenceConvolution& what) {
  return what.precision == Precision::int8 ? Number::int32 : number_of(what.precision);
}

void run_fused(const InferenceConvolution& what, Way way, const Plan& plan,
               const InferenceMemory& memory, cudnnHandle_t handle) {
  const auto& [x, operands, residual, y, sums, workspace] = memory;
  const void* bias = way == Way::narrow_bias ? operands.narrow_bias : operands.bias;
  const void* weights = operands.weights;
  const bool int8 = what.precision == Precision::int8;
  if (int8 && what.residual)
    plan.run(handle, {x, weights, operands.scale, bias, residual, operands.residual_scale, y},
             workspace);
  else if (int8)
    plan.run(handle, {x, weights, operands.scale, bias, y}, workspace);
  else if (what.residual)
    plan.run(handle, {x, weights, bias, residual, y}, workspace);
  else
    plan.run(handle, {x, weights, bias, y}, workspace);
}

/// One kernel for bias, residual and ReLU; or one for each of them, with what is between in floats
/// for int8's sums, else as the convolution left it.
void run_finish(const InferenceConvolution& what, const Settings& settings,
                const InferenceMemory& memory, void* sums, cudaStream_t stream) {
  const Extents out = what.shape.out();
  const Number first = sums_number(what), last = number_of(what.result);
  const ConvolutionOperands& operands = memory.operands;
  Finish all{first, last, last};
  all.x = sums;
  all.y = memory.y;
  all.scale = operands.scale;
  all.bias = operands.bias;
  all.residual = memory.residual;
  all.residual_scale = operands.residual_scale;
  all.relu = what.relu;
  if (settings.fusion != Fusion::none) return finish(settings.format, out, all, stream);

  const Number between = first == Number::int32 ? Number::fp32 : first;
  Finish bias{first, between, last};
  bias.x = bias.y = sums;
  bias.scale = operands.scale;
  bias.bias = operands.bias;
  finish(settings.format, out, bias, stream);
  if (what.residual) {
    Finish addition{between, between, last};
    addition.x = addition.y = sums;
    addition.residual = memory.residual;
    addition.residual_scale = operands.residual_scale;
    finish(settings.format, out, addition, stream);
  }
  if (!what.relu && sums == memory.y) return;
  Finish relu{between, last, last};
  relu.x = sums;
  relu.y = memory.y;
  relu.relu = what.relu;
  finish(settings.format, out, relu, stream);
}

}  // namespace

std::size_t sums_bytes(const InferenceConvolution& what, Way way) {
  if (way != Way::separate || !what.quantised()) return 0;
  return static_cast<std::size_t>(what.shape.out().count()) * bytes_of(sums_number(what));
}

void run(const InferenceConvolution& what, Way way, const Plan& plan, const Settings& settings,
         const InferenceMemory& memory, cudnnHandle_t handle, cudaStream_t stream) {
  if (way != Way::separate) return run_fused(what, way, plan, memory, handle);
  void* sums = what.quantised() ? memory.sums : memory.y;
  plan.run(handle, {memory.x, memory.operands.weights, sums}, memory.workspace);
  run_finish(what, settings, memory, sums, stream);
}

// ---- Operations ---------------------------------------------------------------------------------

Memory allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (bytes != 0) penstock::detail::check(cudaMalloc(&memory, bytes), "cudaMalloc", bytes);
  return {memory, &cudaFree};
}

CudnnInference::CudnnInference(const CudnnPlans& plans)
    : plans_(plans), handle_(make_handle()), sums_(allocate(plans.sums_bytes())) {
  context_.precision = floating(plans.settings().precision);
  context_.format = plans.settings().format;
  context_.multiprocessors = multiprocessors();
  prepare_stem();
  context_.workspace.reserve(plans.workspace_bytes());
}

Extents CudnnInference::padded(const Extents& images) const {
  return {images.n, plans_.padded_channels(images.c), images.h, images.w};
}

void CudnnInference::convert(const ImageInput& input, const float* images, void* x,
                             cudaStream_t stream) {
  cudnn::convert(input, images, padded(input.images), context_.precision, context_.format, x,
                 stream);
}

void CudnnInference::convert(const ImageInput& input, const std::uint8_t* images, void* x,
                             cudaStream_t stream) {
  cudnn::convert(input, images, padded(input.images), context_.precision, context_.format, x,
                 stream);
}

void CudnnInference::convolution(const InferenceConvolution& what, const void* x,
                                 const ConvolutionOperands& operands, const void* residual, void* y,
                                 cudaStream_t stream) {
  const InferencePlan& plan = plans_.find(what);
  if (plan.plan.workspace() > context_.workspace.bytes())
    throw std::logic_error("a convolution that was prepared after these operations were made");
  set_stream(handle_, stream);
  run(what, plan.way, plan.plan, plans_.settings(),
      {x, operands, residual, y, sums_.get(), context_.workspace.data()}, handle_.get(), stream);
}

void CudnnInference::max_pool(const PoolShape& shape, Precision precision, const void* x, void* y,
                              cudaStream_t stream) {
  max_pool_values(shape, precision, context_.format, x, y, stream);
}

void CudnnInference::convolution_and_max_pool(const InferenceConvolution& what,
                                              const PoolShape& pool, const void* x,
                                              const ConvolutionOperands& operands, void* y,
                                              cudaStream_t stream) {
  stem(what, pool, x, operands, y, context_.multiprocessors, stream);
}

void CudnnInference::average_pool(const Extents& extents, Precision precision, const void* x,
                                  float scale, void* y, cudaStream_t stream) {
  if (precision == Precision::int8)
    average_pool_int8(extents, x, scale, y, stream);
  else
    cudnn::average_pool(context_, extents, x, y, stream);
}

void CudnnInference::linear(std::int64_t n, std::int64_t features, std::int64_t classes,
                            const void* x, const void* weights, const float* bias, float* logits,
                            cudaStream_t stream) {
  linear_.forward(context_, n, features, classes, x, weights, bias, logits, stream);
}

}  // namespace cudnn

std::unique_ptr<InferencePlans> make_inference_plans(const Settings& settings) {
  return std::make_unique<cudnn::CudnnPlans>(settings);
}

}  // namespace resnet
