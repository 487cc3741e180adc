// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResNets as data: a stem, stages of equal blocks, and a last layer.
//
//   const Architecture architecture = architecture_of("resnet50", 1000);
//   const Layers layers = layers_of(architecture, {256, 3, 224, 224});   // each with its shape
//
// Layers have torchvision's names. The shortcuts of the CIFAR-style networks are projections too
// (convolution and batch norm), under the names that torchvision's have.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../ops/ops.hpp"

namespace resnet {

/// basic: two 3x3 convolutions. bottleneck: 1x1, 3x3 (which has the stride: "v1.5"), 1x1 to four
/// times the channels.
enum class BlockKind { basic, bottleneck };

struct Stage {
  std::int64_t blocks = 1;
  std::int64_t channels = 64;  ///< of the 3x3 convolutions
  std::int64_t stride = 1;     ///< of the first block
};

struct Architecture {
  std::string name;
  BlockKind kind = BlockKind::basic;
  std::int64_t stem_channels = 64, stem_kernel = 7, stem_stride = 2;
  bool max_pool = true;
  std::vector<Stage> stages;
  std::int64_t classes = 1000;
};

/// resnet8, resnet20 (for images of 32x32), resnet18, resnet50 (for 224x224). Throws
/// std::invalid_argument for another name, and says which there are.
Architecture architecture_of(std::string_view name, std::int64_t classes);
std::span<const std::string_view> architecture_names();

/// A convolution and the batch norm behind it.
struct ConvolutionNorm {
  std::string convolution, norm;  ///< names
  ConvolutionShape shape;
};

struct Block {
  std::vector<ConvolutionNorm> path;
  std::optional<ConvolutionNorm> shortcut;  ///< none: the input itself
};

struct Layers {
  ConvolutionNorm stem;
  std::optional<PoolShape> pool;
  std::vector<Block> blocks;
  Extents features;  ///< of the last block: what the average is taken of
  std::int64_t classes = 0;
};

/// Throws std::invalid_argument for images too small for the strides.
Layers layers_of(const Architecture& architecture, const Extents& images);

}  // namespace resnet
