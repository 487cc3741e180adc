// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ranges of layers in a profiler's timeline: a name that has the layer's shape, and the number
// of images as payload, as in "layer1.0.conv1 64x56x56 to 128x28x28, 3x3". They are made on
// request: a network has many layers, and each range takes the host some time while a profiler
// records.

#include <cstdint>
#include <optional>
#include <penstock/markers.hpp>
#include <string>

#include "../ops/ops.hpp"

namespace resnet {

/// Of one layer in one pass; null: no range is wanted. Two ranges of it do not nest.
class LayerRange {
 public:
  LayerRange(const std::optional<penstock::RangeName>& name, std::int64_t images) {
    if (name) range_.emplace(*name, static_cast<std::uint64_t>(images));
  }

 private:
  std::optional<penstock::ScopedRange> range_;
};

/// Channels x height x width.
inline std::string shape_text(const Extents& extents) {
  return std::to_string(extents.c) + 'x' + std::to_string(extents.h) + 'x' +
         std::to_string(extents.w);
}

inline std::string layer_text(const std::string& name, const ConvolutionShape& shape) {
  const std::string kernel = std::to_string(shape.kernel);
  return name + ' ' + shape_text(shape.in) + " to " + shape_text(shape.out()) + ", " + kernel +
         'x' + kernel;
}

inline penstock::RangeName forward_name(const std::string& layer) {
  return penstock::RangeName(layer.c_str(), penstock::markers::category::forward);
}
inline penstock::RangeName backward_name(const std::string& layer) {
  return penstock::RangeName(("gradients of " + layer).c_str(),
                             penstock::markers::category::backward);
}

}  // namespace resnet
