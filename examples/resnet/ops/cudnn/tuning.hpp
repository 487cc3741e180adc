// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which of a graph's engines: the heuristics' first, or the one that is fastest on this device.

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plan.hpp"

namespace resnet::cudnn {

/// Operands and workspace for one convolution's graphs, for as long as they are prepared.
class Trial {
 public:
  /// `stream` is the handle's.
  Trial(const ConvolutionShape&, Precision, cudnnHandle_t, cudaStream_t stream);

  /// Enqueues the plan of one of the three graphs that are not fused. Grows the workspace.
  void run(const Plan&, Graph);
  /// The median of some runs on the device, in milliseconds, after one that is not counted.
  /// Infinite for a plan that was built and fails all the same. Blocks.
  float time(const Plan&, Graph);

  cudnnHandle_t handle() const { return handle_; }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  using Memory = std::unique_ptr<void, Free>;
  Memory noise(Precision, std::int64_t count) const;

  cudnnHandle_t handle_;
  cudaStream_t stream_;
  Memory x_, weights_, y_, workspace_;
  std::size_t workspace_bytes_ = 0;
};

/// The chosen plan, built. Blocks. Throws UnsupportedOperation when there is no engine.
Plan choose_plan(const GraphKey&, PlanChoice, Trial&);

}  // namespace resnet::cudnn
