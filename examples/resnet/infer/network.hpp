// SPDX-License-Identifier: Apache-2.0
#pragma once

// A model in device memory: InferenceNetwork has what all threads share (weights, plans), an
// InferenceContext what one of them needs for itself (activations, workspace).
//
//   InferenceNetwork network(model, {.batches = {16, 128}, .plans = PlanChoice::timed}, stream);
//   InferenceContext context(network);                       // one for each thread
//   context.warm_up(stream);
//   context.run({{n, 3, 224, 224}}, pixels, logits, stream);    // pixels: float or uint8
//
// Any number of images up to the largest batch may come: they are padded to the next batch size
// that plans were made for, in memory that is there from the start.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <penstock/markers.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../model/device_array.hpp"
#include "../ops/inference.hpp"
#include "model.hpp"

namespace resnet {

struct InferenceOptions {
  std::vector<std::int64_t> batches = {};  ///< none: the model's
  PlanChoice plans = PlanChoice::heuristic;
  bool deterministic = false;
  std::filesystem::path plan_file = {};
  /// Each layer is a range in a profiler, with its shape (layer_ranges.hpp).
  bool layer_ranges = false;
};

/// Does not change after construction: any number of contexts, on any threads, may use it.
class InferenceNetwork {
 public:
  /// Prepares every convolution at every batch size, by the plan file or by `options.plans`;
  /// uploads the weights; waits for the stream. Throws std::invalid_argument, UnsupportedOperation.
  InferenceNetwork(const Model& model, const InferenceOptions& options, cudaStream_t stream);
  InferenceNetwork(const InferenceNetwork&) = delete;
  InferenceNetwork& operator=(const InferenceNetwork&) = delete;

  /// Ascending, each once.
  const std::vector<std::int64_t>& batches() const { return batches_; }
  /// The smallest that has room for n images. Throws std::invalid_argument when none has.
  std::int64_t batch_for(std::int64_t n) const;
  /// Of images as they come. n: the largest batch.
  const Extents& image() const { return image_; }
  /// What the first convolution reads, of the largest batch: with padding channels, in the
  /// precision and format below.
  const Extents& input() const { return layers_.stem.shape.in; }
  Precision input_precision() const { return floating(precision_); }
  Format format() const { return plans_->settings().format; }
  std::int64_t classes() const { return layers_.classes; }

  /// Each convolution at a batch size, with what runs it.
  std::vector<std::pair<std::string, std::string>> engines(std::int64_t batch) const;
  /// To options.plan_file.
  void save_plans() { plans_->save_plans(); }

 private:
  friend class InferenceContext;
  struct Layer {
    InferenceConvolution convolution;  // of the largest batch
    ConvolutionOperands operands;
    std::optional<penstock::RangeName> name;  // none: no range
  };

  void name_layers();
  InferenceConvolution describe(const ConvolutionPlace& place) const;
  /// Of the convolution at a place, and of the max pool behind it where one kernel does both.
  Extents result_of(std::size_t place) const;
  std::int64_t bytes(std::int64_t count, Precision precision) const;
  void put(const std::vector<float>& values, Precision precision, std::byte* to,
           cudaStream_t stream) const;
  void upload_weights(const Model& model, cudaStream_t stream);
  void upload_factors(const Model& model, cudaStream_t stream);

  Extents image_;
  Precision precision_;
  std::vector<std::int64_t> batches_;
  std::unique_ptr<InferencePlans> plans_;
  Layers layers_;
  std::vector<Layer> convolutions_;  // in the order of convolutions_of
  bool pools_in_stem_ = false;       // one kernel for the first convolution and the max pool
  float features_scale_ = 1;         // of the last block's int8
  DeviceArray<std::byte> weights_;
  DeviceArray<float> factors_;  // biases and scales
  const void* last_weights_ = nullptr;
  const float* last_bias_ = nullptr;
  std::optional<penstock::RangeName> last_name_;
};

/// One thread at a time, on one stream or streams ordered by events. All memory is allocated at
/// construction; after warm_up, run() neither allocates nor synchronises, and can be captured. The
/// destructor waits for the device.
class InferenceContext {
 public:
  /// What a convolution gave, by its place in the model: called when its work was enqueued. Of the
  /// first one, what the max pool made of it, where one kernel does both (16 bits on a GPU).
  using Observer = std::function<void(std::size_t place, const void* y, const Extents&)>;

  /// `network` outlives this.
  explicit InferenceContext(const InferenceNetwork& network);
  InferenceContext(const InferenceContext&) = delete;
  InferenceContext& operator=(const InferenceContext&) = delete;
  ~InferenceContext();

  const InferenceNetwork& network() const { return network_; }

  /// Runs every batch size once, on what the input's memory has, and waits: kernels are loaded
  /// then.
  void warm_up(cudaStream_t stream);

  /// logits: images.images.n x classes floats in device memory. `pixels` too is in device memory.
  /// Throws std::invalid_argument for images of another size or too many.
  void run(const ImageInput& images, const float* pixels, float* logits, cudaStream_t stream);
  void run(const ImageInput& images, const std::uint8_t* pixels, float* logits,
           cudaStream_t stream);
  /// Of images that are as network().input() says. Memory is there for batch_for(n) images; what
  /// lies behind the n-th is read, and is finite.
  void run_packed(const void* x, std::int64_t n, float* logits, cudaStream_t stream);

  /// Memory for packed images of the largest batch, at first zeros; run() writes there too.
  void* input() const { return input_.data(); }
  void set_observer(Observer observer) { observer_ = std::move(observer); }

 private:
  template <class T>
  void run_pixels(const ImageInput& images, const T* pixels, float* logits, cudaStream_t stream);
  const void* run_stem(const void* x, cudaStream_t stream);
  const void* run_convolution(std::size_t place, const void* x, const void* residual, void* y,
                              cudaStream_t stream);
  const void* run_block(std::size_t& place, const Block& block, const void* x, cudaStream_t stream);
  void* other_buffer(const void* a, const void* b) const;

  const InferenceNetwork& network_;
  std::unique_ptr<InferenceOperations> ops_;
  DeviceArray<std::byte> input_, average_;
  std::array<DeviceArray<std::byte>, 3> buffers_;
  DeviceArray<float> logits_;  // of padded batches
  Observer observer_;
  std::int64_t n_ = 0;  // of this run, padded
};

}  // namespace resnet
