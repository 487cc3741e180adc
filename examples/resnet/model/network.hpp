// SPDX-License-Identifier: Apache-2.0
#pragma once

// A ResNet in device memory: parameters, gradients, momenta, running statistics, and the
// activations of a batch. All memory is allocated at construction.
//
//   const auto ops = make_operations({});
//   Network network({architecture_of("resnet18", 10), {256, 3, 224, 224}}, *ops);
//   network.initialise(seed, stream);
//   network.forward(images, n, stream);
//   network.loss(labels, stream);
//   network.backward(stream);
//   network.step(sgd, stream);
//
// The four enqueue their work and return, so a step can be captured. All work of one network (and
// of one Operations) is on one stream, or on streams ordered by events. One thread at a time.

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <penstock/markers.hpp>
#include <string>
#include <vector>

#include "../ops/ops.hpp"
#include "architecture.hpp"
#include "device_array.hpp"
#include "parameters.hpp"
#include "synchronised_batch_norm.hpp"

namespace resnet {

struct NetworkOptions {
  Architecture architecture;
  Extents images;           ///< n: the largest batch. c: without padding
  bool loss_scale = false;  ///< for fp16
  float initial_loss_scale = 65536;
  /// Whoever trains on several ranks sums the gradients over them between backward and step.
  int ranks = 1;
  /// Unless empty, batch norm's batch is that of all ranks.
  std::optional<DividedBatch> divided = {};
  /// Each layer is a range in a profiler, in either pass, with its shape (layer_ranges.hpp).
  bool layer_ranges = false;
};

/// All that training has changed, on the host; blocks lie as the network's ParameterTable says.
struct NetworkState {
  std::vector<float> parameters, momenta, statistics;
  std::int64_t step = 0;
  std::int64_t batches_tracked = 0;  ///< batch norm's num_batches_tracked
  LossScale loss_scale;
};

/// Offsets of the gradients of weights, and of the others.
struct GradientOffsets {
  std::int64_t weights = 0, others = 0;
};

/// All gradients in device memory, in the order of the forward pass.
struct Gradients {
  void* weights = nullptr;
  float* others = nullptr;
  GradientOffsets sizes;                      ///< numbers of elements
  Precision precision = Precision::fp32;      ///< of the weights' elements
  std::size_t element_bytes = sizeof(float);  ///< of them
};

/// Told in the backward pass, when all gradients from these offsets on are queued.
using GradientsReady = std::function<void(const GradientOffsets& from)>;

/// Bytes in device memory.
struct MemoryBlock {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Of all numbers in it, but the counters.
std::string fingerprint(const NetworkState& state);

class Network {
 public:
  /// `ops` outlives this. Prepares every convolution, which may take long (cuDNN), for the largest
  /// batch; a smaller one is prepared when it is met first, and may then take memory for what the
  /// largest has no need of. Throws std::invalid_argument.
  Network(const NetworkOptions& options, Operations& ops);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const NetworkOptions& options() const { return options_; }
  const ParameterTable& table() const { return table_; }
  /// What a batch of images must look like in memory: channels padded with zeros, in the format and
  /// precision of the operations.
  const Extents& input() const { return layers_.stem.shape.in; }

  /// Fresh parameters; everything else as at the start. Waits for the stream.
  void initialise(std::uint64_t seed, cudaStream_t stream);

  /// With the batch's statistics, which go into the running ones. 1 <= n <= input().n; `images` is
  /// read until `backward` is done.
  void forward(const void* images, std::int64_t n, cudaStream_t stream);
  /// With the running statistics.
  void infer(const void* images, std::int64_t n, cudaStream_t stream);
  /// Of the last batch: adds to `metrics`, and writes the logits' gradient.
  void loss(const std::int32_t* labels, cudaStream_t stream);
  /// Of the last `forward`, after its `loss`: writes all gradients. From the last layer to the
  /// first, it calls `ready` where a good part more of them is queued, and at the end with 0 and 0.
  void backward(cudaStream_t stream, const GradientsReady& ready = {});
  void step(const SgdOptions& sgd, cudaStream_t stream);

  /// In device memory: n x classes; what `loss` has added up; the optimizer's counters.
  const float* logits() const { return logits_.data(); }
  const Metrics* metrics() const { return metrics_.data(); }
  Metrics* metrics() { return metrics_.data(); }
  const LossScale* loss_scale() const { return loss_scale_.data(); }
  void clear_metrics(cudaStream_t stream);

  /// Wait for the stream.
  NetworkState state(cudaStream_t stream) const;
  void set_state(const NetworkState& state, cudaStream_t stream);
  /// Every parameter's gradient, as a block; the loss scale is taken out, and of what is summed
  /// over the ranks it is the mean. Waits for the stream.
  std::vector<float> gradients(cudaStream_t stream) const;

  // In device memory, to be made the same on all ranks.
  Gradients gradient_memory() const;
  /// All that state() has, and what follows from it.
  std::vector<MemoryBlock> state_memory() const;
  MemoryBlock statistics_memory() const;

 private:
  /// What a convolution reads; with `norm`, relu(batch norm of it) is meant.
  struct Activation {
    const void* data = nullptr;
    const BatchNorm* norm = nullptr;
  };
  /// A convolution and its batch norm, in memory.
  struct Layer {
    ConvolutionShape shape;
    std::optional<penstock::RangeName> forward_name, backward_name;  // none: no ranges
    const void* weights = nullptr;
    void* weight_gradient = nullptr;
    BatchNorm norm;
    DeviceArray<std::byte> convolved;
    DeviceArray<std::byte> output;        // of batch norm; none where what follows normalises
    DeviceArray<std::uint8_t> relu_bits;  // where there is a residual, and the operations want them
    Activation input;                     // of the last batch
  };
  /// What comes behind a layer's batch norm.
  struct Following {
    const Layer* next = nullptr;  // the one convolution that reads it; null: others do, too
    Activation residual = {};     // added before ReLU; with `norm`, its batch norm without ReLU
    bool relu = true;
    bool raw = false;  // what adds this one normalises it
  };
  struct LayerBlock {
    std::vector<Layer> path;
    std::optional<Layer> shortcut;
    GradientOffsets first;  // its gradients are those from here to the next block
  };
  /// A gradient that is the sum of two buffers, or the first alone.
  struct Gradient {
    void* first;
    void* second;
  };
  enum class Mode { training, inference };

  DeviceArray<std::byte> make_activation(const Extents& extents) const;
  Layer make_layer(const ConvolutionNorm& description);
  LayerBlock make_block(const Block& block);
  bool stays_raw(const ConvolutionShape& shape, bool raw_input, const ConvolutionShape& next) const;
  bool pools_raw(std::int64_t n) const;
  bool adds_raw(const LayerBlock& block, std::int64_t n) const;
  void* weight_pointer(const Parameter& parameter) const;
  void* weight_gradient_pointer(const Parameter& parameter) const;
  GradientOffsets offsets_of(const std::string& weight, const std::string& other) const;
  void refresh_compute_weights(cudaStream_t stream);

  void run(const void* images, std::int64_t n, Mode mode, cudaStream_t stream);
  const void* run_stem(const void* images, Mode mode, cudaStream_t stream);
  Activation run(Layer& layer, Activation input, const Following& following, Mode mode,
                 cudaStream_t stream);
  const void* run(LayerBlock& block, const void* input, Mode mode, cudaStream_t stream);

  Extents of_batch(Extents extents) const;
  ConvolutionShape of_batch(const ConvolutionShape& shape) const;
  PoolShape of_batch(const PoolShape& shape) const;

  void* other_buffer(const void* a, const void* b) const;
  void norm_gradient(const Layer& layer, Gradient arriving, bool relu, void* x_gradient,
                     void* residual_gradient, cudaStream_t stream);
  void* convolution_gradients(const Layer& layer, const void* arriving, void* to,
                              cudaStream_t stream);
  Gradient backward(const LayerBlock& block, Gradient arriving, cudaStream_t stream);
  void backward_stem(Gradient arriving, cudaStream_t stream);

  NetworkOptions options_;
  Operations& ops_;
  Layers layers_;
  ParameterTable table_;

  DeviceArray<float> parameters_, momenta_, statistics_, batch_statistics_, other_gradients_;
  // Of the operations' precision; scales_biases_ as statistics_.
  DeviceArray<std::byte> compute_weights_, weight_gradients_, scales_biases_;
  DeviceArray<std::int64_t> step_;
  DeviceArray<LossScale> loss_scale_;
  DeviceArray<Metrics> metrics_;

  Layer stem_;
  std::vector<LayerBlock> blocks_;
  DeviceArray<std::byte> pool_output_, average_, average_gradient_;
  DeviceArray<std::uint8_t> pool_chosen_;
  DeviceArray<float> logits_, logit_gradient_;
  std::array<DeviceArray<std::byte>, 3> gradient_buffers_;
  std::optional<SynchronisedBatchNorm> synchronised_;
  std::optional<penstock::RangeName> forward_name_, backward_name_;  // of the last layer

  std::int64_t n_ = 0;                // of the last batch
  std::int64_t untracked_steps_ = 0;  // num_batches_tracked less the steps taken and skipped
};

}  // namespace resnet
