// SPDX-License-Identifier: Apache-2.0

// Plans of every convolution of an inference for an H200 that is only described. What is said here
// of engines is true without a device: those that are compiled at run time are not to be had then,
// and the convolutions that would have them are run as convolution and one kernel. Runs in the
// folder of h200-device-properties.json.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "../../../../examples/resnet/model/architecture.hpp"
#include "../../../../examples/resnet/ops/cudnn/inference.hpp"
#include "support/catch.hpp"

namespace resnet::cudnn {
namespace {

Target h200() {
  std::ostringstream text;
  text << std::ifstream("h200-device-properties.json").rdbuf();
  return {nullptr, text.str(), 90, 132};
}

bool has_engine(const GraphKey& key, const Target& target) {
  try {
    Plan plan(key, target);
    for (std::int64_t candidate = 0; !plan.build(candidate);) ++candidate;
    return true;
  } catch (const UnsupportedOperation& error) {
    CHECK(std::string(error.what()).find(key.text()) != std::string::npos);
    return false;
  }
}

/// As InferenceNetwork describes them.
std::vector<InferenceConvolution> convolutions(const char* network, const Settings& settings,
                                               std::int64_t batch) {
  const bool padded = settings.format == Format::nhwc;
  const Layers layers =
      layers_of(architecture_of(network, 1000), {batch, padded ? 4 : 3, 224, 224});
  const Precision precision = settings.precision;
  std::vector<InferenceConvolution> all{
      {layers.stem.shape, floating(precision), precision, false, true}};
  for (const Block& block : layers.blocks) {
    for (const ConvolutionNorm& layer : block.path)
      all.push_back({layer.shape, precision, precision, &layer == &block.path.back(), true});
    if (block.shortcut) all.push_back({block.shortcut->shape, precision, precision, false, false});
  }
  return all;
}

/// The way that there is without a device: engines without a residual are there from the start, in
/// 16 bits with a bias in 16 bits alone.
Way without_device(const InferenceConvolution& what) {
  if (what.quantised() || what.residual) return Way::separate;
  const bool narrow = what.precision == Precision::fp16 || what.precision == Precision::bf16;
  return narrow ? Way::narrow_bias : Way::fused;
}

Settings mode(Precision precision, Format format) {
  Settings settings;
  settings.precision = precision;
  settings.format = format;
  settings.fusion = Fusion::full;
  return settings;
}

}  // namespace
}  // namespace resnet::cudnn

using namespace resnet;
using namespace resnet::cudnn;

TEST_CASE("inference: every convolution has a plan, also without a device", "[resnet][cudnn]") {
  const Target target = h200();
  const auto [network, precision, format] =
      GENERATE(std::tuple("resnet18", Precision::fp32, Format::nchw),
               std::tuple("resnet18", Precision::tf32, Format::nhwc),
               std::tuple("resnet18", Precision::fp16, Format::nhwc),
               std::tuple("resnet18", Precision::bf16, Format::nhwc),
               std::tuple("resnet18", Precision::int8, Format::nhwc),
               std::tuple("resnet50", Precision::fp16, Format::nhwc),
               std::tuple("resnet50", Precision::bf16, Format::nhwc),
               std::tuple("resnet50", Precision::int8, Format::nhwc));
  const std::int64_t batch = GENERATE(1, 16, 128);
  const Settings settings = mode(precision, format);
  std::set<std::string> asked;  // layers that are alike are asked for once
  int fused = 0;
  for (const InferenceConvolution& what : convolutions(network, settings, batch)) {
    fused += without_device(what) != Way::separate;
    for (const Way way : {without_device(what), Way::separate}) {
      const GraphKey key = graph_of(what, settings, way);
      INFO(key.text());
      if (asked.insert(key.text()).second) CHECK(has_engine(key, target));
    }
  }
  const bool is_small = network == std::string("resnet18");
  CHECK(fused == (precision == Precision::int8 ? 0 : is_small ? 12 : 37));
}

// Engines that are compiled at run time are not to be had here: those with a residual, those
// without ReLU, those with a float bias in 16 bits, and the fused ones of int8. `separate` runs
// then.
TEST_CASE("inference: what only a device has an engine for", "[resnet][cudnn]") {
  const Target target = h200();
  const auto refused = [&](Precision precision, bool residual, Way way) {
    const Settings settings = mode(precision, Format::nhwc);
    const InferenceConvolution what{
        {{16, 64, 56, 56}, 64, 3, 1, 1}, precision, precision, residual, true};
    const std::vector<Way> ways = ways_of(what, settings);
    CHECK(std::find(ways.begin(), ways.end(), way) != ways.end());
    CHECK(ways.back() == Way::separate);
    return !has_engine(graph_of(what, settings, way), target);
  };
  CHECK(refused(Precision::fp16, true, Way::narrow_bias));
  CHECK(refused(Precision::fp16, false, Way::fused));
  CHECK(refused(Precision::int8, false, Way::fused));
}

TEST_CASE("inference: the ways that a convolution may be run in", "[resnet][cudnn]") {
  const ConvolutionShape shape{{1, 64, 8, 8}, 64, 3, 1, 1};
  const auto count = [&](Precision precision, Precision result, Fusion fusion) {
    Settings settings = mode(precision, Format::nhwc);
    settings.fusion = fusion;
    return ways_of({shape, precision, result, false, true}, settings).size();
  };
  CHECK(count(Precision::fp16, Precision::fp16, Fusion::full) == 3);
  CHECK(count(Precision::tf32, Precision::tf32, Fusion::full) == 2);
  CHECK(count(Precision::int8, Precision::int8, Fusion::full) == 2);
  CHECK(count(Precision::fp16, Precision::int8, Fusion::full) == 1);
  CHECK(count(Precision::fp16, Precision::fp16, Fusion::elementwise) == 1);
  const InferenceConvolution in_int8{shape, Precision::int8, Precision::int8, false, true};
  CHECK(sums_bytes(in_int8, Way::separate) == 64 * 8 * 8 * 4);
  CHECK(sums_bytes(in_int8, Way::fused) == 0);
  CHECK(sums_bytes({shape, Precision::fp16, Precision::int8, false, true}, Way::separate) ==
        64 * 8 * 8 * 2);
  CHECK(sums_bytes({shape, Precision::fp16, Precision::fp16, true, true}, Way::separate) == 0);
}
