// SPDX-License-Identifier: Apache-2.0
#include "inference.hpp"

#include <algorithm>
#include <stdexcept>

#include "enqueue.hpp"
#include "inference_layers.hpp"
#include "layers_in_float.hpp"
#include "parallel.hpp"

namespace resnet::reference {

// ---- Plans --------------------------------------------------------------------------------------

ReferencePlans::ReferencePlans(const Settings& settings)
    : settings_(settings), threads_(default_threads()) {
  if (settings.precision == Precision::int8 && settings.format != Format::nhwc)
    throw std::invalid_argument("int8 is there in nhwc alone");
}

void ReferencePlans::from_float(Precision precision, const float* in, void* out, std::int64_t count,
                                cudaStream_t stream) const {
  auto* rounded = static_cast<float*>(out);
  enqueue<kernel::from_float>(stream, {reads(in, count), writes(rounded, count)},
                              [=] { round_all(precision, in, rounded, count); });
}

void ReferencePlans::prepare(const InferenceConvolution& convolution) {
  for (const PreparedConvolution& one : prepared_)
    if (one.convolution == convolution) return;
  if (in_use_) throw std::logic_error("a convolution is prepared while operations are there");
  const PreparedConvolution& added = prepared_.emplace_back(convolution, settings_.format);
  scratch_bytes_ = std::max(scratch_bytes_, added.scratch(threads_));
}

const PreparedConvolution& ReferencePlans::find(const InferenceConvolution& convolution) const {
  for (const PreparedConvolution& one : prepared_)
    if (one.convolution == convolution) return one;
  throw std::logic_error("a convolution that was not prepared");
}

std::string ReferencePlans::engine(const InferenceConvolution& convolution) const {
  return find(convolution).in_integers ? "reference, in integers" : "reference, in float";
}

std::unique_ptr<InferenceOperations> ReferencePlans::make_operations() {
  in_use_ = true;
  return std::make_unique<ReferenceInference>(*this);
}

// ---- Operations ---------------------------------------------------------------------------------

ReferenceInference::ReferenceInference(const ReferencePlans& plans)
    : plans_(plans), scratch_(plans.scratch_bytes()) {}

ReferenceInference::~ReferenceInference() {
  cudaDeviceSynchronize();
}

Scratch<std::byte> ReferenceInference::scratch() {
  tell(writes(scratch_.data(), 1));
  return {scratch_.data(), plans_.threads()};
}

namespace {

template <class T>
void enqueue_conversion(const ReferencePlans& plans, const ImageInput& input, const T* images,
                        void* x, cudaStream_t stream) {
  const Settings& settings = plans.settings();
  const std::int64_t count = input.images.count();
  auto* converted = static_cast<float*>(x);
  enqueue<kernel::convert>(stream, {reads(images, count), writes(converted, count)},
                           [=, precision = floating(settings.precision), format = settings.format,
                            threads = plans.threads()] {
                             convert_images(input, precision, format, images, converted, threads);
                           });
}

}  // namespace

void ReferenceInference::convert(const ImageInput& input, const float* images, void* x,
                                 cudaStream_t stream) {
  enqueue_conversion(plans_, input, images, x, stream);
}

void ReferenceInference::convert(const ImageInput& input, const std::uint8_t* images, void* x,
                                 cudaStream_t stream) {
  enqueue_conversion(plans_, input, images, x, stream);
}

void ReferenceInference::convolution(const InferenceConvolution& what, const void* x,
                                     const ConvolutionOperands& operands, const void* residual,
                                     void* y, cudaStream_t stream) {
  const PreparedConvolution& plan = plans_.find(what);
  const ConvolutionShape& shape = what.shape;
  const std::size_t operand_bytes = plans_.element_bytes(what.precision);
  const std::size_t result_bytes = plans_.element_bytes(what.result);
  enqueue<kernel::convolution>(
      stream,
      {reads(x, shape.in.count(), operand_bytes),
       reads(operands.weights, shape.weights(), operand_bytes), reads(operands.bias, shape.k),
       reads(operands.scale, shape.k), reads(operands.residual_scale, 1),
       reads(residual, shape.out().count(), result_bytes),
       writes(y, shape.out().count(), result_bytes)},
      [=, this, &plan, fusion = plans_.settings().fusion] {
        plan.run(fusion, x, operands, residual, y, scratch());
      });
}

void ReferenceInference::max_pool(const PoolShape& shape, Precision precision, const void* x,
                                  void* y, cudaStream_t stream) {
  const std::size_t bytes = plans_.element_bytes(precision);
  enqueue<kernel::max_pool>(
      stream, {reads(x, shape.in.count(), bytes), writes(y, shape.out().count(), bytes)},
      [=, format = plans_.settings().format, threads = plans_.threads()] {
        reference::max_pool(shape, format, precision, x, y, threads);
      });
}

void ReferenceInference::average_pool(const Extents& extents, Precision precision, const void* x,
                                      float scale, void* y, cudaStream_t stream) {
  const ActivationLayout layout(extents, plans_.settings().format);
  auto* means = static_cast<float*>(y);
  enqueue<kernel::average_pool>(stream,
                                {reads(x, extents.count(), plans_.element_bytes(precision)),
                                 writes(means, extents.n * extents.c)},
                                [=, threads = plans_.threads()] {
                                  reference::average_pool(layout, precision, x, scale, means,
                                                          threads);
                                });
}

void ReferenceInference::linear(std::int64_t n, std::int64_t features, std::int64_t classes,
                                const void* x, const void* weights, const float* bias,
                                float* logits, cudaStream_t stream) {
  const auto* samples = static_cast<const float*>(x);
  const auto* rows = static_cast<const float*>(weights);
  enqueue<kernel::linear>(
      stream,
      {reads(samples, n * features), reads(rows, classes * features), reads(bias, classes),
       writes(logits, n * classes)},
      [=, threads = plans_.threads()] {
        reference::linear({n, features, classes}, samples, rows, bias, logits, threads);
      });
}

}  // namespace resnet::reference

namespace resnet {

std::unique_ptr<InferencePlans> make_inference_plans(const Settings& settings) {
  return std::make_unique<reference::ReferencePlans>(settings);
}

}  // namespace resnet
