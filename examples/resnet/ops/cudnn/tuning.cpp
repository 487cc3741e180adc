// SPDX-License-Identifier: Apache-2.0

#include "tuning.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <penstock/cuda.hpp>

#include "batch_norm.hpp"
#include "elementwise.hpp"

namespace resnet::cudnn {

namespace {

constexpr int best_guesses = 8;  ///< that `timed` tries
constexpr std::size_t timed_runs = 5;

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  penstock::detail::check(cudaMalloc(&memory, bytes), "cudaMalloc", bytes);
  return memory;
}

/// Channels before or behind, and a few more: each lies on a multiple of 16 bytes.
std::int64_t widest(const ConvolutionShape& shape) {
  return (std::max(shape.in.c, shape.k) + 3) / 4 * 4;
}

/// The place of the fastest candidate. Of the first ones, or of all.
std::int64_t fastest(const GraphKey& key, bool all, cudnnHandle_t handle,
                     const std::function<float(const Plan&)>& time_plan) {
  Plan plan(key, {.handle = handle}, all);
  std::int64_t best = -1;
  float best_time = std::numeric_limits<float>::infinity();
  int tried = 0;
  for (std::int64_t i = 0; i < plan.candidates() && (all || tried < best_guesses); ++i) {
    if (!plan.build(i)) continue;
    const float time = time_plan(plan);
    if (std::isfinite(time)) ++tried;
    if (time < best_time) best = i, best_time = time;
  }
  // With none, going on behind the last tells why.
  return best >= 0 ? best : plan.candidates();
}

}  // namespace

Trial::Trial(const ConvolutionShape& shape, const Context& context, cudnnHandle_t handle,
             cudaStream_t stream)
    : shape_(shape),
      context_(context),
      handle_(handle),
      stream_(stream),
      x_(noise(context.precision, shape.in.count())),
      weights_(noise(context.precision, shape.weights())),
      y_(noise(context.precision, shape.out().count())) {
  if (context.fusion != Fusion::full) return;
  x_gradient_ = noise(context.precision, shape.in.count());
  channels_ = noise(Precision::fp32, 11 * widest(shape));
  scale_ = noise(context.precision, shape.in.c);
  bias_ = noise(context.precision, shape.in.c);
}

Trial::Memory Trial::noise(Precision precision, std::int64_t count) const {
  const bool is_16_bits = precision == Precision::fp16 || precision == Precision::bf16;
  Memory memory(allocate(static_cast<std::size_t>(count) * (is_16_bits ? 2 : 4)));
  fill_noise(precision, memory.get(), count, stream_);
  return memory;
}

/// A float for each channel, before or behind.
float* Trial::channels(std::int64_t i) const {
  return static_cast<float*>(channels_.get()) + i * widest(shape_);
}

BatchNorm Trial::norm() const {
  BatchNorm norm;
  norm.gamma = channels(0), norm.beta = channels(1);
  norm.running_mean = channels(2), norm.running_variance = channels(3);
  norm.mean = channels(4), norm.inverse_deviation = channels(5);
  norm.gamma_gradient = channels(6), norm.beta_gradient = channels(7);
  norm.scale = scale_.get(), norm.bias = bias_.get();
  return norm;
}

void Trial::run(const Plan& plan, Graph graph) {
  if (const std::size_t bytes = plan.workspace(); bytes > workspace_bytes_) {
    workspace_.reset();
    workspace_bytes_ = 0;
    workspace_.reset(allocate(bytes));
    workspace_bytes_ = bytes;
  }
  const void *x = x_.get(), *weights = weights_.get(), *y = y_.get();
  const void *scale = scale_.get(), *bias = bias_.get(), *dx = x_gradient_.get();
  const auto with = [&](std::initializer_list<const void*> operands) {
    plan.run(handle_, operands, workspace_.get());
  };
  switch (graph) {
    case Graph::forward:
      return with({x, weights, y});
    case Graph::data_gradient:
      return with({y, weights, x});
    case Graph::weight_gradient:
      return with({x, y, weights});
    case Graph::forward_statistics:
      return with({x, weights, y, channels(8), channels(9)});
    case Graph::normalized_forward_statistics:
      return with({x, scale, bias, weights, y, channels(8), channels(9)});
    case Graph::normalized_weight_gradient:
      return with({x, scale, bias, y, weights});
    case Graph::data_gradient_statistics:
      return with({y, weights, x, channels(4), channels(5), channels(0), channels(1), dx,
                   channels(6), channels(7), channels(8), channels(9), channels(10)});
    case Graph::inference:
      throw UnsupportedOperation("a trial of a training convolution has no graph of inference");
  }
}

float Trial::time(const Plan& plan, Graph graph) {
  return time_runs(stream_, [&] { run(plan, graph); });
}

Trial::Passes Trial::time_passes() {
  // A workspace of its own: earlier work of the operations, on another stream, may be in theirs.
  const Context context{
      context_.precision, context_.format, context_.fusion, context_.multiprocessors, {}};
  const Extents in = shape_.in, out = shape_.out();
  void *x = x_.get(), *y = y_.get(), *dx = x_gradient_.get();
  const auto time = [&](const auto& pass) { return time_runs(stream_, pass); };
  Passes passes{};
  passes.statistics = time([&] { batch_norm_statistics(context, out, y, norm(), stream_); });
  passes.normalisation =
      time([&] { batch_norm_apply(context, in, x, norm(), nullptr, nullptr, true, dx, stream_); });
  passes.gradient =
      time([&] {
        batch_norm_gradient(context, in, {x, x, dx, nullptr, dx, nullptr}, norm(), true, stream_);
      }) -
      time([&] { batch_norm_gradient_apply(context, in, x, dx, norm(), dx, stream_); });
  return passes;
}

float time_runs(cudaStream_t stream, const std::function<void()>& run) {
  penstock::Event start(cudaEventDefault), end(cudaEventDefault);
  std::array<float, timed_runs> milliseconds{};
  try {
    run();  // Loads the kernel.
    for (float& time : milliseconds) {
      start.record(stream);
      run();
      end.record(stream);
      penstock::detail::check(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
      penstock::detail::check(cudaEventElapsedTime(&time, start.get(), end.get()),
                              "cudaEventElapsedTime");
    }
  } catch (const penstock::CudaError& error) {
    if (error.code() != cudaErrorUnknown) throw;  // The device's own error, not cuDNN's refusal.
    return std::numeric_limits<float>::infinity();
  }
  auto* median = milliseconds.data() + timed_runs / 2;
  std::nth_element(milliseconds.data(), median, milliseconds.data() + timed_runs);
  return *median;
}

Plan choose_plan(const GraphKey& key, PlanChoice choice, cudnnHandle_t handle,
                 const std::function<float(const Plan&)>& time) {
  const bool all = choice == PlanChoice::exhaustive;
  std::int64_t candidate = choice == PlanChoice::heuristic ? 0 : fastest(key, all, handle, time);
  // A graph of its own: the one that was timed holds on to all that it has built.
  Plan plan(key, {.handle = handle}, all);
  while (!plan.build(candidate)) ++candidate;
  return plan;
}

Plan choose_plan(const GraphKey& key, PlanChoice choice, Trial& trial) {
  return choose_plan(key, choice, trial.handle(),
                     [&](const Plan& plan) { return trial.time(plan, key.graph); });
}

void drop_slower(ConvolutionPlans& plans, Trial& trial) {
  auto* first = &plan_of(plans, Graph::forward_statistics);
  const bool some = std::any_of(first, plans.data() + plans.size(),
                                [](const std::optional<Plan>& plan) { return plan.has_value(); });
  if (!some) return;
  const auto time = [&](Graph graph) {
    const std::optional<Plan>& plan = plan_of(plans, graph);
    return plan ? trial.time(*plan, graph) : std::numeric_limits<float>::infinity();
  };
  const Trial::Passes passes = trial.time_passes();
  float forward = time(Graph::forward) + passes.statistics;
  const float fused = time(Graph::forward_statistics);
  if (fused > forward) plan_of(plans, Graph::forward_statistics).reset();
  forward = std::min(forward, fused);
  const float apart = forward + time(Graph::weight_gradient) + time(Graph::data_gradient) +
                      passes.normalisation + passes.gradient;
  float together = 0;
  for (const Graph graph : normalized_graphs) together += time(graph);
  if (together > apart)
    for (const Graph graph : normalized_graphs) plan_of(plans, graph).reset();
}

}  // namespace resnet::cudnn
