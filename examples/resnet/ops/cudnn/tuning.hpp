// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which of a graph's engines: the heuristics' first, or the one that is fastest on this device; and
// whether fused graphs are faster than what they replace.

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "context.hpp"
#include "plan.hpp"

namespace resnet::cudnn {

/// A convolution's, by Graph; of the fused ones, those that are used.
using ConvolutionPlans = std::array<std::optional<Plan>, 7>;
inline std::optional<Plan>& plan_of(ConvolutionPlans& plans, Graph graph) {
  return plans[static_cast<std::size_t>(graph)];
}

/// Of use together alone: what one leaves out of memory, the others cannot read there.
inline constexpr std::array normalized_graphs{Graph::normalized_forward_statistics,
                                              Graph::normalized_weight_gradient,
                                              Graph::data_gradient_statistics};

/// Operands and workspace for one convolution's graphs, for as long as they are prepared.
class Trial {
 public:
  /// `stream` is the handle's. `context` outlives this.
  Trial(const ConvolutionShape&, const Context& context, cudnnHandle_t, cudaStream_t stream);

  /// Enqueues the plan of one of ConvolutionPlans' graphs. Grows the workspace.
  void run(const Plan&, Graph);
  /// The median of some runs on the device, in milliseconds, after one that is not counted.
  /// Infinite for a plan that was built and fails all the same. Blocks.
  float time(const Plan&, Graph);

  /// Passes over memory, in milliseconds.
  struct Passes {
    float statistics;     ///< of y
    float normalisation;  ///< of x
    float gradient;       ///< of x's batch norm, less its second half, which is always there
  };
  /// Blocks.
  Passes time_passes();

  cudnnHandle_t handle() const { return handle_; }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  using Memory = std::unique_ptr<void, Free>;
  Memory noise(Precision, std::int64_t count) const;
  float* channels(std::int64_t i) const;
  BatchNorm norm() const;

  ConvolutionShape shape_;
  const Context& context_;
  cudnnHandle_t handle_;
  cudaStream_t stream_;
  Memory x_, weights_, y_, x_gradient_, channels_, scale_, bias_, workspace_;
  std::size_t workspace_bytes_ = 0;
};

/// The median of some runs on the device, in milliseconds, after one that is not counted. Infinite
/// when cuDNN refuses to run. Blocks.
float time_runs(cudaStream_t, const std::function<void()>& run);

/// The chosen plan, built. `time` is what Trial::time is.
Plan choose_plan(const GraphKey&, PlanChoice, cudnnHandle_t,
                 const std::function<float(const Plan&)>& time);
/// The chosen plan, built. Blocks. Throws UnsupportedOperation when there is no engine.
Plan choose_plan(const GraphKey&, PlanChoice, Trial&);
/// Takes out the fused plans that take longer than the plans and passes which they replace. Blocks.
void drop_slower(ConvolutionPlans&, Trial&);

}  // namespace resnet::cudnn
