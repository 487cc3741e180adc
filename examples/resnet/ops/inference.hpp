// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operations of a ResNet whose batch norms are folded into its convolutions, on device memory,
// in stream order. `reference` and `cudnn` implement them beside those of ops.hpp.
//
//   const auto plans =
//       make_inference_plans({.precision = Precision::fp16, .format = Format::nhwc});
//   plans->prepare(convolution);                      // all of them, on one thread
//   const auto ops = plans->make_operations();        // one for each thread: workspace and handles
//   ops->convolution(convolution, x, weights, residual, y, stream);
//
// What is shared does not change any more once the first operations are made of it: any number of
// threads may use them at a time, each its own. All members of InferenceOperations enqueue their
// work and return; none allocates, synchronises or reads device memory on the host, so that a whole
// inference can be captured into a graph. (A kernel that runs for the first time may be loaded
// then: run once before.) They throw CudaError, UnsupportedOperation.
//
// What Settings say here. precision: of the convolutions' operands; int8 wants nhwc. fusion: none:
// convolution, bias, addition and ReLU are a kernel each; elementwise: all behind the convolution
// in one kernel; full: all in the convolution's, where there is an engine for it, else as
// elementwise. plan_file: only read, until save_plans() writes it. deterministic: the same bits
// each time.
//
// Numbers: sums are accumulated in float (of int8: in int32), bias and scales are float. An int8
// stands for its value times a scale, which is folded into what a convolution multiplies with: see
// ConvolutionOperands.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ops.hpp"

namespace resnet {

/// Of what is not int8 in a network of this precision: the first convolution's operands, the
/// average and the last layer.
inline Precision floating(Precision precision) {
  return precision == Precision::int8 ? Precision::fp16 : precision;
}

/// A convolution with what follows it:
///   y = [relu](scale * (weights * x) + bias [+ residual_scale * residual])
struct InferenceConvolution {
  ConvolutionShape shape;
  Precision precision = Precision::fp32;  ///< of x and the weights
  Precision result = Precision::fp32;     ///< of y and the residual: as `precision`, or int8
  bool residual = false, relu = true;

  bool quantised() const { return precision == Precision::int8 || result == Precision::int8; }
  bool operator==(const InferenceConvolution&) const = default;
};

/// Device memory that is only read. Where y is int8, scale, bias and residual_scale are over y's
/// scale: y is what the formula gives, rounded to the nearest (ties to even), from -128 to 127.
struct ConvolutionOperands {
  const void* weights = nullptr;          ///< in the settings' format, as in ops.hpp
  const float* bias = nullptr;            ///< for each channel out
  const float* scale = nullptr;           ///< the same; null: 1, as where nothing is quantised
  const float* residual_scale = nullptr;  ///< one; null: 1
  /// The bias once more, in the convolution's precision, where that is fp16 or bf16: there are
  /// engines that want it so. Null elsewhere.
  const void* narrow_bias = nullptr;
};

/// A batch of images as a program has them, and what is made of a pixel:
///   x = pixel * factor[channel] + offset[channel]
struct ImageInput {
  Extents images;                ///< c: 4 at most, without padding
  Format format = Format::nchw;  ///< nhwc: as decoders write pixels
  std::array<float, 4> factor{1, 1, 1, 1}, offset{};
};

/// One thread at a time, on one stream or streams ordered by events. Outlives its work.
class InferenceOperations {
 public:
  virtual ~InferenceOperations() = default;

  /// To the first convolution's x: its precision, the settings' format, zeros in padding channels.
  virtual void convert(const ImageInput&, const float* images, void* x, cudaStream_t) = 0;
  virtual void convert(const ImageInput&, const std::uint8_t* images, void* x, cudaStream_t) = 0;

  /// Throws std::logic_error unless the convolution was prepared before this object was made.
  /// `residual` is null where the convolution has none. y is neither x nor the residual.
  virtual void convolution(const InferenceConvolution&, const void* x, const ConvolutionOperands&,
                           const void* residual, void* y, cudaStream_t) = 0;
  /// Both in `precision`; y's scale is x's.
  virtual void max_pool(const PoolShape&, Precision precision, const void* x, void* y,
                        cudaStream_t) = 0;
  /// convolution() without a residual, then max_pool(), in one kernel: what lies between is never
  /// in memory. x is finite. Only where the plans fuse the two; y is not x.
  virtual void convolution_and_max_pool(const InferenceConvolution&, const PoolShape&,
                                        const void* /*x*/, const ConvolutionOperands&, void* /*y*/,
                                        cudaStream_t) {
    throw UnsupportedOperation("a convolution and a max pool in one kernel");
  }
  /// y (n x c, floating(precision)) = the mean of x over height and width, times `scale`, which is
  /// x's in int8, and 1 elsewhere.
  virtual void average_pool(const Extents&, Precision precision, const void* x, float scale,
                            void* y, cudaStream_t) = 0;
  /// logits (n x classes, float) = x (n x features) weights^T (classes x features) + bias; x and
  /// weights in the settings' floating(precision).
  virtual void linear(std::int64_t n, std::int64_t features, std::int64_t classes, const void* x,
                      const void* weights, const float* bias, float* logits, cudaStream_t) = 0;
};

/// What contexts share: the plans.
class InferencePlans {
 public:
  virtual ~InferencePlans() = default;
  virtual const Settings& settings() const = 0;
  /// Of an activation's or weight's element in memory.
  virtual std::size_t element_bytes(Precision) const = 0;
  /// The channels that the first convolution wants its input padded to with zeros.
  virtual std::int64_t padded_channels(std::int64_t channels) const = 0;
  /// float to a precision that is not int8, `count` elements: for weights.
  virtual void from_float(Precision, const float* in, void* out, std::int64_t count,
                          cudaStream_t) const = 0;

  /// Finds the convolution's plan: the plan file's, or as settings().plans says. Blocks. Throws
  /// UnsupportedOperation, which names the shape; std::logic_error once operations were made.
  virtual void prepare(const InferenceConvolution&) = 0;
  /// Whether operations have convolution_and_max_pool() for these two on the current device. The
  /// convolution need not be prepared for it.
  virtual bool fuses(const InferenceConvolution&, const PoolShape&) const { return false; }
  /// What runs a convolution that is prepared, in words: "fused: eng..." or "convolution eng...,
  /// then one kernel".
  virtual std::string engine(const InferenceConvolution&) const = 0;
  /// Writes the plans to settings().plan_file, unless that is empty. Throws std::runtime_error.
  virtual void save_plans() = 0;

  /// With workspace for everything that was prepared; allocates. This object outlives them. From
  /// any thread.
  virtual std::unique_ptr<InferenceOperations> make_operations() = 0;
};

/// What is linked decides. Throws std::invalid_argument for settings that do not go together.
std::unique_ptr<InferencePlans> make_inference_plans(const Settings& settings);

}  // namespace resnet
