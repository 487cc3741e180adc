// SPDX-License-Identifier: Apache-2.0
#pragma once

// The convolutions' plans by shape: prepared once, then looked up.

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <memory>
#include <penstock/cuda.hpp>
#include <string>
#include <unordered_map>

#include "context.hpp"
#include "plan.hpp"
#include "plan_file.hpp"

namespace resnet::cudnn {

class Convolutions {
 public:
  Convolutions(const Settings& settings, Context& context);

  /// Finds, chooses or times the shape's three plans, runs each once (its kernels are loaded then),
  /// and keeps workspace for them. Blocks. Does nothing for a shape that it has.
  void prepare(const ConvolutionShape&);

  /// Enqueues one of the three graphs that are not fused, with the operands that Graph names.
  void run(Graph, const ConvolutionShape&, const void* a, const void* b, void* result,
           cudaStream_t);

 private:
  struct HashShape {
    std::size_t operator()(const ConvolutionShape&) const noexcept;
  };
  struct Close {
    void operator()(cudnnContext* handle) const { cudnnDestroy(handle); }
  };
  using Plans = std::array<Plan, 3>;  ///< by Graph: forward, data_gradient, weight_gradient

  std::unique_ptr<Plan> saved(const GraphKey&) const;
  Plan make(Graph, const ConvolutionShape&, class Trial&);

  Settings settings_;
  Context& context_;
  penstock::Stream stream_;  ///< plans are prepared on
  std::unique_ptr<cudnnContext, Close> handle_;
  PlanFile file_;
  std::unordered_map<ConvolutionShape, Plans, HashShape> plans_;
};

/// "cuDNN 9.19.0"
std::string cudnn_version();

}  // namespace resnet::cudnn
