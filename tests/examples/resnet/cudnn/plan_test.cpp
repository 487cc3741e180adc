// SPDX-License-Identifier: Apache-2.0

// Plans for an H200 that is only described: whether cuDNN has an engine for every convolution that
// the networks have, and for the fused graphs. Runs in the folder of h200-device-properties.json,
// which is what cuDNN says of such a device.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../../../../examples/resnet/model/architecture.hpp"
#include "../../../../examples/resnet/ops/cudnn/plan.hpp"
#include "../../../../examples/resnet/ops/cudnn/tuning.hpp"
#include "support/catch.hpp"

using resnet::ConvolutionShape;
using resnet::Format;
using resnet::Precision;
using resnet::UnsupportedOperation;
using resnet::cudnn::Graph;
using resnet::cudnn::GraphKey;
using resnet::cudnn::Plan;
using resnet::cudnn::Target;

namespace {

Target h200() {
  std::ostringstream text;
  text << std::ifstream("h200-device-properties.json").rdbuf();
  return {nullptr, text.str(), 90, 132};
}

/// Without the stem.
std::vector<ConvolutionShape> inner_convolutions(const resnet::Layers& layers) {
  std::vector<ConvolutionShape> shapes;
  for (const resnet::Block& block : layers.blocks) {
    for (const resnet::ConvolutionNorm& layer : block.path) shapes.push_back(layer.shape);
    if (block.shortcut) shapes.push_back(block.shortcut->shape);
  }
  return shapes;
}

struct Network {
  const char* name;
  std::int64_t image, convolutions;
  resnet::Layers layers(std::int64_t batch, std::int64_t channels) const {
    return layers_of(resnet::architecture_of(name, 1000), {batch, channels, image, image});
  }
};
constexpr Network networks[] = {{"resnet8", 32, 9}, {"resnet18", 224, 20}, {"resnet50", 224, 53}};

Plan build_first(const GraphKey& key, const Target& target) {
  Plan plan(key, target);
  for (std::int64_t candidate = 0; !plan.build(candidate);) ++candidate;
  return plan;
}

/// Empty when there is an engine; else why not.
std::string refusal(const GraphKey& key, const Target& target) {
  try {
    build_first(key, target);
    return "";
  } catch (const UnsupportedOperation& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("every convolution of the networks has engines", "[resnet][cudnn]") {
  const Target target = h200();
  const auto [precision, format] =
      GENERATE(std::pair(Precision::fp32, Format::nchw), std::pair(Precision::tf32, Format::nchw),
               std::pair(Precision::fp16, Format::nchw), std::pair(Precision::bf16, Format::nchw),
               std::pair(Precision::tf32, Format::nhwc), std::pair(Precision::fp16, Format::nhwc),
               std::pair(Precision::bf16, Format::nhwc));
  const bool deterministic = GENERATE(false, true);
  const std::int64_t batch = GENERATE(32, 256);
  const std::int64_t channels = format == Format::nhwc ? 4 : 3;
  for (const Network& network : networks) {
    const resnet::Layers layers = network.layers(batch, channels);
    std::vector<ConvolutionShape> shapes = inner_convolutions(layers);
    shapes.push_back(layers.stem.shape);
    CHECK(static_cast<std::int64_t>(shapes.size()) == network.convolutions);
    for (const ConvolutionShape& shape : shapes)
      for (const Graph graph : {Graph::forward, Graph::data_gradient, Graph::weight_gradient})
        CHECK(refusal({graph, shape, precision, format, deterministic}, target) == "");
  }
}

TEST_CASE("every inner convolution of the networks fuses in fp16 and nhwc", "[resnet][cudnn]") {
  const Target target = h200();
  const std::int64_t batch = GENERATE(32, 256, 512);
  const bool deterministic = GENERATE(false, true);
  const auto check = [&](const ConvolutionShape& shape, Graph graph) {
    CHECK(refusal({graph, shape, Precision::fp16, Format::nhwc, deterministic}, target) == "");
  };
  for (const Network& network : networks) {
    const resnet::Layers layers = network.layers(batch, 4);
    for (const ConvolutionShape& shape : inner_convolutions(layers))
      check(shape, Graph::forward_statistics);
    // Behind the first of a block, a convolution reads what the one before it has written.
    for (const resnet::Block& block : layers.blocks)
      for (std::size_t i = 1; i < block.path.size(); ++i)
        for (const Graph graph : resnet::cudnn::normalized_graphs)
          check(block.path[i].shape, graph);
    // The stem's does not: its input has too few channels.
    CHECK(refusal({Graph::forward_statistics, layers.stem.shape, Precision::fp16, Format::nhwc,
                   deterministic},
                  target) != "");
  }
}

TEST_CASE("what has no engine is told by name", "[resnet][cudnn]") {
  const ConvolutionShape shape{{32, 64, 56, 56}, 64, 3, 1, 1};
  const GraphKey key{Graph::forward_statistics, shape, Precision::fp32, Format::nchw, false};
  const std::string why = refusal(key, h200());
  CHECK(why.find(key.text()) != std::string::npos);
}

TEST_CASE("precision decides the engine", "[resnet][cudnn]") {
  const Target target = h200();
  const ConvolutionShape shape{{256, 64, 56, 56}, 64, 3, 1, 1};
  const auto engine = [&](Precision precision) {
    return build_first({Graph::forward, shape, precision, Format::nchw, false}, target).engine();
  };
  CHECK(engine(Precision::fp32) != engine(Precision::tf32));
}

TEST_CASE("a serialized plan is the same plan", "[resnet][cudnn]") {
  const Target target = h200();
  const Graph graph = GENERATE(Graph::forward, Graph::data_gradient, Graph::weight_gradient);
  const GraphKey key{graph, {{256, 64, 56, 56}, 64, 3, 1, 1}, Precision::fp16, Format::nhwc, false};
  const Plan plan = build_first(key, target);
  std::vector<std::uint8_t> bytes = plan.serialize();
  const Plan again(target, bytes);
  CHECK(again.workspace() == plan.workspace());
  // The front end writes a set in no order: the same bytes, but in another.
  const std::vector<std::uint8_t> once_more = again.serialize();
  CHECK(std::is_permutation(bytes.begin(), bytes.end(), once_more.begin(), once_more.end()));
  bytes.resize(bytes.size() / 2);
  CHECK_THROWS_AS(Plan(target, bytes), UnsupportedOperation);
}
