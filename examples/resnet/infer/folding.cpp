// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <stdexcept>

#include "model.hpp"

namespace resnet {
namespace {

constexpr double epsilon = 1e-5;  // PyTorch's, and that of training: BatchNorm in ops.hpp

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape)
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  return text;
}

ModelConvolution folded(const ConvolutionNorm& layer, std::int64_t channels,
                        const TensorSource& tensors) {
  const ConvolutionShape& shape = layer.shape;
  const std::vector<float> weights =
      tensors(layer.convolution + ".weight", {shape.k, channels, shape.kernel, shape.kernel});
  const auto of_norm = [&](const char* name) { return tensors(layer.norm + name, {shape.k}); };
  const std::vector<float> gamma = of_norm(".weight"), beta = of_norm(".bias"),
                           mean = of_norm(".running_mean"), variance = of_norm(".running_var");
  ModelConvolution result;
  result.name = layer.convolution;
  result.weights.reserve(weights.size());
  const std::size_t filter = weights.size() / gamma.size();
  for (std::size_t k = 0; k < gamma.size(); ++k) {
    const double factor =
        static_cast<double>(gamma[k]) / std::sqrt(static_cast<double>(variance[k]) + epsilon);
    if (!std::isfinite(factor))
      throw std::invalid_argument(layer.norm + ".running_var of channel " + std::to_string(k) +
                                  " is " + std::to_string(variance[k]));
    const auto keep = [&](double value, std::vector<float>& values, const std::string& name) {
      if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max())))
        throw std::invalid_argument(name + " of channel " + std::to_string(k) +
                                    " is not finite when " + layer.norm + " is folded into it");
      values.push_back(static_cast<float>(value));
    };
    for (std::size_t i = 0; i < filter; ++i)
      keep(static_cast<double>(weights[k * filter + i]) * factor, result.weights,
           layer.convolution + ".weight");
    keep(static_cast<double>(beta[k]) - static_cast<double>(mean[k]) * factor, result.bias,
         layer.norm + ".bias");
  }
  return result;
}

}  // namespace

std::vector<ConvolutionPlace> convolutions_of(const Layers& layers) {
  std::vector<ConvolutionPlace> all{{&layers.stem, false, true}};
  for (const Block& block : layers.blocks) {
    for (const ConvolutionNorm& layer : block.path)
      all.push_back({&layer, &layer == &block.path.back(), true});
    if (block.shortcut) all.push_back({&*block.shortcut, false, false});
  }
  return all;
}

TensorSource tensors_of(const safetensors::File& file) {
  return [&file](const std::string& name, const std::vector<std::int64_t>& shape) {
    const safetensors::Tensor& tensor = file.tensor(name);
    if (tensor.shape != shape)
      file.fail("\"" + name + "\" is " + text_of(tensor.shape) + ", and " + text_of(shape) +
                " is wanted");
    return file.floats(tensor);
  };
}

std::int64_t classes_of(const safetensors::File& weights) {
  const safetensors::Tensor& bias = weights.tensor("fc.bias");
  if (bias.shape.size() != 1) weights.fail("\"fc.bias\" is no vector");
  return bias.shape[0];
}

TensorSource tensors_of(const NetworkState& state, const ParameterTable& table) {
  return [&](const std::string& name, const std::vector<std::int64_t>&) {
    for (const Statistic& statistic : table.statistics())
      if (statistic.name == name) {
        const auto first = state.statistics.begin() + statistic.offset;
        return std::vector<float>(first, first + statistic.channels);
      }
    const Parameter& parameter = table.parameter(name);
    std::vector<float> values;
    for (std::int64_t i = 0; i < parameter.count(); ++i)
      values.push_back(state.parameters[static_cast<std::size_t>(table.place(parameter, i))]);
    return values;
  };
}

Model fold(const Architecture& architecture, const Extents& image, const TensorSource& tensors) {
  Model model;
  model.architecture = architecture;
  model.image = {1, image.c, image.h, image.w};
  const Layers layers = layers_of(architecture, model.image);
  for (const ConvolutionPlace& place : convolutions_of(layers))
    model.convolutions.push_back(folded(*place.layer, place.layer->shape.in.c, tensors));
  model.last_weights = tensors("fc.weight", {layers.classes, layers.features.c});
  model.last_bias = tensors("fc.bias", {layers.classes});
  return model;
}

Model untrained(const Architecture& architecture, const Extents& image, std::uint64_t seed) {
  const ParameterTable table(layers_of(architecture, {1, image.c, image.h, image.w}), image.c,
                             Format::nchw);
  NetworkState state;
  state.parameters = table.initial(seed);
  state.statistics = table.initial_statistics();
  return fold(architecture, image, tensors_of(state, table));
}

}  // namespace resnet
