// SPDX-License-Identifier: Apache-2.0
#pragma once

// A cuDNN graph around one convolution, and an engine that runs it.
//
//   Plan plan({Graph::forward, shape, Precision::fp16, Format::nhwc}, {.handle = handle});
//   for (std::int64_t i = 0; !plan.build(i); ++i) {}   // the first of its candidates that works
//   plan.run(handle, {x, weights, y}, workspace);      // plan.workspace() bytes
//
// cuDNN's front end stays inside of plan.cpp: it takes long to compile.

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "../ops.hpp"

namespace resnet::cudnn {

/// What is computed, from which operands (in the order of Plan::run). x: before the convolution, y:
/// behind it, d: a gradient. What belongs to a channel is a float, but for `scale` and `bias` that
/// x is multiplied with and added to: these are of the key's precision.
enum class Graph {
  forward,          ///< x, weights, y; int8: y is int32
  data_gradient,    ///< dy, weights, dx
  weight_gradient,  ///< x, dy, dweights
  /// x, weights, y, sum of y, sum of y * y: batch statistics in the epilogue.
  forward_statistics,
  /// x, scale, bias, weights, y, sum of y, sum of y * y: and of relu(x * scale + bias).
  normalized_forward_statistics,
  /// x, scale, bias, dy, dweights: with relu(x * scale + bias) for x.
  normalized_weight_gradient,
  /// dy, weights, x, mean, inverse deviation, gamma, beta, dx, dgamma, dbeta, and three
  /// coefficients of the next pass: dx is the gradient through ReLU, of the normalised x.
  data_gradient_statistics,
  /// x, weights, [scale,] bias, [residual, [its scale,]] y: GraphKey::epilogue says what there is;
  /// the scales are there in int8. Of inference.hpp's formula.
  inference,
};

/// What follows the convolution of Graph::inference, beside the bias.
struct Epilogue {
  bool residual = false, relu = false;
  bool narrow_bias = false;  ///< of x's type, not float
  bool operator==(const Epilogue&) const = default;
};

struct GraphKey {
  Graph graph = Graph::forward;
  ConvolutionShape shape;
  Precision precision = Precision::fp32;
  Format format = Format::nchw;
  bool deterministic = false;
  Epilogue epilogue = {};

  /// One line without blanks at its ends; equal keys have equal text.
  std::string text() const;
  bool operator==(const GraphKey&) const = default;
};

/// What plans are made for: the device at hand, by a handle, or one that is only described.
struct Target {
  cudnnHandle_t handle = nullptr;
  std::string properties =
      {};  ///< JSON, as cuDNN writes a device's properties; read without a handle
  std::int32_t sm_version = 0, sm_count = 0;
};

class Plan {
 public:
  /// Asks the heuristics. Throws UnsupportedOperation when they know no engine. `every_mode`: also
  /// those that they would not guess. Workspaces over 1 GiB are not considered.
  Plan(const GraphKey& key, const Target& target, bool every_mode = false);
  /// Out of what serialize() gave. Throws UnsupportedOperation when this cuDNN does not take it.
  Plan(const Target& target, const std::vector<std::uint8_t>& serialized);
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  /// Best guess first.
  std::int64_t candidates() const;
  /// Makes that candidate the one which runs; false when it does not exist for this graph. Kernels
  /// may be compiled. Throws UnsupportedOperation, with the reasons, behind the last candidate.
  bool build(std::int64_t candidate);

  /// Its number and knobs. Throws UnsupportedOperation for a plan out of serialize()'s bytes.
  std::string engine() const;
  std::size_t workspace() const;  ///< bytes, of what was built last
  std::vector<std::uint8_t> serialize() const;

  /// Enqueues what was built last on the handle's stream. Operands are device memory, aligned to 16
  /// bytes. Throws CudaError.
  void run(cudnnHandle_t handle, std::initializer_list<const void*> operands,
           void* workspace) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace resnet::cudnn
