// SPDX-License-Identifier: Apache-2.0

// The network: names and shapes, formats, padded channels, smaller batches, graphs, loss scale, and
// that it learns.

#include "../../../examples/resnet/model/network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <penstock/emulation.hpp>
#include <string>
#include <vector>

#include "../../../examples/resnet/ops/reference/reference_operations.hpp"
#include "../../../examples/resnet/ops/reference/rounding.hpp"
#include "matchers.hpp"
#include "training.hpp"

namespace resnet::test {
namespace {

NetworkOptions small_network() {
  return {architecture_of("resnet8", 10), {6, 3, 12, 12}};
}

/// Elements in torchvision's order, whatever the memory's.
std::vector<float> in_order(const ParameterTable& table, const std::vector<float>& block) {
  std::vector<float> values;
  for (const Parameter& parameter : table.parameters())
    for (std::int64_t i = 0; i < parameter.count(); ++i)
      values.push_back(block[size(table.place(parameter, i))]);
  return values;
}

std::int64_t parameter_count(const std::string& name, std::int64_t image_size) {
  const Layers layers = layers_of(architecture_of(name, 1000), {1, 3, image_size, image_size});
  const ParameterTable table(layers, 3, Format::nchw);
  std::int64_t count = 0;
  for (const Parameter& parameter : table.parameters()) count += parameter.count();
  return count;
}

TEST_CASE("architectures: torchvision's parameters, names and shapes") {
  CHECK(parameter_count("resnet18", 224) == 11'689'512);
  CHECK(parameter_count("resnet50", 224) == 25'557'032);
  const Layers layers = layers_of(architecture_of("resnet50", 1000), {1, 3, 224, 224});
  const ParameterTable table(layers, 3, Format::nchw);
  CHECK(table.parameters().size() == 161);
  CHECK(table.parameters()[0].name == "conv1.weight");
  CHECK(table.parameter("layer1.0.downsample.0.weight").shape ==
        std::vector<std::int64_t>{256, 64, 1, 1});
  CHECK(table.parameter("layer4.2.conv2.weight").shape ==
        std::vector<std::int64_t>{512, 512, 3, 3});
  CHECK(table.statistic("layer2.0.downsample.1.running_var").channels == 512);
  CHECK(layers.blocks[3].path[1].shape.stride == 2);  // v1.5
  CHECK(layers.blocks[3].path[0].shape.stride == 1);
  CHECK(layers.features == Extents{1, 2048, 7, 7});
  CHECK_THROWS_WITH(architecture_of("resnet34", 10), contains("resnet18"));
  CHECK_THROWS_AS(architecture_of("resnet8", 0), std::invalid_argument);
}

TEST_CASE("parameters: what decays comes first, nothing overlaps, every place is its own") {
  const Layers layers = layers_of(architecture_of("resnet8", 10), {1, 4, 32, 32});
  for (const Format format : {Format::nchw, Format::nhwc}) {
    const ParameterTable table(layers, 3, format);
    std::vector<int> taken(size(table.all()));
    for (const Parameter& parameter : table.parameters())
      for (std::int64_t i = 0; i < parameter.count(); ++i) {
        const std::int64_t place = table.place(parameter, i);
        CHECK((place < table.weights()) == (parameter.shape.size() > 1));
        ++taken[size(place)];
      }
    CHECK(*std::max_element(taken.begin(), taken.end()) == 1);
  }
}

TEST_CASE("parameters: they start as torchvision's, the same in both formats") {
  const Layers layers = layers_of(architecture_of("resnet8", 10), {1, 3, 32, 32});
  const ParameterTable planes(layers, 3, Format::nchw), pixels(layers, 3, Format::nhwc);
  const std::vector<float> block = planes.initial(7);
  CHECK(in_order(planes, block) == in_order(pixels, pixels.initial(7)));
  CHECK(in_order(planes, block) != in_order(planes, planes.initial(8)));
  const Parameter& weights = planes.parameter("layer3.0.conv2.weight");
  double squares = 0, sum = 0;
  for (std::int64_t i = 0; i < weights.count(); ++i) {
    const auto value = static_cast<double>(block[size(planes.place(weights, i))]);
    squares += value * value;
    sum += value;
  }
  const auto count = static_cast<double>(weights.count());
  CHECK(squares / count == Approx(2.0 / (64 * 9)).epsilon(0.03));
  CHECK(std::abs(sum / count) < 3 * std::sqrt(2.0 / (64 * 9) / count));
  CHECK(block[size(planes.parameter("bn1.weight").offset)] == 1);
  CHECK(block[size(planes.parameter("bn1.bias").offset)] == 0);
  const Parameter& last = planes.parameter("fc.weight");
  for (std::int64_t i = 0; i < last.count(); ++i)
    CHECK(std::abs(block[size(planes.place(last, i))]) <= 0.125f);
}

/// All that the large networks have, with few channels.
Architecture tiny_bottleneck() {
  return {"tiny", BlockKind::bottleneck, 8, 7, 2, true, {{2, 4, 1}, {2, 8, 2}}, 10};
}

TEST_CASE("network: the same bits in both formats") {
  const Precision precision = GENERATE(Precision::fp32, Precision::fp16);
  for (const Architecture& architecture : {architecture_of("resnet8", 10), tiny_bottleneck()}) {
    const NetworkOptions options{architecture, {3, 3, 33, 30}};
    Training planes(options, Settings{.precision = precision}),
        pixels(options, Settings{.precision = precision, .format = Format::nhwc});
    for (int i = 0; i < 2; ++i) {
      planes.step();
      pixels.step();
    }
    CHECK(same_bits(planes.logits(), pixels.logits()));
    CHECK(same_bits(in_order(planes.network.table(), planes.state().parameters),
                    in_order(pixels.network.table(), pixels.state().parameters)));
    CHECK(same_bits(planes.state().statistics, pixels.state().statistics));
  }
}

/// As cuDNN in 16 bits wants them: four channels.
class PaddedOperations : public reference::ReferenceOperations {
 public:
  using ReferenceOperations::ReferenceOperations;
  std::int64_t padded_channels(std::int64_t channels) const override { return channels + 1; }
};

TEST_CASE("network: padded channels change nothing, and stay zero") {
  for (const Format format : {Format::nchw, Format::nhwc}) {
    Training plain(small_network(), Settings{.format = format});
    Training padded(small_network(),
                    std::make_unique<PaddedOperations>(Settings{.format = format}));
    CHECK(padded.network.input().c == 4);
    for (int i = 0; i < 3; ++i) {
      plain.step();
      padded.step();
    }
    CHECK(same_bits(plain.logits(), padded.logits()));
    const std::vector<float> block = padded.state().parameters;
    CHECK(same_bits(in_order(plain.network.table(), plain.state().parameters),
                    in_order(padded.network.table(), block)));
    const auto norm = [](const std::vector<float>& values) {
      return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
    };
    CHECK(norm(block) == Approx(norm(plain.state().parameters)));
  }
}

TEST_CASE("network: a smaller batch is that batch alone") {
  NetworkOptions options = small_network();
  Training large(options);
  options.images.n = 4;
  Training exact(options);
  large.step();  // leaves something behind everywhere
  large.start(test_parameters(large.network.table()));
  static_cast<void>(large.metrics());
  large.gradients(4);
  exact.gradients();
  CHECK(large.metrics().loss == exact.metrics().loss);
  CHECK(same_bits(large.network.gradients(large.stream.get()),
                  exact.network.gradients(exact.stream.get())));
  CHECK_THROWS_AS(large.gradients(7), std::invalid_argument);
  CHECK_THROWS_AS(large.gradients(0), std::invalid_argument);
}

TEST_CASE("network: a replayed graph of a step has the bits of eager steps") {
  Training eager(small_network()), replayed(small_network());
  for (int i = 0; i < 3; ++i) eager.step();

  const cudaStream_t stream = replayed.stream.get();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t step = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  replayed.step();
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
  REQUIRE_CUDA(cudaGraphInstantiate(&step, graph, 0));
  for (int i = 0; i < 3; ++i) REQUIRE_CUDA(cudaGraphLaunch(step, stream));
  CHECK(same_bits(replayed.state(), eager.state()));
  CHECK(replayed.metrics().loss == eager.metrics().loss);
  REQUIRE_CUDA(cudaGraphExecDestroy(step));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
}

TEST_CASE("network: a step neither allocates nor blocks") {
  namespace emulation = penstock::emulation;
  Training training(small_network());
  training.step();
  training.stream.synchronize();
  emulation::reset_counters();
  training.step();
  const emulation::CallClasses calls = emulation::call_classes();
  CHECK(calls.allocating == 0);
  CHECK(calls.creating == 0);
  CHECK(calls.blocking == 0);
  CHECK(calls.launching > 0);
  training.stream.synchronize();
}

TEST_CASE("network: in 16 bits, what lies in memory are numbers of that precision") {
  const Precision precision = GENERATE(Precision::fp16, Precision::bf16);
  const Fusion fusion = GENERATE(Fusion::none, Fusion::full);
  NetworkOptions options = small_network();
  Training wide(options);
  options.loss_scale = precision == Precision::fp16;
  options.initial_loss_scale = 64;
  Training narrow(options, Settings{.precision = precision, .fusion = fusion});
  wide.step();
  narrow.step();
  narrow.stream.synchronize();
  const Gradients gradients = narrow.network.gradient_memory();
  const auto* const values = static_cast<const float*>(gradients.weights);
  std::int64_t other = 0, none = 0;
  for (std::int64_t i = 0; i < gradients.sizes.weights; ++i) {
    other += reference::rounded(precision, values[i]) != values[i];
    none += values[i] == 0;
  }
  CHECK(other == 0);
  CHECK(none < gradients.sizes.weights);
  // The optimizer has all digits.
  const std::vector<float> parameters = narrow.state().parameters;
  CHECK(std::any_of(parameters.begin(), parameters.end(),
                    [&](float value) { return reference::rounded(precision, value) != value; }));

  const std::vector<float> theirs = wide.logits(), ours = narrow.logits();
  CHECK(!same_bits(ours, theirs));
  const double units = precision == Precision::fp16 ? 0x1p-11 : 0x1p-8;
  for (std::size_t i = 0; i < ours.size(); ++i)
    CHECK(static_cast<double>(ours[i]) ==
          Approx(static_cast<double>(theirs[i])).epsilon(20 * units).margin(20 * units));
}

TEST_CASE("network: the loss scale changes no step, an overflow skips one") {
  NetworkOptions options = small_network();
  Training plain(options);
  options.loss_scale = true;
  options.initial_loss_scale = 1024;
  Training scaled(options);
  SgdOptions sgd = test_sgd;
  sgd.growth_interval = 3;
  for (int i = 0; i < 2; ++i) {
    plain.step(sgd);
    scaled.step(sgd);
  }
  // A power of two: nothing is rounded otherwise.
  CHECK(same_bits(plain.state().parameters, scaled.state().parameters));

  const NetworkState before = scaled.state();
  scaled.set_batch(std::vector<float>(test_images(options.images).size(),
                                      std::numeric_limits<float>::infinity()),
                   test_labels(options.images.n, 10));
  scaled.step(sgd);
  NetworkState after = scaled.state();
  CHECK(same_bits(after.parameters, before.parameters));
  CHECK(same_bits(after.momenta, before.momenta));
  CHECK(after.step == 2);
  CHECK(after.batches_tracked == 3);
  CHECK(after.loss_scale.skipped == 1);
  CHECK(after.loss_scale.overflow != 0);
  CHECK(after.loss_scale.scale == 512);

  after.statistics = before.statistics;  // the infinities went into these
  scaled.network.set_state(after, scaled.stream.get());
  scaled.set_batch(test_images(options.images), test_labels(options.images.n, 10));
  for (int i = 0; i < 3; ++i) scaled.step(sgd);
  CHECK(scaled.state().step == 5);
  CHECK(scaled.state().loss_scale.overflow == 0);
  CHECK(scaled.state().loss_scale.scale == 1024);
}

TEST_CASE("network: the loss falls until the batch is known by heart") {
  Training training(small_network());
  training.network.initialise(1, training.stream.get());
  const SgdOptions sgd{{Decay::constant, 0.05f, 0, 1}, 0.9f, 5e-4f, 2000};
  const float images = 6;
  training.gradients();
  const float first = training.metrics().loss / images;
  for (int i = 0; i < 40; ++i) training.step(sgd);
  static_cast<void>(training.metrics());
  training.gradients();
  const Metrics last = training.metrics();
  CHECK(first > 1.5f);
  CHECK(last.loss / images < 0.05f);
  CHECK(last.correct == images);
  CHECK(last.samples == images);
}

}  // namespace
}  // namespace resnet::test
