// SPDX-License-Identifier: Apache-2.0
#pragma once

// Inference on an NVIDIA GPU: one of three ways for each convolution, found when it is prepared.
//
//   fused         bias, residual and ReLU in the convolution's engine
//   narrow_bias   the same with a bias in 16 bits: some engines have it so alone
//   separate      the convolution, and behind it one kernel of our own, or three (Fusion::none)
//
// In 16 bits and nhwc the first convolution of a network for large images has a kernel of our own,
// with its max pool (stem.hpp).
//
// Engines with a residual, and those of int8, are compiled at run time: cuDNN has them only where
// there is a device. `separate` is there for every convolution that has a plan at all. Where plans
// are timed, so are the ways against each other; else it is the first that there is.
//
// Plans are shared by threads: the front end patches a copy of what a plan binds, and every thread
// has a handle of its own.

#include <cudnn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <penstock/cuda.hpp>
#include <string>
#include <vector>

#include "../inference.hpp"
#include "context.hpp"
#include "handle.hpp"
#include "linear.hpp"
#include "plan.hpp"
#include "plan_file.hpp"

namespace resnet::cudnn {

enum class Way : std::uint8_t { fused, narrow_bias, separate };

/// Of a convolution in this way: the graph that is planned.
GraphKey graph_of(const InferenceConvolution&, const Settings&, Way);
/// Those that settings and precisions leave, best guess first; the last is `separate`.
std::vector<Way> ways_of(const InferenceConvolution&, const Settings&);
/// Device memory for the convolution's sums, where y has no room for them.
std::size_t sums_bytes(const InferenceConvolution&, Way);

/// Device memory; null for 0 bytes. Throws CudaError.
using Memory = std::unique_ptr<void, cudaError_t (*)(void*)>;
Memory allocate(std::size_t bytes);

/// A convolution that can run. Does not change.
struct InferencePlan {
  InferenceConvolution convolution;
  Way way;
  Plan plan;
};

/// All that a convolution reads and writes, in device memory.
struct InferenceMemory {
  const void* x;
  const ConvolutionOperands& operands;
  const void* residual;
  void* y;
  void* sums;       ///< sums_bytes()
  void* workspace;  ///< plan.workspace() bytes
};
/// On the handle's stream, which is `stream`. `plan`: of the graph of this way.
void run(const InferenceConvolution&, Way, const Plan& plan, const Settings&,
         const InferenceMemory&, cudnnHandle_t, cudaStream_t stream);

class CudnnPlans : public InferencePlans {
 public:
  explicit CudnnPlans(const Settings& settings);

  const Settings& settings() const override { return settings_; }
  std::size_t element_bytes(Precision precision) const override;
  std::int64_t padded_channels(std::int64_t channels) const override;
  void from_float(Precision, const float* in, void* out, std::int64_t count,
                  cudaStream_t) const override;
  void prepare(const InferenceConvolution&) override;
  bool fuses(const InferenceConvolution&, const PoolShape&) const override;
  std::string engine(const InferenceConvolution&) const override;
  void save_plans() override { file_.save(); }
  std::unique_ptr<InferenceOperations> make_operations() override;

  const InferencePlan& find(const InferenceConvolution&) const;
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::size_t sums_bytes() const { return sums_bytes_; }

 private:
  class Trial;

  std::optional<InferencePlan> saved(const InferenceConvolution&) const;
  PlanChoice plans_to_try(const InferenceConvolution&, Way) const;
  InferencePlan choose(const InferenceConvolution&);

  Settings settings_;
  penstock::Stream stream_;  // plans are prepared on
  Handle handle_;
  PlanFile file_;
  std::vector<std::unique_ptr<const InferencePlan>> plans_;
  std::size_t workspace_bytes_ = 0, sums_bytes_ = 0;  // for the largest
  std::atomic<bool> in_use_{false};
};

/// On the device that is current at construction. Memory is aligned to 16 bytes.
class CudnnInference : public InferenceOperations {
 public:
  explicit CudnnInference(const CudnnPlans& plans);

  void convert(const ImageInput&, const float* images, void* x, cudaStream_t) override;
  void convert(const ImageInput&, const std::uint8_t* images, void* x, cudaStream_t) override;
  void convolution(const InferenceConvolution&, const void* x, const ConvolutionOperands&,
                   const void* residual, void* y, cudaStream_t) override;
  void max_pool(const PoolShape&, Precision, const void* x, void* y, cudaStream_t) override;
  void convolution_and_max_pool(const InferenceConvolution&, const PoolShape&, const void* x,
                                const ConvolutionOperands&, void* y, cudaStream_t) override;
  void average_pool(const Extents&, Precision, const void* x, float scale, void* y,
                    cudaStream_t) override;
  void linear(std::int64_t n, std::int64_t features, std::int64_t classes, const void* x,
              const void* weights, const float* bias, float* logits, cudaStream_t) override;

 private:
  Extents padded(const Extents&) const;

  const CudnnPlans& plans_;
  Context context_;  // in floating(precision)
  Handle handle_;
  Linear linear_;
  Memory sums_;
};

}  // namespace resnet::cudnn
