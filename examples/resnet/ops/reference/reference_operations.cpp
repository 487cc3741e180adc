// SPDX-License-Identifier: Apache-2.0
#include "reference_operations.hpp"

#include <algorithm>
#include <penstock/error.hpp>
#include <utility>

#include "../../../common/check.hpp"
#include "batch_norm.hpp"
#include "enqueue.hpp"
#include "fused_convolution.hpp"
#include "layers_in_float.hpp"
#include "parallel.hpp"

namespace resnet::reference {
namespace {

const float* input(const void* memory) {
  return static_cast<const float*>(memory);
}
float* output(void* memory) {
  return static_cast<float*>(memory);
}

/// Waits for the device when there is something to give up: work that is queued uses it.
void grow(std::vector<float>& memory, std::size_t needed) {
  if (needed <= memory.size()) return;
  if (!memory.empty()) examples::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  memory = {};
  memory.resize(needed);
}

/// What a step that is not skipped writes.
void tell_updated(const SgdState& state) {
  tell(writes(state.parameters, state.weights + state.others));
  tell(writes(state.momenta, state.weights + state.others));
  tell(writes(output(state.compute_weights), state.weights));
  tell(writes(state.step, 1));
}

}  // namespace

ReferenceOperations::ReferenceOperations(const Settings& settings)
    : settings_(settings),
      threads_(default_threads()),
      batch_norm_parts_(settings.precision, settings.format, threads_) {}

ReferenceOperations::~ReferenceOperations() {
  cudaDeviceSynchronize();
}

void ReferenceOperations::from_float(const float* in, void* out, std::int64_t count,
                                     cudaStream_t stream) {
  enqueue<kernel::from_float>(stream, {reads(in, count), stores(out, count)},
                              [=] { std::copy_n(in, count, output(out)); });
}

void ReferenceOperations::to_float(const void* in, float* out, std::int64_t count,
                                   cudaStream_t stream) {
  enqueue<kernel::to_float>(stream, {reads(input(in), count), writes(out, count)},
                            [=] { std::copy_n(input(in), count, out); });
}

// ---- Convolution --------------------------------------------------------------------------------

void ReferenceOperations::prepare(const ConvolutionShape& shape) {
  plan(shape);
}

const Convolution<float>& ReferenceOperations::plan(const ConvolutionShape& shape) {
  for (const Prepared& one : prepared_)
    if (one.shape == shape) return one.convolution;
  const Convolution<float>& added =
      prepared_.emplace_back(Prepared{shape, {shape, settings_.format}}).convolution;
  grow(scratch_, added.scratch(threads_));
  if (settings_.fusion == Fusion::full)
    grow(normalized_, static_cast<std::size_t>(shape.in.count()));
  return added;
}

Range ReferenceOperations::stores(void* memory, std::int64_t count) const {
  return reference::stores(output(memory), count, settings_.precision);
}

void ReferenceOperations::round(float* values, std::int64_t count) const {
  round_all(settings_.precision, values, count, threads_);
}

Scratch<float> ReferenceOperations::scratch() {
  tell(writes(scratch_.data(), 1));
  return {scratch_.data(), threads_};
}

void ReferenceOperations::convolution(const ConvolutionShape& shape, const void* x,
                                      const void* weights, void* y, cudaStream_t stream) {
  enqueue<kernel::convolution>(
      stream,
      {reads(input(x), shape.in.count()), reads(input(weights), shape.weights()),
       stores(y, shape.out().count())},
      [=, this, &plan = plan(shape)] {
        plan.forward(input(x), input(weights), output(y), scratch());
      });
}

void ReferenceOperations::convolution_data_gradient(const ConvolutionShape& shape,
                                                    const void* y_gradient, const void* weights,
                                                    void* x_gradient, cudaStream_t stream) {
  enqueue<kernel::convolution_data_gradient>(
      stream,
      {reads(input(y_gradient), shape.out().count()), reads(input(weights), shape.weights()),
       stores(x_gradient, shape.in.count())},
      [=, this, &plan = plan(shape)] {
        plan.data_gradient(input(y_gradient), input(weights), output(x_gradient), scratch());
      });
}

void ReferenceOperations::convolution_weight_gradient(const ConvolutionShape& shape, const void* x,
                                                      const void* y_gradient, void* weight_gradient,
                                                      cudaStream_t stream) {
  enqueue<kernel::convolution_weight_gradient>(
      stream,
      {reads(input(x), shape.in.count()), reads(input(y_gradient), shape.out().count()),
       stores(weight_gradient, shape.weights())},
      [=, this, &plan = plan(shape)] {
        plan.weight_gradient(input(x), input(y_gradient), output(weight_gradient), scratch());
      });
}

// ---- Batch norm ---------------------------------------------------------------------------------

void ReferenceOperations::batch_norm(const Extents& extents, const void* x, const BatchNorm& norm,
                                     const void* residual, bool relu, void* y,
                                     cudaStream_t stream) {
  const ActivationLayout layout(extents, settings_.format);
  enqueue<kernel::batch_norm>(
      stream,
      {reads(input(x), extents.count()), reads(norm.gamma, extents.c), reads(norm.beta, extents.c),
       writes(norm.running_mean, extents.c), writes(norm.running_variance, extents.c),
       writes(norm.mean, extents.c), writes(norm.inverse_deviation, extents.c),
       reads(input(residual), extents.count()), stores(y, extents.count())},
      [=, threads = threads_] {
        reference::batch_norm(layout, input(x), normalisation(norm), input(residual), relu,
                              output(y), threads);
      });
}

void ReferenceOperations::batch_norm_inference(const Extents& extents, const void* x,
                                               const BatchNorm& norm, const void* residual,
                                               bool relu, void* y, cudaStream_t stream) {
  const ActivationLayout layout(extents, settings_.format);
  enqueue<kernel::batch_norm_inference>(
      stream,
      {reads(input(x), extents.count()), reads(norm.gamma, extents.c), reads(norm.beta, extents.c),
       reads(norm.running_mean, extents.c), reads(norm.running_variance, extents.c),
       reads(input(residual), extents.count()), stores(y, extents.count())},
      [=, threads = threads_] {
        reference::batch_norm_inference(layout, input(x), normalisation(norm), input(residual),
                                        relu, output(y), threads);
      });
}

void ReferenceOperations::batch_norm_gradient(const Extents& extents, const void* x, const void* y,
                                              const void* y_gradient, const void* more_y_gradient,
                                              const BatchNorm& norm, bool relu, void* x_gradient,
                                              void* residual_gradient, cudaStream_t stream) {
  const ActivationLayout layout(extents, settings_.format);
  const BatchNormGradient<float> of{input(x),           input(y),
                                    input(y_gradient),  input(more_y_gradient),
                                    output(x_gradient), output(residual_gradient)};
  enqueue<kernel::batch_norm_gradient>(
      stream,
      {reads(of.x, extents.count()), reads(relu ? of.y : nullptr, extents.count()),
       reads(of.y_gradient, extents.count()), reads(of.more_y_gradient, extents.count()),
       reads(norm.mean, extents.c), reads(norm.inverse_deviation, extents.c),
       reads(norm.gamma, extents.c), writes(norm.gamma_gradient, extents.c),
       writes(norm.beta_gradient, extents.c), stores(of.x_gradient, extents.count()),
       stores(of.residual_gradient, extents.count())},
      [=, threads = threads_] {
        reference::batch_norm_gradient(layout, of, normalisation(norm), relu, threads);
      });
}

// ---- Convolutions with the batch norms around them ----------------------------------------------

bool ReferenceOperations::fuses(const ConvolutionShape&, bool) {
  return settings_.fusion == Fusion::full;
}

template <template <class> class Name, class Work>
void ReferenceOperations::enqueue_fused(const ConvolutionShape& shape, bool normalized_input,
                                        cudaStream_t stream, std::vector<Range> touched,
                                        Work work) {
  if (!fuses(shape, normalized_input))
    throw UnsupportedOperation("a fused operation on a shape that is not fused");
  const ActivationLayout in(shape.in, settings_.format), out(shape.out(), settings_.format);
  enqueue<Name>(stream, std::move(touched), [=, this, &plan = plan(shape)] {
    if (normalized_input) tell(writes(normalized_.data(), in.extents.count()));
    work(
        FusedConvolution<float>{plan, in, out, normalized_.data(), scratch(), settings_.precision});
  });
}

void ReferenceOperations::convolution_statistics(const ConvolutionShape& shape, const void* x,
                                                 const BatchNorm* before, const void* weights,
                                                 void* y, const BatchNorm& norm,
                                                 cudaStream_t stream) {
  const bool is_raw = before != nullptr;
  const auto input_norm = normalisation(is_raw ? *before : BatchNorm());
  enqueue_fused<kernel::convolution_statistics>(
      shape, is_raw, stream,
      {reads(input(x), shape.in.count()), reads(input_norm.scale, shape.in.c),
       reads(input_norm.bias, shape.in.c), reads(input(weights), shape.weights()),
       stores(y, shape.out().count()), reads(norm.gamma, shape.k), reads(norm.beta, shape.k),
       writes(norm.running_mean, shape.k), writes(norm.running_variance, shape.k),
       writes(norm.mean, shape.k), writes(norm.inverse_deviation, shape.k),
       writes(output(norm.scale), shape.k), writes(output(norm.bias), shape.k)},
      [=](const FusedConvolution<float>& fused) {
        fused.forward(input(x), is_raw ? &input_norm : nullptr, input(weights), output(y),
                      normalisation(norm));
      });
}

void ReferenceOperations::batch_norm_apply(const Extents& extents, const void* x,
                                           const BatchNorm& norm, const void* residual,
                                           const BatchNorm* residual_norm, bool relu, void* y,
                                           cudaStream_t stream) {
  const ActivationLayout layout(extents, settings_.format);
  const bool is_raw = residual_norm != nullptr;
  const auto other_norm = normalisation(is_raw ? *residual_norm : BatchNorm());
  enqueue<kernel::batch_norm_apply>(
      stream,
      {reads(input(x), extents.count()), reads(input(norm.scale), extents.c),
       reads(input(norm.bias), extents.c), reads(input(residual), extents.count()),
       reads(other_norm.scale, extents.c), reads(other_norm.bias, extents.c),
       stores(y, extents.count())},
      [=, this, threads = threads_] {
        const float *none = nullptr, *added = input(residual);
        if (is_raw) {
          reference::batch_norm_apply(layout, added, other_norm, none, false, output(y), threads);
          round(output(y), extents.count());
          added = output(y);
        }
        reference::batch_norm_apply(layout, input(x), normalisation(norm), added, relu, output(y),
                                    threads);
      });
}

void ReferenceOperations::normalized_weight_gradient(const ConvolutionShape& shape, const void* x,
                                                     const BatchNorm& before,
                                                     const void* y_gradient, void* weight_gradient,
                                                     cudaStream_t stream) {
  enqueue_fused<kernel::normalized_weight_gradient>(
      shape, true, stream,
      {reads(input(x), shape.in.count()), reads(input(before.scale), shape.in.c),
       reads(input(before.bias), shape.in.c), reads(input(y_gradient), shape.out().count()),
       stores(weight_gradient, shape.weights())},
      [=](const FusedConvolution<float>& fused) {
        fused.weight_gradient(input(x), normalisation(before), input(y_gradient),
                              output(weight_gradient));
      });
}

void ReferenceOperations::normalized_data_gradient(const ConvolutionShape& shape,
                                                   const void* y_gradient, const void* weights,
                                                   const void* x, const BatchNorm& before,
                                                   void* x_gradient, cudaStream_t stream) {
  enqueue_fused<kernel::normalized_data_gradient>(
      shape, true, stream,
      {reads(input(y_gradient), shape.out().count()), reads(input(weights), shape.weights()),
       reads(input(x), shape.in.count()), reads(input(before.scale), shape.in.c),
       reads(input(before.bias), shape.in.c), reads(before.mean, shape.in.c),
       reads(before.inverse_deviation, shape.in.c), reads(before.gamma, shape.in.c),
       writes(before.gamma_gradient, shape.in.c), writes(before.beta_gradient, shape.in.c),
       stores(x_gradient, shape.in.count())},
      [=](const FusedConvolution<float>& fused) {
        fused.data_gradient(input(y_gradient), input(weights), input(x), normalisation(before),
                            output(x_gradient));
      });
}

// ---- Pooling ------------------------------------------------------------------------------------

bool ReferenceOperations::fuses_pool(const PoolShape& shape) {
  if (settings_.fusion != Fusion::full) return false;
  grow(normalized_, static_cast<std::size_t>(shape.in.count()));
  return true;
}

void ReferenceOperations::batch_norm_max_pool(const PoolShape& shape, const void* x,
                                              const BatchNorm& norm, void* y, std::uint8_t* chosen,
                                              cudaStream_t stream) {
  if (!fuses_pool(shape)) throw UnsupportedOperation("a fused operation on a pool that is not");
  const ActivationLayout in(shape.in, settings_.format);
  const std::int64_t outputs = shape.out().count(), channels = shape.in.c;
  enqueue<kernel::batch_norm_max_pool>(
      stream,
      {reads(input(x), shape.in.count()), reads(norm.gamma, channels), reads(norm.beta, channels),
       reads(norm.mean, channels), reads(norm.inverse_deviation, channels), stores(y, outputs),
       writes(chosen, outputs)},
      [=, this] {
        const float* none = nullptr;
        float* room = normalized_.data();
        tell(writes(room, shape.in.count()));
        reference::batch_norm_apply(in, input(x), normalisation(norm), none, true, room, threads_);
        round(room, shape.in.count());
        reference::max_pool(shape, settings_.format, room, output(y), chosen, threads_);
      });
}

void ReferenceOperations::batch_norm_max_pool_gradient(
    const PoolShape& shape, const void* x, const std::uint8_t* chosen, const void* y_gradient,
    const void* more_y_gradient, const BatchNorm& norm, void* x_gradient, cudaStream_t stream) {
  if (!fuses_pool(shape)) throw UnsupportedOperation("a fused operation on a pool that is not");
  const ActivationLayout in(shape.in, settings_.format);
  const std::int64_t outputs = shape.out().count(), channels = shape.in.c;
  enqueue<kernel::batch_norm_max_pool_gradient>(
      stream,
      {reads(input(x), shape.in.count()), reads(chosen, outputs), reads(input(y_gradient), outputs),
       reads(input(more_y_gradient), outputs), reads(input(norm.scale), channels),
       reads(input(norm.bias), channels), reads(norm.gamma, channels), reads(norm.mean, channels),
       reads(norm.inverse_deviation, channels), writes(norm.gamma_gradient, channels),
       writes(norm.beta_gradient, channels), stores(x_gradient, shape.in.count())},
      [=, this] {
        const float* none = nullptr;
        float *room = normalized_.data(), *gradient = output(x_gradient);
        tell(writes(room, shape.in.count()));
        reference::max_pool_gradient(shape, settings_.format, chosen, input(y_gradient),
                                     input(more_y_gradient), gradient, threads_);
        round(gradient, shape.in.count());
        reference::batch_norm_apply(in, input(x), normalisation(norm), none, true, room, threads_);
        round(room, shape.in.count());
        reference::batch_norm_gradient(in, {input(x), room, gradient, none, gradient, nullptr},
                                       normalisation(norm), true, threads_);
      });
}

void ReferenceOperations::max_pool(const PoolShape& shape, const void* x, void* y,
                                   std::uint8_t* chosen, cudaStream_t stream) {
  const std::int64_t outputs = shape.out().count();
  enqueue<kernel::max_pool>(
      stream, {reads(input(x), shape.in.count()), stores(y, outputs), writes(chosen, outputs)},
      [=, format = settings_.format, threads = threads_] {
        reference::max_pool(shape, format, input(x), output(y), chosen, threads);
      });
}

void ReferenceOperations::max_pool_gradient(const PoolShape& shape, const std::uint8_t* chosen,
                                            const void* y_gradient, const void* more_y_gradient,
                                            void* x_gradient, cudaStream_t stream) {
  const std::int64_t outputs = shape.out().count();
  enqueue<kernel::max_pool_gradient>(
      stream,
      {reads(chosen, outputs), reads(input(y_gradient), outputs),
       reads(input(more_y_gradient), outputs), stores(x_gradient, shape.in.count())},
      [=, format = settings_.format, threads = threads_] {
        reference::max_pool_gradient(shape, format, chosen, input(y_gradient),
                                     input(more_y_gradient), output(x_gradient), threads);
      });
}

void ReferenceOperations::average_pool(const Extents& extents, const void* x, void* y,
                                       cudaStream_t stream) {
  const ActivationLayout layout(extents, settings_.format);
  enqueue<kernel::average_pool>(
      stream, {reads(input(x), extents.count()), stores(y, extents.n * extents.c)},
      [=, threads = threads_] { reference::average_pool(layout, input(x), output(y), threads); });
}

void ReferenceOperations::average_pool_gradient(const Extents& extents, const void* y_gradient,
                                                void* x_gradient, cudaStream_t stream) {
  const ActivationLayout layout(extents, settings_.format);
  enqueue<kernel::average_pool_gradient>(
      stream,
      {reads(input(y_gradient), extents.n * extents.c), stores(x_gradient, extents.count())},
      [=, threads = threads_] {
        reference::average_pool_gradient(layout, input(y_gradient), output(x_gradient), threads);
      });
}

// ---- The last layer, the loss, the optimizer ----------------------------------------------------

void ReferenceOperations::linear(std::int64_t n, std::int64_t features, std::int64_t classes,
                                 const void* x, const void* weights, const float* bias,
                                 float* logits, cudaStream_t stream) {
  enqueue<kernel::linear>(
      stream,
      {reads(input(x), n * features), reads(input(weights), classes * features),
       reads(bias, classes), writes(logits, n * classes)},
      [=, threads = threads_] {
        reference::linear({n, features, classes}, input(x), input(weights), bias, logits, threads);
      });
}

void ReferenceOperations::linear_gradient(std::int64_t n, std::int64_t features,
                                          std::int64_t classes, const void* x, const void* weights,
                                          const float* logit_gradient, void* x_gradient,
                                          void* weight_gradient, float* bias_gradient,
                                          cudaStream_t stream) {
  enqueue<kernel::linear_gradient>(
      stream,
      {reads(input(x), n * features), reads(input(weights), classes * features),
       reads(logit_gradient, n * classes), stores(x_gradient, n * features),
       stores(weight_gradient, classes * features), writes(bias_gradient, classes)},
      [=, threads = threads_] {
        reference::linear_gradient({n, features, classes}, input(x), input(weights), logit_gradient,
                                   output(x_gradient), output(weight_gradient), bias_gradient,
                                   threads);
      });
}

void ReferenceOperations::cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                                        const std::int32_t* labels, const LossScale* loss_scale,
                                        float* logit_gradient, Metrics* metrics,
                                        cudaStream_t stream) {
  enqueue<kernel::cross_entropy>(
      stream,
      {reads(logits, n * classes), reads(labels, n),
       reads(loss_scale == nullptr ? nullptr : &loss_scale->scale, 1),
       writes(logit_gradient, n * classes), writes(metrics, 1)},
      [=] {
        const double scale = loss_scale == nullptr ? 1 : static_cast<double>(loss_scale->scale);
        const LossSums sums =
            reference::cross_entropy(n, classes, logits, labels, scale, logit_gradient);
        metrics->loss += static_cast<float>(sums.loss);
        metrics->correct += static_cast<float>(sums.correct);
        metrics->samples += static_cast<float>(sums.samples);
      });
}

void ReferenceOperations::sgd(const SgdState& state, const SgdOptions& options,
                              cudaStream_t stream) {
  enqueue<kernel::sgd>(
      stream,
      {reads(state.step, 1), reads(input(state.weight_gradients), state.weights),
       reads(state.other_gradients, state.others)},
      [=, this, threads = threads_] {
        Update<float> by{static_cast<float>(learning_rate(options.schedule, *state.step)),
                         options.momentum, options.weight_decay};
        by.gradient_factor = 1 / static_cast<float>(state.ranks);
        // What happens to it depends on its numbers; ThreadSanitizer sees it here.
        if (state.loss_scale != nullptr) {
          by.gradient_factor /= state.loss_scale->scale;
          const bool finite = all_finite(state.weights, input(state.weight_gradients)) &&
                              all_finite(state.others, state.other_gradients);
          if (!accept(*state.loss_scale, finite, options.growth_interval)) {
            if (state.metrics != nullptr) ++state.metrics->skipped;
            return;
          }
        }
        tell_updated(state);
        update(by, state.weights, input(state.weight_gradients), state.momenta, state.parameters,
               threads);
        by.decay = 0;
        update(by, state.others, state.other_gradients, state.momenta + state.weights,
               state.parameters + state.weights, threads);
        if (state.compute_weights != nullptr) {
          std::copy_n(state.parameters, state.weights, output(state.compute_weights));
          round(output(state.compute_weights), state.weights);
        }
        ++*state.step;
      });
}

}  // namespace resnet::reference

namespace resnet {

std::unique_ptr<Operations> make_operations(const Settings& settings) {
  if (settings.precision == Precision::int8)
    throw std::invalid_argument("int8 is for inference alone");
  return std::make_unique<reference::ReferenceOperations>(settings);
}

std::string operations_name() {
  return "reference";
}

}  // namespace resnet
