// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <algorithm>
#include <iterator>
#include <penstock/markers.hpp>
#include <span>
#include <stdexcept>
#include <string>

#include "../../common/hash.hpp"
#include "layer_ranges.hpp"

namespace resnet {
namespace {

namespace category = penstock::markers::category;

/// Whether weights are stored in another precision than that of the optimizer's.
bool is_narrow(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16;
}

struct ForwardMarker {
  static constexpr const char* message = "forward";
  static constexpr penstock::MarkerCategory category = category::forward;
};
struct LossMarker {
  static constexpr const char* message = "loss";
  static constexpr penstock::MarkerCategory category = category::loss;
};
struct BackwardMarker {
  static constexpr const char* message = "backward";
  static constexpr penstock::MarkerCategory category = category::backward;
};
struct OptimizerMarker {
  static constexpr const char* message = "optimizer";
  static constexpr penstock::MarkerCategory category = category::optimizer;
};

std::uint64_t payload(std::int64_t number) {
  return static_cast<std::uint64_t>(number);
}

Layers make_layers(const NetworkOptions& options, const Operations& ops) {
  Extents images = options.images;
  images.c = ops.padded_channels(images.c);
  return layers_of(options.architecture, images);
}

/// Of what a batch norm normalises.
std::int64_t most_channels(const Layers& layers) {
  std::int64_t most = layers.stem.shape.k;
  for (const Block& block : layers.blocks)
    for (const ConvolutionNorm& layer : block.path) most = std::max(most, layer.shape.k);
  return most;
}

template <class Shape>
Shape with_batch(Shape shape, std::int64_t n) {
  shape.in.n = n;
  return shape;
}

}  // namespace

// ---- Memory -------------------------------------------------------------------------------------

Network::Network(const NetworkOptions& options, Operations& ops)
    : options_(options),
      ops_(ops),
      layers_(make_layers(options, ops)),
      table_(layers_, options.images.c, ops.settings().format),
      parameters_(table_.all()),
      momenta_(table_.all()),
      statistics_(table_.statistics_size()),
      batch_statistics_(table_.statistics_size()),
      other_gradients_(table_.others()),
      weight_gradients_(table_.weights() * static_cast<std::int64_t>(ops.element_bytes())),
      scales_biases_(table_.statistics_size() * static_cast<std::int64_t>(ops.element_bytes())),
      step_(1),
      loss_scale_(1),
      metrics_(1) {
  if (is_narrow(ops.settings().precision))
    compute_weights_ =
        DeviceArray<std::byte>(table_.weights() * static_cast<std::int64_t>(ops.element_bytes()));
  stem_ = make_layer(layers_.stem);
  if (!pools_raw(input().n)) stem_.output = make_activation(stem_.shape.out());
  for (const Block& block : layers_.blocks) blocks_.push_back(make_block(block));
  if (layers_.pool) {
    pool_output_ = make_activation(layers_.pool->out());
    pool_chosen_ = DeviceArray<std::uint8_t>(layers_.pool->out().count());
  }
  average_ = make_activation({input().n, layers_.features.c, 1, 1});
  average_gradient_ = make_activation({input().n, layers_.features.c, 1, 1});
  logits_ = DeviceArray<float>(input().n * layers_.classes);
  logit_gradient_ = DeviceArray<float>(input().n * layers_.classes);
  // No activation is larger than the stem's: each stage that has more channels halves the image.
  Extents largest = layers_.stem.shape.out();
  for (const Block& block : layers_.blocks)
    for (const ConvolutionNorm& layer : block.path)
      for (const Extents& extents : {layer.shape.in, layer.shape.out()})
        if (extents.count() > largest.count()) largest = extents;
  for (DeviceArray<std::byte>& buffer : gradient_buffers_) buffer = make_activation(largest);
  if (options.layer_ranges) {
    const std::string last =
        "fc " + std::to_string(layers_.features.c) + " to " + std::to_string(layers_.classes);
    forward_name_ = resnet::forward_name(last);
    backward_name_ = resnet::backward_name(last);
  }
  if (options.divided) synchronised_.emplace(ops, *options.divided, most_channels(layers_));
}

DeviceArray<std::byte> Network::make_activation(const Extents& extents) const {
  return DeviceArray<std::byte>(extents.count() * static_cast<std::int64_t>(ops_.element_bytes()));
}

Network::Layer Network::make_layer(const ConvolutionNorm& description) {
  ops_.prepare(description.shape);
  const Parameter& weights = table_.parameter(description.convolution + ".weight");
  const std::int64_t gamma = table_.parameter(description.norm + ".weight").offset;
  const std::int64_t beta = table_.parameter(description.norm + ".bias").offset;
  const std::int64_t mean = table_.statistic(description.norm + ".running_mean").offset;
  const std::int64_t variance = table_.statistic(description.norm + ".running_var").offset;
  Layer layer;
  layer.shape = description.shape;
  if (options_.layer_ranges) {
    const std::string text = layer_text(description.convolution, description.shape);
    layer.forward_name = resnet::forward_name(text);
    layer.backward_name = resnet::backward_name(text);
  }
  layer.weights = weight_pointer(weights);
  layer.weight_gradient = weight_gradient_pointer(weights);
  layer.norm.gamma = parameters_.data() + gamma;
  layer.norm.beta = parameters_.data() + beta;
  layer.norm.running_mean = statistics_.data() + mean;
  layer.norm.running_variance = statistics_.data() + variance;
  layer.norm.mean = batch_statistics_.data() + mean;
  layer.norm.inverse_deviation = batch_statistics_.data() + variance;
  layer.norm.gamma_gradient = other_gradients_.data() + (gamma - table_.weights());
  layer.norm.beta_gradient = other_gradients_.data() + (beta - table_.weights());
  layer.norm.scale = scales_biases_.data() + static_cast<std::size_t>(mean) * ops_.element_bytes();
  layer.norm.bias =
      scales_biases_.data() + static_cast<std::size_t>(variance) * ops_.element_bytes();
  layer.convolved = make_activation(layer.shape.out());
  return layer;
}

Network::LayerBlock Network::make_block(const Block& block) {
  LayerBlock made;
  const ConvolutionNorm& first = block.path.front();
  made.first = offsets_of(first.convolution + ".weight", first.norm + ".weight");
  bool raw = false;
  for (const ConvolutionNorm& description : block.path) {
    Layer& layer = made.path.emplace_back(make_layer(description));
    const bool last = &description == &block.path.back();
    raw = !last && stays_raw(layer.shape, raw, (&description + 1)->shape);
    if (!raw) layer.output = make_activation(layer.shape.out());
  }
  Layer& last = made.path.back();
  last.relu_bits = DeviceArray<std::uint8_t>(ops_.relu_bits_bytes(last.shape.out()));
  last.norm.relu_bits = last.relu_bits.data();
  if (!block.shortcut) return made;
  made.shortcut = make_layer(*block.shortcut);
  if (!adds_raw(made, input().n))
    made.shortcut->output = make_activation(made.shortcut->shape.out());
  return made;
}

/// Whether what a convolution writes is normalised by the next: where both have the engines for it.
bool Network::stays_raw(const ConvolutionShape& shape, bool raw_input,
                        const ConvolutionShape& next) const {
  return !options_.divided && ops_.fuses(shape, raw_input) && ops_.fuses(next, true);
}

/// Whether the pool normalises what the stem's convolution writes, in a batch of n.
bool Network::pools_raw(std::int64_t n) const {
  return layers_.pool && !options_.divided && ops_.fuses(with_batch(stem_.shape, n), false) &&
         ops_.fuses_pool(with_batch(*layers_.pool, n));
}

/// Whether the last layer normalises what the shortcut's convolution writes, in a batch of n.
bool Network::adds_raw(const LayerBlock& block, std::int64_t n) const {
  if (!block.shortcut || options_.divided) return false;
  bool raw = false;
  for (auto layer = block.path.begin(); std::next(layer) != block.path.end(); ++layer)
    raw = stays_raw(with_batch(layer->shape, n), raw, with_batch(std::next(layer)->shape, n));
  return ops_.fuses(with_batch(block.shortcut->shape, n), false) &&
         ops_.fuses(with_batch(block.path.back().shape, n), raw);
}

/// What the operations compute with: the parameters themselves, or their copy in 16 bits.
void* Network::weight_pointer(const Parameter& parameter) const {
  if (compute_weights_.size() == 0) return parameters_.data() + parameter.offset;
  return compute_weights_.data() +
         static_cast<std::size_t>(parameter.offset) * ops_.element_bytes();
}

void* Network::weight_gradient_pointer(const Parameter& parameter) const {
  return weight_gradients_.data() +
         static_cast<std::size_t>(parameter.offset) * ops_.element_bytes();
}

GradientOffsets Network::offsets_of(const std::string& weight, const std::string& other) const {
  return {table_.parameter(weight).offset, table_.parameter(other).offset - table_.weights()};
}

void Network::refresh_compute_weights(cudaStream_t stream) {
  if (compute_weights_.size() == 0) return;
  ops_.from_float(parameters_.data(), compute_weights_.data(), table_.weights(), stream);
}

std::string fingerprint(const NetworkState& state) {
  examples::Hash hash;
  for (const std::vector<float>* block : {&state.parameters, &state.momenta, &state.statistics})
    hash.add(std::as_bytes(std::span(*block)));
  return hash.text();
}

// ---- State --------------------------------------------------------------------------------------

void Network::initialise(std::uint64_t seed, cudaStream_t stream) {
  NetworkState start;
  start.parameters = table_.initial(seed);
  start.momenta.resize(start.parameters.size());
  start.statistics = table_.initial_statistics();
  start.loss_scale.scale = options_.initial_loss_scale;
  set_state(start, stream);
  clear_metrics(stream);
}

NetworkState Network::state(cudaStream_t stream) const {
  NetworkState now;
  now.parameters = parameters_.get(stream);
  now.momenta = momenta_.get(stream);
  now.statistics = statistics_.get(stream);
  now.step = step_.get(stream).front();
  now.loss_scale = loss_scale_.get(stream).front();
  now.batches_tracked = now.step + now.loss_scale.skipped + untracked_steps_;
  return now;
}

void Network::set_state(const NetworkState& state, cudaStream_t stream) {
  if (state.parameters.size() != parameters_.size() || state.momenta.size() != momenta_.size() ||
      state.statistics.size() != statistics_.size())
    throw std::invalid_argument("the state of another network");
  parameters_.set(state.parameters, stream);
  momenta_.set(state.momenta, stream);
  statistics_.set(state.statistics, stream);
  step_.set({state.step}, stream);
  loss_scale_.set({state.loss_scale}, stream);
  untracked_steps_ = state.batches_tracked - state.step - state.loss_scale.skipped;
  refresh_compute_weights(stream);
}

std::vector<float> Network::gradients(cudaStream_t stream) const {
  DeviceArray<float> all(table_.all());
  ops_.to_float(weight_gradients_.data(), all.data(), table_.weights(), stream);
  examples::check(cudaMemcpyAsync(all.data() + table_.weights(), other_gradients_.data(),
                                  other_gradients_.bytes(), cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
  std::vector<float> values = all.get(stream);
  const float scale = options_.loss_scale ? loss_scale_.get(stream).front().scale : 1;
  for (float& value : values) value /= scale * static_cast<float>(options_.ranks);
  return values;
}

Gradients Network::gradient_memory() const {
  const bool in_float = ops_.element_bytes() == sizeof(float);
  return {weight_gradients_.data(),
          other_gradients_.data(),
          {table_.weights(), table_.others()},
          in_float ? Precision::fp32 : ops_.settings().precision,
          ops_.element_bytes()};
}

std::vector<MemoryBlock> Network::state_memory() const {
  std::vector<MemoryBlock> blocks;
  const auto add = [&](const auto& array) {
    if (array.size() > 0) blocks.push_back({array.data(), array.bytes()});
  };
  add(parameters_);
  add(momenta_);
  add(statistics_);
  add(step_);
  add(loss_scale_);
  add(compute_weights_);
  return blocks;
}

MemoryBlock Network::statistics_memory() const {
  return {statistics_.data(), statistics_.bytes()};
}

void Network::clear_metrics(cudaStream_t stream) {
  examples::check(cudaMemsetAsync(metrics_.data(), 0, metrics_.bytes(), stream), "cudaMemsetAsync");
}

// ---- Forward ------------------------------------------------------------------------------------

Extents Network::of_batch(Extents extents) const {
  extents.n = n_;
  return extents;
}
ConvolutionShape Network::of_batch(const ConvolutionShape& shape) const {
  return with_batch(shape, n_);
}
PoolShape Network::of_batch(const PoolShape& shape) const {
  return with_batch(shape, n_);
}

void Network::forward(const void* images, std::int64_t n, cudaStream_t stream) {
  const penstock::ScopedRange range(ForwardMarker{}, payload(n));
  run(images, n, Mode::training, stream);
}

void Network::infer(const void* images, std::int64_t n, cudaStream_t stream) {
  const penstock::ScopedRange range(ForwardMarker{}, payload(n));
  run(images, n, Mode::inference, stream);
}

void Network::run(const void* images, std::int64_t n, Mode mode, cudaStream_t stream) {
  if (n < 1 || n > input().n)
    throw std::invalid_argument("a batch of " + std::to_string(n) + " images, for a network of " +
                                std::to_string(input().n));
  n_ = n;
  const void* x = run_stem(images, mode, stream);
  for (LayerBlock& block : blocks_) x = run(block, x, mode, stream);
  const LayerRange range(forward_name_, n);
  ops_.average_pool(of_batch(layers_.features), x, average_.data(), stream);
  ops_.linear(n, layers_.features.c, layers_.classes, average_.data(),
              weight_pointer(table_.parameter("fc.weight")),
              parameters_.data() + table_.parameter("fc.bias").offset, logits_.data(), stream);
}

const void* Network::run_stem(const void* images, Mode mode, cudaStream_t stream) {
  void* y = pool_output_.data();
  if (mode == Mode::training && pools_raw(n_)) {
    const LayerRange range(stem_.forward_name, n_);
    void* x = stem_.convolved.data();
    stem_.input = {images};
    ops_.convolution_statistics(of_batch(stem_.shape), images, nullptr, stem_.weights, x,
                                stem_.norm, stream);
    ops_.batch_norm_max_pool(of_batch(*layers_.pool), x, stem_.norm, y, pool_chosen_.data(),
                             stream);
    return y;
  }
  const void* x = run(stem_, {images}, {}, mode, stream).data;
  if (!layers_.pool) return x;
  ops_.max_pool(of_batch(*layers_.pool), x, y, pool_chosen_.data(), stream);
  return y;
}

const void* Network::run(LayerBlock& block, const void* input, Mode mode, cudaStream_t stream) {
  Activation x{input}, shortcut{input};
  const bool raw = mode == Mode::training && adds_raw(block, n_);
  if (block.shortcut) shortcut = run(*block.shortcut, x, {.relu = false, .raw = raw}, mode, stream);
  for (Layer& layer : block.path) {
    const bool last = &layer == &block.path.back();
    const Following following =
        last ? Following{.residual = shortcut} : Following{.next = &layer + 1};
    x = run(layer, x, following, mode, stream);
  }
  return x.data;
}

Network::Activation Network::run(Layer& layer, Activation input, const Following& following,
                                 Mode mode, cudaStream_t stream) {
  const LayerRange range(layer.forward_name, n_);
  const ConvolutionShape shape = of_batch(layer.shape);
  const auto& [next, residual, relu, raw_output] = following;
  const bool training = mode == Mode::training, raw_input = input.norm != nullptr;
  const bool fused = training && !synchronised_ && ops_.fuses(shape, raw_input);
  void* x = layer.convolved.data();
  layer.input = input;
  if (fused)
    ops_.convolution_statistics(shape, input.data, input.norm, layer.weights, x, layer.norm,
                                stream);
  else
    ops_.convolution(shape, input.data, layer.weights, x, stream);
  if (raw_output ||
      (fused && next != nullptr && stays_raw(shape, raw_input, of_batch(next->shape))))
    return {x, &layer.norm};

  // A batch may be of a size that does not fuse, where the largest does.
  if (training && layer.output.size() == 0) layer.output = make_activation(layer.shape.out());
  void* y = layer.output.size() == 0 ? x : layer.output.data();
  if (!training)
    ops_.batch_norm_inference(shape.out(), x, layer.norm, residual.data, relu, y, stream);
  else if (synchronised_)
    synchronised_->forward(shape.out(), x, layer.norm, residual.data, relu, y, stream);
  else if (fused)
    ops_.batch_norm_apply(shape.out(), x, layer.norm, residual.data, residual.norm, relu, y,
                          stream);
  else
    ops_.batch_norm(shape.out(), x, layer.norm, residual.data, relu, y, stream);
  return {y};
}

void Network::loss(const std::int32_t* labels, cudaStream_t stream) {
  const penstock::ScopedRange range(LossMarker{}, payload(n_));
  ops_.cross_entropy(n_, layers_.classes, logits_.data(), labels,
                     options_.loss_scale ? loss_scale_.data() : nullptr, logit_gradient_.data(),
                     metrics_.data(), stream);
}

// ---- Backward -----------------------------------------------------------------------------------
//
// Gradients of activations live in three buffers, which are enough: on the way through a block, one
// is for the path and one for the shortcut, and a convolution writes to the third.

void* Network::other_buffer(const void* a, const void* b) const {
  for (const DeviceArray<std::byte>& buffer : gradient_buffers_)
    if (buffer.data() != a && buffer.data() != b) return buffer.data();
  throw std::logic_error("three buffers, two of them taken, and none left");
}

void Network::norm_gradient(const Layer& layer, Gradient arriving, bool relu, void* x_gradient,
                            void* residual_gradient, cudaStream_t stream) {
  const LayerRange range(layer.backward_name, n_);
  const Extents extents = of_batch(layer.shape).out();
  const void *x = layer.convolved.data(), *y = layer.output.data();
  if (synchronised_)
    synchronised_->backward(extents,
                            {x, y, arriving.first, arriving.second, x_gradient, residual_gradient},
                            layer.norm, relu, stream);
  else
    ops_.batch_norm_gradient(extents, x, y, arriving.first, arriving.second, layer.norm, relu,
                             x_gradient, residual_gradient, stream);
}

/// Writes to `to` the gradient of the layer's input, as that lies in memory. Returns `to`.
void* Network::convolution_gradients(const Layer& layer, const void* arriving, void* to,
                                     cudaStream_t stream) {
  const LayerRange range(layer.backward_name, n_);
  const ConvolutionShape shape = of_batch(layer.shape);
  const auto& [x, norm] = layer.input;
  if (norm != nullptr) {
    ops_.normalized_weight_gradient(shape, x, *norm, arriving, layer.weight_gradient, stream);
    ops_.normalized_data_gradient(shape, arriving, layer.weights, x, *norm, to, stream);
  } else {
    ops_.convolution_weight_gradient(shape, x, arriving, layer.weight_gradient, stream);
    ops_.convolution_data_gradient(shape, arriving, layer.weights, to, stream);
  }
  return to;
}

Network::Gradient Network::backward(const LayerBlock& block, Gradient arriving,
                                    cudaStream_t stream) {
  void* path = arriving.first;
  void* shortcut = other_buffer(arriving.first, arriving.second);
  norm_gradient(block.path.back(), arriving, true, path, shortcut, stream);
  for (auto layer = block.path.rbegin(); layer != block.path.rend(); ++layer) {
    path = convolution_gradients(*layer, path, other_buffer(path, shortcut), stream);
    const auto before = std::next(layer);
    if (before != block.path.rend() && layer->input.norm == nullptr)
      norm_gradient(*before, {path, nullptr}, true, path, nullptr, stream);
  }
  if (block.shortcut) {
    norm_gradient(*block.shortcut, {shortcut, nullptr}, false, shortcut, nullptr, stream);
    shortcut =
        convolution_gradients(*block.shortcut, shortcut, other_buffer(path, shortcut), stream);
  }
  return {path, shortcut};
}

void Network::backward_stem(Gradient arriving, cudaStream_t stream) {
  void* larger = other_buffer(arriving.first, arriving.second);  // than what the pool wrote
  if (pools_raw(n_)) {
    ops_.batch_norm_max_pool_gradient(of_batch(*layers_.pool), stem_.convolved.data(),
                                      pool_chosen_.data(), arriving.first, arriving.second,
                                      stem_.norm, larger, stream);
    arriving = {larger, nullptr};
  } else {
    if (layers_.pool) {
      ops_.max_pool_gradient(of_batch(*layers_.pool), pool_chosen_.data(), arriving.first,
                             arriving.second, larger, stream);
      arriving = {larger, nullptr};
    }
    norm_gradient(stem_, arriving, true, arriving.first, nullptr, stream);
  }
  const LayerRange range(stem_.backward_name, n_);
  ops_.convolution_weight_gradient(of_batch(stem_.shape), stem_.input.data, arriving.first,
                                   stem_.weight_gradient, stream);
}

void Network::backward(cudaStream_t stream, const GradientsReady& ready) {
  const penstock::ScopedRange range(BackwardMarker{}, payload(n_));
  const auto tell = [&](const GradientOffsets& from) {
    if (ready) ready(from);
  };
  const Parameter& weights = table_.parameter("fc.weight");
  const Parameter& bias = table_.parameter("fc.bias");
  {
    const LayerRange layer(backward_name_, n_);
    ops_.linear_gradient(n_, layers_.features.c, layers_.classes, average_.data(),
                         weight_pointer(weights), logit_gradient_.data(), average_gradient_.data(),
                         weight_gradient_pointer(weights),
                         other_gradients_.data() + (bias.offset - table_.weights()), stream);
  }
  tell(offsets_of("fc.weight", "fc.bias"));
  Gradient gradient{gradient_buffers_[0].data(), nullptr};
  ops_.average_pool_gradient(of_batch(layers_.features), average_gradient_.data(), gradient.first,
                             stream);
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    gradient = backward(*block, gradient, stream);
    tell(block->first);
  }
  backward_stem(gradient, stream);
  tell({0, 0});
}

void Network::step(const SgdOptions& sgd, cudaStream_t stream) {
  const penstock::ScopedRange range(OptimizerMarker{}, payload(n_));
  SgdState state;
  state.weights = table_.weights();
  state.others = table_.others();
  state.parameters = parameters_.data();
  state.momenta = momenta_.data();
  state.compute_weights = compute_weights_.data();
  state.weight_gradients = weight_gradients_.data();
  state.other_gradients = other_gradients_.data();
  state.step = step_.data();
  state.loss_scale = options_.loss_scale ? loss_scale_.data() : nullptr;
  state.ranks = options_.ranks;
  state.metrics = metrics_.data();
  ops_.sgd(state, sgd, stream);
}

}  // namespace resnet
