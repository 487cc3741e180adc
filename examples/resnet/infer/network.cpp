// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <algorithm>
#include <stdexcept>

#include "../model/layer_ranges.hpp"

namespace resnet {
namespace {

constexpr std::size_t alignment = 256;  // bytes, of every tensor

std::int64_t aligned(std::int64_t bytes) {
  constexpr auto multiple = static_cast<std::int64_t>(alignment);
  return (bytes + multiple - 1) / multiple * multiple;
}

std::vector<std::int64_t> ascending(std::vector<std::int64_t> batches) {
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  if (batches.empty() || batches.front() < 1)
    throw std::invalid_argument("batch sizes are 1 or more, and there is one at least");
  return batches;
}

Settings settings_of(const Model& model, const InferenceOptions& options) {
  Settings settings;
  settings.precision = model.precision;
  settings.format = model.format;
  settings.fusion = model.fusion;
  settings.plans = options.plans;
  settings.deterministic = options.deterministic;
  settings.plan_file = options.plan_file;
  return settings;
}

/// k x c x r x s to memory, with zeros for the channels that pad.
template <class T>
std::vector<T> in_memory(const std::vector<T>& weights, const ConvolutionShape& shape,
                         Format format) {
  const std::int64_t taps = shape.kernel * shape.kernel;
  const auto channels = static_cast<std::int64_t>(weights.size()) / shape.k / taps;
  std::vector<T> result(static_cast<std::size_t>(shape.weights()));
  for (std::int64_t k = 0; k < shape.k; ++k)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t at = format == Format::nchw ? (k * shape.in.c + c) * taps + tap
                                                       : (k * taps + tap) * shape.in.c + c;
        result[static_cast<std::size_t>(at)] =
            weights[static_cast<std::size_t>((k * channels + c) * taps + tap)];
      }
  return result;
}

template <class T>
void copy_and_wait(void* to, const std::vector<T>& from, cudaStream_t stream) {
  examples::check(
      cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
  examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

bool is_narrow(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16;
}

/// What a convolution's results are multiplied with: ConvolutionOperands says how.
struct Factors {
  std::vector<float> scale, bias;
  float residual_scale = 1;
};

/// `in`, `residual`: scales of what it reads. Without int8, all of them are 1.
Factors factors_of(const ModelConvolution& from, double in, double residual) {
  const auto out = static_cast<double>(from.output_scale);
  Factors factors;
  for (std::size_t k = 0; k < from.bias.size(); ++k) {
    const double weight = from.weight_scale.empty() ? 1 : static_cast<double>(from.weight_scale[k]);
    factors.scale.push_back(static_cast<float>(in * weight / out));
    factors.bias.push_back(static_cast<float>(static_cast<double>(from.bias[k]) / out));
  }
  factors.residual_scale = static_cast<float>(residual / out);
  return factors;
}

/// The scale of each convolution's input, and of what is added behind it, in the model's order.
std::vector<Factors> factors_of(const Model& model, const Layers& layers) {
  const auto scale_of = [&](std::size_t place) {
    return static_cast<double>(model.convolutions[place].output_scale);
  };
  std::vector<Factors> all{factors_of(model.convolutions[0], 1, 1)};
  double block_in = scale_of(0);  // pooling keeps it
  for (const Block& block : layers.blocks) {
    double in = block_in;
    const double residual = block.shortcut ? scale_of(all.size() + block.path.size()) : block_in;
    for (std::size_t i = 0; i < block.path.size(); ++i) {
      const std::size_t place = all.size();
      all.push_back(factors_of(model.convolutions[place], in, residual));
      in = scale_of(place);
    }
    if (block.shortcut) all.push_back(factors_of(model.convolutions[all.size()], block_in, 1));
    block_in = in;
  }
  return all;
}

/// Of the last block's result.
float features_scale(const Model& model, const Layers& layers) {
  const std::size_t last = model.convolutions.size() - (layers.blocks.back().shortcut ? 2 : 1);
  return model.convolutions[last].output_scale;
}

}  // namespace

// ---- What is shared -----------------------------------------------------------------------------

InferenceNetwork::InferenceNetwork(const Model& model, const InferenceOptions& options,
                                   cudaStream_t stream)
    : image_(model.image),
      precision_(model.precision),
      batches_(ascending(options.batches.empty() ? model.batches : options.batches)),
      plans_(make_inference_plans(settings_of(model, options))) {
  image_.n = batches_.back();
  layers_ = layers_of(model.architecture,
                      {image_.n, plans_->padded_channels(image_.c), image_.h, image_.w});
  for (const ConvolutionPlace& place : convolutions_of(layers_))
    convolutions_.push_back({describe(place), {}, {}});
  if (model.convolutions.size() != convolutions_.size())
    throw std::invalid_argument("a model of " + std::to_string(model.convolutions.size()) +
                                " convolutions, where " + model.architecture.name + " has " +
                                std::to_string(convolutions_.size()));
  if (options.layer_ranges) name_layers();
  pools_in_stem_ = layers_.pool && plans_->fuses(convolutions_[0].convolution, *layers_.pool);
  for (const std::int64_t batch : batches_)
    for (std::size_t place = pools_in_stem_ ? 1 : 0; place < convolutions_.size(); ++place) {
      InferenceConvolution convolution = convolutions_[place].convolution;
      convolution.shape.in.n = batch;
      plans_->prepare(convolution);
    }
  upload_weights(model, stream);
  upload_factors(model, stream);
  if (precision_ == Precision::int8) features_scale_ = features_scale(model, layers_);
}

/// In int8, all results are, and all operands but the first convolution's.
InferenceConvolution InferenceNetwork::describe(const ConvolutionPlace& place) const {
  const bool first = place.layer == &layers_.stem;
  return {place.layer->shape, first ? floating(precision_) : precision_, precision_, place.residual,
          place.relu};
}

Extents InferenceNetwork::result_of(std::size_t place) const {
  return place == 0 && pools_in_stem_ ? layers_.pool->out()
                                      : convolutions_[place].convolution.shape.out();
}

std::int64_t InferenceNetwork::bytes(std::int64_t count, Precision precision) const {
  return aligned(count * static_cast<std::int64_t>(plans_->element_bytes(precision)));
}

void InferenceNetwork::put(const std::vector<float>& values, Precision precision, std::byte* to,
                           cudaStream_t stream) const {
  DeviceArray<float> staged(static_cast<std::int64_t>(values.size()));
  staged.set(values, stream);
  plans_->from_float(precision, staged.data(), to, static_cast<std::int64_t>(values.size()),
                     stream);
  examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void InferenceNetwork::upload_weights(const Model& model, cudaStream_t stream) {
  const auto last_size = static_cast<std::int64_t>(model.last_weights.size());
  std::int64_t all = bytes(last_size, floating(precision_));
  for (const Layer& layer : convolutions_) {
    const InferenceConvolution& what = layer.convolution;
    all += bytes(what.shape.weights(), what.precision) + bytes(what.shape.k, Precision::fp32);
  }
  weights_ = DeviceArray<std::byte>(all);
  std::byte* next = weights_.data();
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    const InferenceConvolution& what = convolutions_[i].convolution;
    const ModelConvolution& from = model.convolutions[i];
    ConvolutionOperands& operands = convolutions_[i].operands;
    operands.weights = next;
    if (what.precision == Precision::int8)
      copy_and_wait(next, in_memory(from.quantised, what.shape, format()), stream);
    else
      put(in_memory(from.weights, what.shape, format()), what.precision, next, stream);
    next += bytes(what.shape.weights(), what.precision);
    if (is_narrow(what.precision)) {
      operands.narrow_bias = next;
      put(from.bias, what.precision, next, stream);
      next += bytes(what.shape.k, Precision::fp32);
    }
  }
  put(model.last_weights, floating(precision_), next, stream);
  last_weights_ = next;
}

void InferenceNetwork::upload_factors(const Model& model, cudaStream_t stream) {
  std::vector<float> factors;
  const auto append = [&](const std::vector<float>& values) {
    const std::size_t at = factors.size();
    factors.insert(factors.end(), values.begin(), values.end());
    while (factors.size() * sizeof(float) % alignment != 0) factors.push_back(0);
    return at;
  };
  struct Places {
    std::size_t bias, scale, residual_scale;
  };
  std::vector<Places> places;
  for (const Factors& one : factors_of(model, layers_))
    places.push_back({append(one.bias), append(one.scale), append({one.residual_scale})});
  const std::size_t last_bias = append(model.last_bias);
  factors_ = DeviceArray<float>(static_cast<std::int64_t>(factors.size()));
  factors_.set(factors, stream);
  for (std::size_t i = 0; i < places.size(); ++i) {
    ConvolutionOperands& operands = convolutions_[i].operands;
    operands.bias = factors_.data() + places[i].bias;
    if (!convolutions_[i].convolution.quantised()) continue;
    operands.scale = factors_.data() + places[i].scale;
    operands.residual_scale = factors_.data() + places[i].residual_scale;
  }
  last_bias_ = factors_.data() + last_bias;
}

std::int64_t InferenceNetwork::batch_for(std::int64_t n) const {
  const auto found = std::lower_bound(batches_.begin(), batches_.end(), n);
  if (n < 1 || found == batches_.end())
    throw std::invalid_argument("a batch of " + std::to_string(n) + " images, for a network of " +
                                std::to_string(batches_.back()));
  return *found;
}

void InferenceNetwork::name_layers() {
  const std::vector<ConvolutionPlace> places = convolutions_of(layers_);
  for (std::size_t i = 0; i < places.size(); ++i)
    convolutions_[i].name =
        forward_name(layer_text(places[i].layer->convolution, places[i].layer->shape));
  last_name_ = forward_name("fc " + std::to_string(layers_.features.c) + " to " +
                            std::to_string(layers_.classes));
}

std::vector<std::pair<std::string, std::string>> InferenceNetwork::engines(
    std::int64_t batch) const {
  std::vector<std::pair<std::string, std::string>> all;
  const std::vector<ConvolutionPlace> places = convolutions_of(layers_);
  for (std::size_t i = 0; i < places.size(); ++i) {
    InferenceConvolution what = convolutions_[i].convolution;
    what.shape.in.n = batch_for(batch);
    all.emplace_back(places[i].layer->convolution,
                     i == 0 && pools_in_stem_ ? "fused, with the max pool" : plans_->engine(what));
  }
  return all;
}

}  // namespace resnet
