// SPDX-License-Identifier: Apache-2.0

#include "tuning.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <penstock/cuda.hpp>

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

/// The place of the fastest candidate. Of the first ones, or of all.
std::int64_t fastest(const GraphKey& key, bool all, Trial& trial) {
  Plan plan(key, {.handle = trial.handle()}, all);
  std::int64_t best = -1;
  float best_time = std::numeric_limits<float>::infinity();
  int tried = 0;
  for (std::int64_t i = 0; i < plan.candidates() && (all || tried < best_guesses); ++i) {
    if (!plan.build(i)) continue;
    ++tried;
    const float time = trial.time(plan, key.graph);
    if (time < best_time) best = i, best_time = time;
  }
  // With none, going on behind the last tells why.
  return best >= 0 ? best : plan.candidates();
}

}  // namespace

Trial::Trial(const ConvolutionShape& shape, Precision precision, cudnnHandle_t handle,
             cudaStream_t stream)
    : handle_(handle),
      stream_(stream),
      x_(noise(precision, shape.in.count())),
      weights_(noise(precision, shape.weights())),
      y_(noise(precision, shape.out().count())) {}

Trial::Memory Trial::noise(Precision precision, std::int64_t count) const {
  const bool is_16_bits = precision == Precision::fp16 || precision == Precision::bf16;
  Memory memory(allocate(static_cast<std::size_t>(count) * (is_16_bits ? 2 : 4)));
  fill_noise(precision, memory.get(), count, stream_);
  return memory;
}

void Trial::run(const Plan& plan, Graph graph) {
  if (const std::size_t bytes = plan.workspace(); bytes > workspace_bytes_) {
    workspace_.reset();
    workspace_bytes_ = 0;
    workspace_.reset(allocate(bytes));
    workspace_bytes_ = bytes;
  }
  void* workspace = workspace_.get();
  if (graph == Graph::forward)
    plan.run(handle_, {x_.get(), weights_.get(), y_.get()}, workspace);
  else if (graph == Graph::data_gradient)
    plan.run(handle_, {y_.get(), weights_.get(), x_.get()}, workspace);
  else
    plan.run(handle_, {x_.get(), y_.get(), weights_.get()}, workspace);
}

float Trial::time(const Plan& plan, Graph graph) {
  penstock::Event start(cudaEventDefault), end(cudaEventDefault);
  std::array<float, timed_runs> milliseconds{};
  try {
    run(plan, graph);  // Loads the kernel.
    for (float& time : milliseconds) {
      start.record(stream_);
      run(plan, graph);
      end.record(stream_);
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

Plan choose_plan(const GraphKey& key, PlanChoice choice, Trial& trial) {
  const bool all = choice == PlanChoice::exhaustive;
  std::int64_t candidate = choice == PlanChoice::heuristic ? 0 : fastest(key, all, trial);
  // A graph of its own: the one that was timed holds on to all that it has built.
  Plan plan(key, {.handle = trial.handle()}, all);
  while (!plan.build(candidate)) ++candidate;
  return plan;
}

}  // namespace resnet::cudnn
