// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <penstock/markers.hpp>
#include <stdexcept>

#include "../model/layer_ranges.hpp"
#include "network.hpp"

namespace resnet {
namespace {

struct InferMarker {
  static constexpr const char* message = "infer";
  static constexpr penstock::MarkerCategory category = penstock::markers::category::forward;
};

Extents of_batch(Extents extents, std::int64_t n) {
  extents.n = n;
  return extents;
}

std::string text_of(const Extents& image) {
  return std::to_string(image.c) + " x " + std::to_string(image.h) + " x " +
         std::to_string(image.w);
}

}  // namespace

InferenceContext::InferenceContext(const InferenceNetwork& network)
    : network_(network), ops_(network.plans_->make_operations()) {
  const Layers& layers = network.layers_;
  const auto bytes = [&](const Extents& extents, Precision precision) {
    return extents.count() * static_cast<std::int64_t>(network.plans_->element_bytes(precision));
  };
  input_ = DeviceArray<std::byte>(bytes(network.input(), network.input_precision()));
  average_ = DeviceArray<std::byte>(
      bytes({network.image().n, layers.features.c, 1, 1}, network.input_precision()));
  logits_ = DeviceArray<float>(network.image().n * network.classes());
  std::int64_t largest = 0;
  for (std::size_t place = 0; place < network.convolutions_.size(); ++place)
    largest = std::max(
        largest, bytes(network.result_of(place), network.convolutions_[place].convolution.result));
  for (DeviceArray<std::byte>& buffer : buffers_) buffer = DeviceArray<std::byte>(largest);
}

InferenceContext::~InferenceContext() {
  cudaDeviceSynchronize();
}

void InferenceContext::warm_up(cudaStream_t stream) {
  for (const std::int64_t batch : network_.batches())
    run_packed(input_.data(), batch, logits_.data(), stream);
  examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void InferenceContext::run(const ImageInput& images, const float* pixels, float* logits,
                           cudaStream_t stream) {
  run_pixels(images, pixels, logits, stream);
}

void InferenceContext::run(const ImageInput& images, const std::uint8_t* pixels, float* logits,
                           cudaStream_t stream) {
  run_pixels(images, pixels, logits, stream);
}

template <class T>
void InferenceContext::run_pixels(const ImageInput& images, const T* pixels, float* logits,
                                  cudaStream_t stream) {
  const Extents& wanted = network_.image();
  if (of_batch(images.images, wanted.n) != wanted)
    throw std::invalid_argument("images of " + text_of(images.images) + ", for a network of " +
                                text_of(wanted));
  static_cast<void>(network_.batch_for(images.images.n));  // too many are told before they are read
  ops_->convert(images, pixels, input_.data(), stream);
  run_packed(input_.data(), images.images.n, logits, stream);
}

/// Activations live in three buffers: on the way through a block, one has the block's input or the
/// shortcut's result, and each convolution reads one of the others and writes the third.
void InferenceContext::run_packed(const void* x, std::int64_t n, float* logits,
                                  cudaStream_t stream) {
  n_ = network_.batch_for(n);
  const penstock::ScopedRange range(InferMarker{}, static_cast<std::uint64_t>(n));
  const Layers& layers = network_.layers_;
  x = run_stem(x, stream);
  std::size_t place = 1;
  for (const Block& block : layers.blocks) x = run_block(place, block, x, stream);
  const LayerRange last(network_.last_name_, n_);
  ops_->average_pool(of_batch(layers.features, n_), network_.precision_, x,
                     network_.features_scale_, average_.data(), stream);
  float* all = n == n_ ? logits : logits_.data();
  ops_->linear(n_, layers.features.c, layers.classes, average_.data(), network_.last_weights_,
               network_.last_bias_, all, stream);
  if (n != n_)
    examples::check(
        cudaMemcpyAsync(logits, all, static_cast<std::size_t>(n * layers.classes) * sizeof(float),
                        cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
}

/// The first convolution and the max pool, where there is one.
const void* InferenceContext::run_stem(const void* x, cudaStream_t stream) {
  const Layers& layers = network_.layers_;
  if (!layers.pool) return run_convolution(0, x, nullptr, buffers_[0].data(), stream);
  PoolShape pool = *layers.pool;
  pool.in.n = n_;
  void* pooled = buffers_[1].data();
  if (!network_.pools_in_stem_) {
    x = run_convolution(0, x, nullptr, buffers_[0].data(), stream);
    ops_->max_pool(pool, network_.precision_, x, pooled, stream);
    return pooled;
  }
  const auto& [convolution, operands, name] = network_.convolutions_[0];
  const LayerRange range(name, n_);
  InferenceConvolution what = convolution;
  what.shape.in.n = n_;
  ops_->convolution_and_max_pool(what, pool, x, operands, pooled, stream);
  if (observer_) observer_(0, pooled, pool.out());
  return pooled;
}

/// `place`: of the block's first convolution; of the next block's afterwards.
const void* InferenceContext::run_block(std::size_t& place, const Block& block, const void* x,
                                        cudaStream_t stream) {
  const void* shortcut = x;
  if (block.shortcut)
    shortcut =
        run_convolution(place + block.path.size(), x, nullptr, other_buffer(x, nullptr), stream);
  for (std::size_t i = 0; i < block.path.size(); ++i)
    x = run_convolution(place++, x, i + 1 == block.path.size() ? shortcut : nullptr,
                        other_buffer(x, shortcut), stream);
  if (block.shortcut) ++place;
  return x;
}

/// Returns `y`.
const void* InferenceContext::run_convolution(std::size_t place, const void* x,
                                              const void* residual, void* y, cudaStream_t stream) {
  const LayerRange range(network_.convolutions_[place].name, n_);
  InferenceConvolution what = network_.convolutions_[place].convolution;
  what.shape.in.n = n_;
  ops_->convolution(what, x, network_.convolutions_[place].operands, residual, y, stream);
  if (observer_) observer_(place, y, what.shape.out());
  return y;
}

void* InferenceContext::other_buffer(const void* a, const void* b) const {
  for (const DeviceArray<std::byte>& buffer : buffers_)
    if (buffer.data() != a && buffer.data() != b) return buffer.data();
  throw std::logic_error("three buffers, two of them taken, and none left");
}

}  // namespace resnet
