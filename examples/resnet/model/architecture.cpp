// SPDX-License-Identifier: Apache-2.0
#include "architecture.hpp"

#include <array>
#include <stdexcept>

namespace resnet {
namespace {

constexpr std::array<std::string_view, 4> names = {"resnet8", "resnet20", "resnet18", "resnet50"};

std::vector<Stage> stages(const std::vector<std::int64_t>& blocks, std::int64_t channels) {
  std::vector<Stage> all;
  for (const std::int64_t count : blocks) {
    all.push_back({count, channels, all.empty() ? 1 : 2});
    channels *= 2;
  }
  return all;
}

Architecture small(std::string_view name, std::int64_t blocks, std::int64_t classes) {
  return {std::string(name),
          BlockKind::basic,
          16,
          3,
          1,
          false,
          stages({blocks, blocks, blocks}, 16),
          classes};
}

Architecture large(std::string_view name, BlockKind kind, const std::vector<std::int64_t>& blocks,
                   std::int64_t classes) {
  return {std::string(name), kind, 64, 7, 2, true, stages(blocks, 64), classes};
}

}  // namespace

std::span<const std::string_view> architecture_names() {
  return names;
}

Architecture architecture_of(std::string_view name, std::int64_t classes) {
  if (classes < 1)
    throw std::invalid_argument("a network of " + std::to_string(classes) + " classes");
  if (name == "resnet8") return small(name, 1, classes);
  if (name == "resnet20") return small(name, 3, classes);
  if (name == "resnet18") return large(name, BlockKind::basic, {2, 2, 2, 2}, classes);
  if (name == "resnet50") return large(name, BlockKind::bottleneck, {3, 4, 6, 3}, classes);
  std::string known;
  for (const std::string_view one : names) known += (known.empty() ? "" : ", ") + std::string(one);
  throw std::invalid_argument("no architecture is called \"" + std::string(name) +
                              "\"; there are " + known);
}

namespace {

/// "Same" padding: 1 for 3x3, 3 for 7x7.
ConvolutionShape shape_of(const Extents& in, std::int64_t channels, std::int64_t kernel,
                          std::int64_t stride) {
  return {in, channels, kernel, stride, kernel / 2};
}

/// The convolutions of a block, one behind the other, by kernel, channels and stride.
Block block_of(const std::string& name, BlockKind kind, const Extents& in, std::int64_t channels,
               std::int64_t stride) {
  struct Part {
    std::int64_t kernel, channels, stride;
  };
  const std::vector<Part> parts =
      kind == BlockKind::basic
          ? std::vector<Part>{{3, channels, stride}, {3, channels, 1}}
          : std::vector<Part>{{1, channels, 1}, {3, channels, stride}, {1, 4 * channels, 1}};
  Block block;
  Extents extents = in;
  for (const Part& part : parts) {
    const std::string number = std::to_string(block.path.size() + 1);
    ConvolutionNorm& layer = block.path.emplace_back();
    layer.convolution = name + ".conv";
    layer.convolution += number;
    layer.norm = name + ".bn";
    layer.norm += number;
    layer.shape = shape_of(extents, part.channels, part.kernel, part.stride);
    extents = layer.shape.out();
  }
  if (extents != in)
    block.shortcut = {name + ".downsample.0", name + ".downsample.1",
                      shape_of(in, extents.c, 1, stride)};
  return block;
}

}  // namespace

Layers layers_of(const Architecture& architecture, const Extents& images) {
  Layers layers;
  layers.classes = architecture.classes;
  layers.stem = {"conv1", "bn1",
                 shape_of(images, architecture.stem_channels, architecture.stem_kernel,
                          architecture.stem_stride)};
  Extents extents = layers.stem.shape.out();
  if (architecture.max_pool) {
    layers.pool = PoolShape{extents};
    extents = layers.pool->out();
  }
  for (std::size_t stage = 0; stage < architecture.stages.size(); ++stage)
    for (std::int64_t i = 0; i < architecture.stages[stage].blocks; ++i) {
      const auto& [blocks, channels, stride] = architecture.stages[stage];
      layers.blocks.push_back(
          block_of("layer" + std::to_string(stage + 1) + "." + std::to_string(i), architecture.kind,
                   extents, channels, i == 0 ? stride : 1));
      extents = layers.blocks.back().path.back().shape.out();
    }
  if (images.n < 1 || images.c < 1 || images.h < 1 || images.w < 1 || extents.count() < 1)
    throw std::invalid_argument(architecture.name + " for " + std::to_string(images.n) +
                                " images of " + std::to_string(images.c) + " x " +
                                std::to_string(images.h) + " x " + std::to_string(images.w));
  layers.features = extents;
  return layers;
}

}  // namespace resnet
