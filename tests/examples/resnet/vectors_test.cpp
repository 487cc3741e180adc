// SPDX-License-Identifier: Apache-2.0

// Whole networks against PyTorch (vectors.hpp; the numbers are make_vectors.py's): logits, losses,
// gradients, ten steps of SGD, running statistics. Over the reference operations, the small one in
// 16 bits too, and over cuDNN in every mode.

#include <string>
#include <vector>

#include "../../support/catch.hpp"
#include "../../support/sanitized.hpp"
#include "modes.hpp"
#include "training.hpp"
#include "vectors.hpp"

namespace resnet::test {
namespace {

void compare_in(const Settings& settings, const std::string& name, std::int64_t classes,
                const Extents& images, int steps) {
  const Comparison comparison(name, settings.precision);
  NetworkOptions options{architecture_of(name, classes), images};
  options.loss_scale = settings.precision == Precision::fp16;
  options.initial_loss_scale = 1024;  // far from overflow: each step counts
  Training training(options, settings);
  training.set_batch(test_images(images, comparison.batch_seed()), test_labels(images.n, classes));
  const ParameterTable& table = training.network.table();
  std::vector<std::int64_t> counts, channels;
  for (const Parameter& parameter : table.parameters()) counts.push_back(parameter.count());
  for (const Statistic& statistic : table.statistics()) channels.push_back(statistic.channels);

  SgdOptions sgd = test_sgd;
  sgd.schedule.base = comparison.rate();
  Values losses;
  for (int step = 0; step < steps; ++step) {
    training.step(sgd);
    losses.push_back(static_cast<double>(training.metrics().loss) / static_cast<double>(images.n));
    if (step > 0) continue;
    comparison.check("logits", in_double(training.logits()), false);
    comparison.check("gradients", digests(table, training.network.gradients(training.stream.get())),
                     counts, false);
  }
  if (steps < 10) return;
  const NetworkState state = training.state();
  comparison.check("losses", losses, true);
  comparison.check("parameters", digests(table, state.parameters), counts, true);
  comparison.check("statistics", statistic_digests(table, state.statistics), channels, true);
  CHECK(state.batches_tracked == 10);
  training.infer();
  comparison.check("inference", in_double(training.logits()), true);
}

void compare(const std::string& name, std::int64_t classes, const Extents& images, int steps,
             Fusion fusion = Fusion::none) {
  std::vector<Settings> modes = every_mode();
  if (on_reference()) {
    modes = {Settings{.fusion = fusion}};
    if (name == "resnet8") {
      modes.push_back({.precision = Precision::fp16, .fusion = fusion});
      modes.push_back({.precision = Precision::bf16, .fusion = fusion});
    }
  }
  for (const Settings& settings : modes) {
    if (settings.fusion != fusion) continue;
    INFO(describe(settings));
    compare_in(settings, name, classes, images, steps);
  }
}

constexpr int steps_of_large_networks = PENSTOCK_TEST_SANITIZED ? 1 : 10;  // of seconds each

TEST_CASE("ResNet-8 as PyTorch's") {
  compare("resnet8", 10, {8, 3, 16, 16}, 10);
}
TEST_CASE("ResNet-8 with fused convolutions as PyTorch's") {
  compare("resnet8", 10, {8, 3, 16, 16}, 10, Fusion::full);
}
TEST_CASE("ResNet-18 as PyTorch's") {
  compare("resnet18", 20, {4, 3, 64, 64}, steps_of_large_networks);
}
TEST_CASE("ResNet-50 as PyTorch's") {
  compare("resnet50", 20, {4, 3, 64, 64}, steps_of_large_networks);
}
TEST_CASE("ResNet-50 with fused convolutions as PyTorch's") {
  compare("resnet50", 20, {4, 3, 64, 64}, 1, Fusion::full);
}

}  // namespace
}  // namespace resnet::test
