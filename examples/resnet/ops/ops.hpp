// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operations that a ResNet is made of, on device memory, in stream order. Two libraries
// implement them, and a program links one: `reference` (plain C++ on the CPU, over the emulated
// CUDA runtime) and `cudnn`.
//
//   auto ops = resnet::make_operations({.precision = Precision::fp16, .format = Format::nhwc});
//   ops->convolution(shape, x, weights, y, stream);
//
// Every member enqueues its work on `stream` and returns; none allocates, synchronises or reads
// device memory on the host once `prepare` has seen its shape, so that a whole step can be captured
// into a graph. One thread at a time, and one stream, or streams ordered by events: the work of one
// object shares its workspace, and the object outlives it. They throw CudaError, or
// UnsupportedOperation.
//
// Activations, weights and their gradients are of the settings' precision, and lie in its format
// (weights accordingly: nchw: k c r s, nhwc: k r s c). Everything per channel (batch-norm's
// parameters, statistics and gradients, biases) is float. Sums are accumulated in float.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

namespace resnet {

/// int8: inference alone (inference.hpp).
enum class Precision { fp32, tf32, fp16, bf16, int8 };
enum class Format { nchw, nhwc };
/// none: an operation, a kernel. elementwise: batch-norm, addition and ReLU in one kernel. full:
/// also statistics in the convolution's epilogue, normalisation in the next one's mainloop, where
/// fuses() finds an engine for it; else as elementwise.
enum class Fusion { none, elementwise, full };
/// How one of several kernels is chosen: by the library's guess, by timing its best guesses on the
/// device, by timing all.
enum class PlanChoice { heuristic, timed, exhaustive };

/// What `reference` makes of it: it computes in float, rounds what it stores to fp16 or bf16, and
/// honours the format at the first convolution's input and in the weights.
struct Settings {
  Precision precision = Precision::fp32;
  Format format = Format::nchw;
  Fusion fusion = Fusion::none;
  PlanChoice plans = PlanChoice::heuristic;
  /// The same bits each time, at some cost: Fusion::full then fuses what elementwise does.
  bool deterministic = false;
  std::filesystem::path plan_file = {};  ///< plans are read from it and kept in it; empty: neither
};

class UnsupportedOperation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Extents of an activation, whatever its format.
struct Extents {
  std::int64_t n = 0, c = 0, h = 0, w = 0;
  std::int64_t count() const { return n * c * h * w; }
  bool operator==(const Extents&) const = default;
};

struct ConvolutionShape {
  Extents in;
  std::int64_t k = 0;       ///< channels out
  std::int64_t kernel = 1;  ///< height and width
  std::int64_t stride = 1, padding = 0;

  std::int64_t out_h() const { return (in.h + 2 * padding - kernel) / stride + 1; }
  std::int64_t out_w() const { return (in.w + 2 * padding - kernel) / stride + 1; }
  Extents out() const { return {in.n, k, out_h(), out_w()}; }
  std::int64_t weights() const { return k * in.c * kernel * kernel; }
  bool operator==(const ConvolutionShape&) const = default;
};

struct PoolShape {
  Extents in;
  std::int64_t kernel = 3, stride = 2, padding = 1;

  Extents out() const {
    return {in.n, in.c, (in.h + 2 * padding - kernel) / stride + 1,
            (in.w + 2 * padding - kernel) / stride + 1};
  }
};

/// Pointers to `c` floats each. PyTorch's conventions: biased variance normalises, the unbiased one
/// goes into the running variance; running = (1 - momentum) * running + momentum * batch, unless
/// that of the batch is not finite.
struct BatchNorm {
  const float* gamma = nullptr;
  const float* beta = nullptr;
  float* running_mean = nullptr;
  float* running_variance = nullptr;
  float* mean = nullptr;  ///< of the batch: written forward, read backward
  float* inverse_deviation = nullptr;
  float* gamma_gradient = nullptr;
  float* beta_gradient = nullptr;
  float momentum = 0.1f, epsilon = 1e-5f;
  /// `c` elements each, of the settings' precision: normalised x is x * scale + bias.
  /// convolution_statistics writes them, what is fused reads them; null where nothing is.
  void* scale = nullptr;
  void* bias = nullptr;
  /// relu_bits_bytes() of memory: where ReLU lets an element through. batch_norm and
  /// batch_norm_apply write it where there are a residual and ReLU; batch_norm_gradient then reads
  /// it in place of y. Null: y is read.
  std::uint8_t* relu_bits = nullptr;
};

/// Sums since the memory was last cleared: what a training loop reports, without reading it each
/// step.
struct Metrics {
  float loss = 0;     ///< sum over samples
  float correct = 0;  ///< samples whose label has the largest logit
  float samples = 0;
  float skipped = 0;  ///< steps that the optimizer skipped (LossScale)
};

/// Dynamic loss scaling, all of it on the device. A step is skipped, and halves the scale, when its
/// loss or one of its gradients is infinite or NaN: parameters and momenta stay as they are.
/// `growth_interval` good steps in a row double the scale, while it stays finite.
struct LossScale {
  float scale = 65536;
  std::int32_t good_steps = 0;
  std::int32_t overflow = 0;  ///< of this step: not 0 when a gradient was not finite
  std::int32_t skipped = 0;   ///< steps, in all
};

enum class Decay { cosine, steps, constant };

/// Learning rate by step: linear warm-up (base / warmup_steps at the first step, base at the last
/// of them), then cosine to 0 at `total_steps`, or a tenth at each third of `total_steps`.
struct Schedule {
  Decay decay = Decay::cosine;
  float base = 0.1f;
  std::int64_t warmup_steps = 0, total_steps = 1;
};

/// SGD as PyTorch's: v = momentum * v + (gradient + decay * w); w -= rate * v.
struct SgdOptions {
  Schedule schedule;
  float momentum = 0.9f;
  float weight_decay = 5e-4f;
  std::int32_t growth_interval = 2000;
};

/// Device memory of the optimizer. Parameters lie one behind the other: first the `weights` that
/// decay (convolutions, the last layer's), then the `others`, which do not (batch-norm's, biases).
struct SgdState {
  std::int64_t weights = 0, others = 0;    ///< numbers of floats
  float* parameters = nullptr;             ///< weights + others
  float* momenta = nullptr;                ///< weights + others
  void* compute_weights = nullptr;         ///< `weights` in the settings' precision; null in float
  const void* weight_gradients = nullptr;  ///< `weights` in the settings' precision
  const float* other_gradients = nullptr;  ///< `others`
  std::int64_t* step = nullptr;            ///< steps taken, skipped ones not counted
  LossScale* loss_scale = nullptr;         ///< null: gradients are not scaled, no step is skipped
  int ranks = 1;                           ///< gradients are sums over so many: their mean counts
  Metrics* metrics = nullptr;              ///< null: skipped steps are not added to any
};

class BatchNormParts;

class Operations {
 public:
  virtual ~Operations() = default;
  virtual const Settings& settings() const = 0;
  /// Of an activation's or weight's element.
  virtual std::size_t element_bytes() const = 0;
  /// The channels that the first convolution wants its input padded to with zeros: `channels`,
  /// or 4.
  virtual std::int64_t padded_channels(std::int64_t channels) const = 0;
  /// float to the settings' precision and back; `count` elements.
  virtual void from_float(const float* in, void* out, std::int64_t count, cudaStream_t) = 0;
  virtual void to_float(const void* in, float* out, std::int64_t count, cudaStream_t) = 0;

  /// Finds (or times) the plans for a shape, and keeps workspace for it. Blocks. Operations that
  /// meet a shape that was not prepared do this first.
  virtual void prepare(const ConvolutionShape&) = 0;

  virtual void convolution(const ConvolutionShape&, const void* x, const void* weights, void* y,
                           cudaStream_t) = 0;
  virtual void convolution_data_gradient(const ConvolutionShape&, const void* y_gradient,
                                         const void* weights, void* x_gradient, cudaStream_t) = 0;
  virtual void convolution_weight_gradient(const ConvolutionShape&, const void* x,
                                           const void* y_gradient, void* weight_gradient,
                                           cudaStream_t) = 0;

  /// y = [relu](normalised x [+ residual]), with the batch's statistics, which also go into the
  /// running ones. `residual` may be null.
  virtual void batch_norm(const Extents&, const void* x, const BatchNorm&, const void* residual,
                          bool relu, void* y, cudaStream_t) = 0;
  /// The same with the running statistics, which stay as they are. y may be x.
  virtual void batch_norm_inference(const Extents&, const void* x, const BatchNorm&,
                                    const void* residual, bool relu, void* y, cudaStream_t) = 0;
  /// `y` is what batch_norm wrote (where it is 0, ReLU stops the gradient; unused without relu).
  /// The gradient is the sum of `y_gradient` and, unless null, `more_y_gradient`. Writes
  /// x_gradient, the gradients of gamma and beta, and the residual's gradient, which is null where
  /// there was no residual. x_gradient may be y_gradient.
  virtual void batch_norm_gradient(const Extents&, const void* x, const void* y,
                                   const void* y_gradient, const void* more_y_gradient,
                                   const BatchNorm&, bool relu, void* x_gradient,
                                   void* residual_gradient, cudaStream_t) = 0;

  /// Of BatchNorm::relu_bits, for one layer; 0: they are not read.
  virtual std::int64_t relu_bits_bytes(const Extents&) const = 0;
  /// Batch norm in parts, for a batch that is divided among ranks.
  virtual BatchNormParts& batch_norm_parts() = 0;

  // Fused: with `before`, the convolution's operand is not x but relu(x normalised), which never
  // lies in memory; x itself is what the convolution before has written. UnsupportedOperation where
  // fuses() is false.

  /// Whether the operations below take this shape: those with `before` when `normalized_input`,
  /// else convolution_statistics without. Stays what it is. The first call with a shape prepares,
  /// and blocks.
  virtual bool fuses(const ConvolutionShape&, bool normalized_input) = 0;
  /// y = convolution of x or, unless `before` is null, of relu(x normalised); and y's statistics
  /// with what follows from them: all that `norm` has of the batch, and the running ones. They may
  /// come from sums of y and of y * y in float, which lose digits where a mean is many deviations
  /// away from 0; a variance is never below 0.
  virtual void convolution_statistics(const ConvolutionShape&, const void* x,
                                      const BatchNorm* before, const void* weights, void* y,
                                      const BatchNorm& norm, cudaStream_t) = 0;
  /// batch_norm with the statistics that convolution_statistics left. With `residual_norm`, which
  /// has its own, the residual is what that makes of `residual`.
  virtual void batch_norm_apply(const Extents&, const void* x, const BatchNorm&,
                                const void* residual, const BatchNorm* residual_norm, bool relu,
                                void* y, cudaStream_t) = 0;
  /// convolution_weight_gradient with relu(x normalised) for x.
  virtual void normalized_weight_gradient(const ConvolutionShape&, const void* x,
                                          const BatchNorm& before, const void* y_gradient,
                                          void* weight_gradient, cudaStream_t) = 0;
  /// Back through the convolution, ReLU and batch norm: writes the gradient of x as it lies in
  /// memory, and those of `before`'s gamma and beta. x_gradient is neither x nor y_gradient.
  virtual void normalized_data_gradient(const ConvolutionShape&, const void* y_gradient,
                                        const void* weights, const void* x, const BatchNorm& before,
                                        void* x_gradient, cudaStream_t) = 0;

  /// Whether the two below take this shape. Stays what it is. The first call with a shape prepares,
  /// and blocks.
  virtual bool fuses_pool(const PoolShape&) = 0;
  /// y = max_pool of relu(x normalised), which never lies in memory, with the statistics that
  /// convolution_statistics left. `chosen` is for batch_norm_max_pool_gradient alone.
  virtual void batch_norm_max_pool(const PoolShape&, const void* x, const BatchNorm&, void* y,
                                   std::uint8_t* chosen, cudaStream_t) = 0;
  /// Back through pool, ReLU and batch norm: writes the gradient of x, and those of gamma and beta.
  /// x_gradient is none of the others.
  virtual void batch_norm_max_pool_gradient(const PoolShape&, const void* x,
                                            const std::uint8_t* chosen, const void* y_gradient,
                                            const void* more_y_gradient, const BatchNorm&,
                                            void* x_gradient, cudaStream_t) = 0;

  /// `chosen`: which element of the window, 0 .. kernel * kernel - 1; the first of equals.
  virtual void max_pool(const PoolShape&, const void* x, void* y, std::uint8_t* chosen,
                        cudaStream_t) = 0;
  /// Of the sum of `y_gradient` and, unless null, `more_y_gradient`.
  virtual void max_pool_gradient(const PoolShape&, const std::uint8_t* chosen,
                                 const void* y_gradient, const void* more_y_gradient,
                                 void* x_gradient, cudaStream_t) = 0;
  /// Over height and width; y is n x c.
  virtual void average_pool(const Extents&, const void* x, void* y, cudaStream_t) = 0;
  virtual void average_pool_gradient(const Extents&, const void* y_gradient, void* x_gradient,
                                     cudaStream_t) = 0;

  /// logits (n x classes, float) = x (n x features) weights^T (classes x features) + bias.
  virtual void linear(std::int64_t n, std::int64_t features, std::int64_t classes, const void* x,
                      const void* weights, const float* bias, float* logits, cudaStream_t) = 0;
  virtual void linear_gradient(std::int64_t n, std::int64_t features, std::int64_t classes,
                               const void* x, const void* weights, const float* logit_gradient,
                               void* x_gradient, void* weight_gradient, float* bias_gradient,
                               cudaStream_t) = 0;

  /// Adds loss and hits of n samples to `metrics`. Writes logit_gradient, unless null: that of the
  /// mean loss, times loss_scale->scale unless that is null; NaN for a sample whose loss is not
  /// finite.
  virtual void cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                             const std::int32_t* labels, const LossScale* loss_scale,
                             float* logit_gradient, Metrics* metrics, cudaStream_t) = 0;

  /// One step, and the next scale. The learning rate is computed on the device, from *state.step.
  virtual void sgd(const SgdState&, const SgdOptions&, cudaStream_t) = 0;
};

/// What is linked decides. Throws std::invalid_argument for settings that do not go together.
std::unique_ptr<Operations> make_operations(const Settings& settings);
/// "reference" or "cudnn", with versions.
std::string operations_name();

}  // namespace resnet
