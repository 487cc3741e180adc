// SPDX-License-Identifier: Apache-2.0

// Folding: the folded network gives what the unfolded one does. Prepared files: what is saved comes
// back, and a file that is wrong is told apart.

#include "../../../../examples/resnet/infer/model.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "../../../../examples/resnet/infer/agreement.hpp"
#include "../../../../examples/resnet/infer/quantisation.hpp"
#include "../../../../examples/resnet/model/checkpoint.hpp"
#include "../../../support/catch.hpp"
#include "../../../support/temporary_directory.hpp"
#include "../matchers.hpp"
#include "models.hpp"

namespace resnet::test {
namespace {

namespace fs = std::filesystem;
using penstock::test::TemporaryDirectory;

TEST_CASE("infer: the folded network is the unfolded one, up to rounding") {
  const auto [name, extents] = GENERATE(
      std::tuple("resnet8", Extents{3, 3, 32, 32}), std::tuple("resnet20", Extents{2, 3, 16, 16}),
      std::tuple("resnet18", Extents{2, 3, 40, 40}), std::tuple("resnet50", Extents{2, 3, 40, 40}));
  Unfolded unfolded(name, extents);
  const std::vector<float> wanted = unfolded.logits();
  Model model = unfolded.folded();
  for (const Format format : {Format::nchw, Format::nhwc}) {
    // cuDNN computes fp32 that is no tf32 in nchw alone.
    if (format == Format::nhwc && !operations_name().starts_with("reference")) continue;
    model.format = format;
    const std::vector<float> logits =
        run(model, {.batches = {extents.n}}, unfolded.images, extents.n);
    INFO(name << ": logits up to " << largest(wanted));
    CHECK(largest_difference(logits, wanted) <= 2e-5 * largest(wanted));
  }
  CHECK(largest(wanted) > 1e-3);
}

TEST_CASE("infer: an untrained model is the network as training starts it") {
  const Extents extents{2, 3, 16, 16};
  Training training({architecture_of("resnet8", 10), extents});
  training.network.initialise(3, training.stream.get());
  training.infer();
  const std::vector<float> wanted = training.logits();
  const Model model = untrained(architecture_of("resnet8", 10), extents, 3);
  CHECK(largest_difference(run(model, {.batches = {2}}, test_images(extents), 2), wanted) <=
        2e-5 * largest(wanted));
  CHECK(largest(wanted) > 1e-3);
}

TEST_CASE("infer: batch norm is folded in double") {
  const ConvolutionShape shape = layers_of(architecture_of("resnet8", 10), {1, 3, 8, 8}).stem.shape;
  const auto tensors = [&](const std::string& tensor, const std::vector<std::int64_t>& extents) {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    const double value = tensor.ends_with("running_var")    ? 0.3
                         : tensor.ends_with("running_mean") ? 12345.678
                         : tensor == "bn1.weight"           ? 0.7
                                                            : 0.1;
    return std::vector<float>(size(count), static_cast<float>(value));
  };
  const Model model = fold(architecture_of("resnet8", 10), {1, 3, 8, 8}, tensors);
  const double factor = static_cast<double>(0.7f) / std::sqrt(static_cast<double>(0.3f) + 1e-5);
  CHECK(model.convolutions[0].weights ==
        std::vector<float>(size(shape.weights()),
                           static_cast<float>(static_cast<double>(0.1f) * factor)));
  CHECK(model.convolutions[0].bias ==
        std::vector<float>(16, static_cast<float>(static_cast<double>(0.1f) -
                                                  static_cast<double>(12345.678f) * factor)));
  const auto broken = [&](const std::string& tensor, const std::vector<std::int64_t>& extents) {
    std::vector<float> values = tensors(tensor, extents);
    if (tensor == "layer2.0.bn1.running_var") values[3] = -1;
    return values;
  };
  CHECK_THROWS_WITH(fold(architecture_of("resnet8", 10), {1, 3, 8, 8}, broken),
                    contains("layer2.0.bn1.running_var of channel 3"));
}

TEST_CASE("infer: a checkpoint's weights are those of its network") {
  const TemporaryDirectory directory;
  Unfolded unfolded("resnet8", {2, 3, 16, 16});
  save_checkpoint(directory / "a.safetensors", unfolded.training.network, {},
                  unfolded.training.stream.get());
  const safetensors::File file = safetensors::read(directory / "a.safetensors");
  const Model a = unfolded.folded();
  const Model b = fold(architecture_of("resnet8", 10), {1, 3, 16, 16}, tensors_of(file));
  for (std::size_t i = 0; i < a.convolutions.size(); ++i) {
    CHECK(a.convolutions[i].weights == b.convolutions[i].weights);
    CHECK(a.convolutions[i].bias == b.convolutions[i].bias);
  }
  CHECK(a.last_weights == b.last_weights);
  CHECK_THROWS_WITH(fold(architecture_of("resnet8", 7), {1, 3, 16, 16}, tensors_of(file)),
                    contains("fc.weight"));
  CHECK_THROWS_WITH(fold(architecture_of("resnet20", 10), {1, 3, 16, 16}, tensors_of(file)),
                    contains("layer1.1.conv1.weight"));
}

// ---- Files --------------------------------------------------------------------------------------

void check_same(const Model& a, const Model& b) {
  CHECK(a.architecture.name == b.architecture.name);
  CHECK(a.architecture.classes == b.architecture.classes);
  CHECK(a.image == b.image);
  CHECK(a.precision == b.precision);
  CHECK(a.format == b.format);
  CHECK(a.fusion == b.fusion);
  CHECK(a.batches == b.batches);
  REQUIRE(a.convolutions.size() == b.convolutions.size());
  for (std::size_t i = 0; i < a.convolutions.size(); ++i) {
    const ModelConvolution &one = a.convolutions[i], &other = b.convolutions[i];
    CHECK(one.name == other.name);
    CHECK(one.weights == other.weights);
    CHECK(one.quantised == other.quantised);
    CHECK(one.weight_scale == other.weight_scale);
    CHECK(one.bias == other.bias);
    CHECK(one.output_scale == other.output_scale);
  }
  CHECK(a.last_weights == b.last_weights);
  CHECK(a.last_bias == b.last_bias);
}

Model some_model(Precision precision) {
  Unfolded unfolded("resnet8", {2, 3, 16, 16});
  Model model = unfolded.folded();
  if (precision == Precision::int8)
    model = quantise(model, std::vector<float>(model.convolutions.size(), 3.5f));
  model.precision = precision;
  model.fusion = Fusion::elementwise;
  model.batches = {1, 16, 128};
  return model;
}

TEST_CASE("infer: a prepared model comes back as it was") {
  const auto precision = GENERATE(Precision::fp32, Precision::bf16, Precision::int8);
  const TemporaryDirectory directory;
  const Model model = some_model(precision);
  save_model(directory / "a.prepared", model);
  check_same(load_model(directory / "a.prepared"), model);
  CHECK(plan_file_of("a.prepared") == "a.prepared.plans");
}

TEST_CASE("infer: a file that is no prepared model is told apart") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "a.prepared";
  const auto load = [&] { return load_model(path); };
  CHECK_THROWS_WITH(load(), contains("a.prepared"));

  Unfolded unfolded("resnet8", {2, 3, 16, 16});
  save_checkpoint(path, unfolded.training.network, {}, unfolded.training.stream.get());
  CHECK_THROWS_WITH(load(), contains("is no prepared model"));

  save_model(path, some_model(Precision::int8));
  const safetensors::File file = safetensors::read(path);
  const auto rewrite = [&](const std::string& from, const std::string& to) {
    std::vector<safetensors::Tensor> tensors;
    for (const auto& [name, tensor] : file.tensors) tensors.push_back(tensor);
    safetensors::Metadata metadata = file.metadata;
    std::string& notes = metadata.at("penstock.inference");
    const std::size_t at = notes.find(from);
    REQUIRE(at != std::string::npos);
    notes.replace(at, from.size(), to);
    safetensors::write(path, tensors, metadata);
  };
  rewrite("\"version\":1", "\"version\":2");
  CHECK_THROWS_WITH(load(), contains("of version 2"));
  rewrite("\"int8\"", "\"int4\"");
  CHECK_THROWS_WITH(load(), contains("precision is \"int4\""));
  rewrite("\"resnet8\"", "\"resnet9\"");
  CHECK_THROWS_WITH(load(), contains("resnet9"));
  rewrite("[1,16,128]", "[16,1]");
  CHECK_THROWS_WITH(load(), contains("batch sizes"));
  rewrite("\"int8\"", "\"fp16\"");  // whose weights are no I8
  CHECK_THROWS_WITH(load(), contains("layer1.0.conv1.weight"));
  rewrite("\"classes\":10", "\"classes\":9");
  CHECK_THROWS_WITH(load(), contains("fc.weight"));
  for (const char* classes : {"0", "-1", "1.5", "18446744073709551615", "4294967296", "\"10\""}) {
    rewrite("\"classes\":10", std::string("\"classes\":") + classes);
    CHECK_THROWS_WITH(load(), contains("a.prepared") && contains("classes is no integer"));
  }
  for (const char* image :
       {"[3,16]", "[3,0,16]", "[3,-16,16]", "[3,4611686018427387904,4]", "16"}) {
    rewrite("[3,16,16]", image);
    CHECK_THROWS_WITH(load(), contains("a.prepared") && contains("image is no"));
  }
  for (const char* batches : {"[]", "[0]", "[1,18446744073709551615]", "[1,\"2\"]", "1", "{}"}) {
    rewrite("[1,16,128]", batches);
    CHECK_THROWS_WITH(load(), contains("a.prepared") && contains("batches is no"));
  }
  rewrite("\"version\":1", "\"version\":" + std::string(100'000, '[') + std::string(100'000, ']'));
  CHECK_THROWS_WITH(load(), contains("of version array"));
}

TEST_CASE("infer: what is not finite when it is folded, and what is compared, is told") {
  const auto folded = [](const std::string& changed, float value) {
    return fold(architecture_of("resnet8", 10), {1, 3, 16, 16},
                [&](const std::string& tensor, const std::vector<std::int64_t>& extents) {
                  std::int64_t count = 1;
                  for (const std::int64_t extent : extents) count *= extent;
                  return std::vector<float>(size(count), tensor == changed ? value : 2.0f);
                });
  };
  CHECK_NOTHROW(folded("", 0));
  constexpr float largest = std::numeric_limits<float>::max();
  CHECK_THROWS_WITH(folded("bn1.weight", largest), contains("conv1.weight of channel 0"));
  CHECK_THROWS_WITH(folded("layer1.0.bn1.running_mean", -largest),
                    contains("layer1.0.bn1.bias of channel 0"));
  CHECK_THROWS_WITH(folded("bn1.running_var", -1), contains("bn1.running_var of channel 0"));

  Agreement agreement;
  const std::vector<float> good{1, 2, 3, 4}, bad{1, 2, NAN, 4};
  const std::vector<std::int32_t> labels{0, 1};
  agreement.add(good, good, labels, 2);
  CHECK_THROWS_WITH(agreement.add(bad, good, labels, 2), contains("logits of image 3"));
  CHECK_THROWS_WITH(agreement.add(good, bad, labels, 2), contains("made of"));
}

TEST_CASE("infer: what a network cannot be made of") {
  const penstock::Stream stream;
  const Model model = some_model(Precision::fp32);
  CHECK_THROWS_WITH(InferenceNetwork(model, {.batches = {0, 4}}, stream.get()),
                    contains("batch sizes"));
  Model short_of_one = model;
  short_of_one.convolutions.pop_back();
  CHECK_THROWS_WITH(InferenceNetwork(short_of_one, {}, stream.get()), contains("convolutions"));

  const InferenceNetwork network(model, {.batches = {4, 2, 4}}, stream.get());
  CHECK(network.batches() == std::vector<std::int64_t>{2, 4});
  CHECK(network.batch_for(1) == 2);
  CHECK(network.batch_for(3) == 4);
  CHECK_THROWS_WITH(network.batch_for(5), contains("a batch of 5"));
  InferenceContext context(network);
  CHECK_THROWS_WITH(
      context.run({{2, 3, 16, 15}}, static_cast<float*>(nullptr), nullptr, stream.get()),
      contains("3 x 16 x 15"));
  CHECK_THROWS_WITH(
      context.run({{5, 3, 16, 16}}, static_cast<float*>(nullptr), nullptr, stream.get()),
      contains("a batch of 5"));
}

}  // namespace
}  // namespace resnet::test
