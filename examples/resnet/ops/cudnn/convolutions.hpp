// SPDX-License-Identifier: Apache-2.0
#pragma once

// The convolutions' plans by shape: prepared once, then looked up. With Fusion::full, also those of
// the fused graphs, where cuDNN has engines (fp16 in nhwc); where plans are timed, only if they are
// faster than what they replace.

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <penstock/cuda.hpp>
#include <string>
#include <unordered_map>

#include "context.hpp"
#include "handle.hpp"
#include "plan.hpp"
#include "plan_file.hpp"
#include "tuning.hpp"

namespace resnet::cudnn {

class Convolutions {
 public:
  Convolutions(const Settings& settings, Context& context);

  /// Finds, chooses or times the shape's plans, runs each once (its kernels are loaded then), and
  /// keeps workspace for them. Blocks. Does nothing for a shape that it has.
  void prepare(const ConvolutionShape& shape) { plans(shape); }

  /// Whether there is a plan to use; of normalized_graphs there are all or none. Prepares.
  bool has(Graph graph, const ConvolutionShape& shape) {
    return plan_of(plans(shape), graph).has_value();
  }

  /// Enqueues a graph on the operands that Graph names. UnsupportedOperation without a plan.
  void run(Graph, const ConvolutionShape&, std::initializer_list<const void*> operands,
           cudaStream_t);

  /// A float for each channel: what a fused graph writes for the next kernel alone. i: 0 to 2. In
  /// the workspace: it is as it was left until the next operation.
  float* channel_sums(const ConvolutionShape&, std::size_t i) const;

 private:
  struct HashShape {
    std::size_t operator()(const ConvolutionShape&) const noexcept;
  };

  ConvolutionPlans& plans(const ConvolutionShape&);
  GraphKey key(Graph, const ConvolutionShape&) const;
  const PlanFile::Bytes* find(const GraphKey&) const;
  std::optional<Plan> saved(const GraphKey&) const;
  void save(const GraphKey&, const std::optional<Plan>&);
  Plan make(const GraphKey&, Trial&);
  void add_fused(const ConvolutionShape&, Trial&, ConvolutionPlans&);

  Settings settings_;
  Context& context_;
  penstock::Stream stream_;  ///< plans are prepared on
  Handle handle_;
  PlanFile file_;
  std::unordered_map<ConvolutionShape, ConvolutionPlans, HashShape> plans_;
};

/// "cuDNN 9.19.0"
std::string cudnn_version();
/// What a saved plan depends on: that, and the current device.
std::string environment();

}  // namespace resnet::cudnn
