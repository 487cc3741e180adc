// SPDX-License-Identifier: Apache-2.0
#include "parameters.hpp"

#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace resnet {
namespace {

constexpr std::int64_t alignment = 64;  // elements; 128 bytes in 16 bits: what cuDNN's kernels like

std::int64_t aligned(std::int64_t count) {
  return (count + alignment - 1) / alignment * alignment;
}

/// SplitMix64 as a hash: numbers that depend on seed and place alone.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// In (0, 1).
double uniform(std::uint64_t stream, std::uint64_t index) {
  return (static_cast<double>(mix(mix(stream) ^ index) >> 12) + 0.5) * 0x1p-52;
}

/// By Box and Muller.
double normal(std::uint64_t stream, std::uint64_t index) {
  return std::sqrt(-2 * std::log(uniform(stream, 2 * index))) *
         std::cos(2 * std::numbers::pi * uniform(stream, 2 * index + 1));
}

bool decays(const Parameter& parameter) {
  return parameter.shape.size() > 1;
}

template <class Named>
const Named& find(const std::vector<Named>& all, const std::string& name) {
  for (const Named& one : all)
    if (one.name == name) return one;
  throw std::out_of_range("the network has no \"" + name + "\"");
}

}  // namespace

std::int64_t Parameter::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

ParameterTable::ParameterTable(const Layers& layers, std::int64_t image_channels, Format format)
    : format_(format) {
  if (image_channels > layers.stem.shape.in.c)
    throw std::invalid_argument("images of " + std::to_string(image_channels) +
                                " channels, a network for " +
                                std::to_string(layers.stem.shape.in.c));
  add(layers.stem, image_channels);
  for (const Block& block : layers.blocks) {
    for (const ConvolutionNorm& layer : block.path) add(layer, layer.shape.in.c);
    if (block.shortcut) add(*block.shortcut, block.shortcut->shape.in.c);
  }
  add_last_layer(layers);
  lay_out();
}

void ParameterTable::add(const ConvolutionNorm& layer, std::int64_t channels) {
  const ConvolutionShape& shape = layer.shape;
  const auto fan_out = static_cast<double>(shape.k * shape.kernel * shape.kernel);
  Parameter weights{layer.convolution + ".weight", {shape.k, channels, shape.kernel, shape.kernel}};
  weights.channels = shape.in.c;
  weights.deviation = std::sqrt(2 / fan_out);
  parameters_.push_back(std::move(weights));
  Parameter gamma{layer.norm + ".weight", {shape.k}};
  gamma.constant = 1;
  parameters_.push_back(std::move(gamma));
  parameters_.push_back({layer.norm + ".bias", {shape.k}});
  statistics_.push_back({layer.norm + ".running_mean", shape.k, 0, 0});
  statistics_.push_back({layer.norm + ".running_var", shape.k, 0, 1});
  norms_.push_back(layer.norm);
}

void ParameterTable::add_last_layer(const Layers& layers) {
  Parameter weights{"fc.weight", {layers.classes, layers.features.c}};
  weights.bound = 1 / std::sqrt(static_cast<double>(layers.features.c));
  Parameter bias{"fc.bias", {layers.classes}};
  bias.bound = weights.bound;
  parameters_.push_back(std::move(weights));
  parameters_.push_back(std::move(bias));
}

void ParameterTable::lay_out() {
  for (const bool decaying : {true, false}) {
    for (Parameter& parameter : parameters_) {
      if (decays(parameter) != decaying) continue;
      parameter.offset = weights_ + others_;
      const std::int64_t padded = parameter.channels == 0
                                      ? parameter.count()
                                      : parameter.count() / parameter.shape[1] * parameter.channels;
      (decaying ? weights_ : others_) += aligned(padded);
    }
  }
  for (Statistic& statistic : statistics_) {
    statistic.offset = statistics_size_;
    statistics_size_ += aligned(statistic.channels);
  }
}

const Parameter& ParameterTable::parameter(const std::string& name) const {
  return find(parameters_, name);
}
const Statistic& ParameterTable::statistic(const std::string& name) const {
  return find(statistics_, name);
}

std::int64_t ParameterTable::place(const Parameter& parameter, std::int64_t element) const {
  if (parameter.channels == 0) return parameter.offset + element;
  const std::int64_t taps = parameter.shape[2] * parameter.shape[3];
  const std::int64_t tap = element % taps;
  const std::int64_t c = element / taps % parameter.shape[1];
  const std::int64_t k = element / taps / parameter.shape[1];
  return parameter.offset + (format_ == Format::nchw ? (k * parameter.channels + c) * taps + tap
                                                     : (k * taps + tap) * parameter.channels + c);
}

std::vector<float> ParameterTable::initial(std::uint64_t seed) const {
  std::vector<float> block(static_cast<std::size_t>(all()));
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const Parameter& parameter = parameters_[p];
    const std::uint64_t stream = mix(seed) + p;
    for (std::int64_t i = 0; i < parameter.count(); ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      double value = parameter.constant;
      if (parameter.deviation > 0) value = parameter.deviation * normal(stream, index);
      if (parameter.bound > 0) value = parameter.bound * (2 * uniform(stream, index) - 1);
      block[static_cast<std::size_t>(place(parameter, i))] = static_cast<float>(value);
    }
  }
  return block;
}

std::vector<float> ParameterTable::initial_statistics() const {
  std::vector<float> block(static_cast<std::size_t>(statistics_size_));
  for (const Statistic& statistic : statistics_)
    std::fill_n(block.begin() + statistic.offset, statistic.channels, statistic.start);
  return block;
}

}  // namespace resnet
