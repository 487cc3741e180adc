// SPDX-License-Identifier: Apache-2.0

// SGD and dynamic loss scaling on a GPU: against the reference's update, and its rules.

#include <limits>
#include <vector>

#include "../../../../examples/resnet/ops/reference/sgd.hpp"
#include "accuracy.hpp"
#include "support/graphs.hpp"

namespace resnet::test {
namespace {

struct Optimizer {
  Optimizer(Bench& on, std::int64_t weights, std::int64_t others)
      : bench(on),
        parameters(on.upload_as(as<float>(random_values(1, weights + others)))),
        momenta(on.upload_as(std::vector<float>(static_cast<std::size_t>(weights + others)))),
        compute_weights(on.room(weights)),
        weight_gradients(on.upload(on.numbers(2, weights))),
        other_gradients(on.upload_as(as<float>(random_values(3, others)))),
        step(1),
        loss_scale(on.upload_as(std::vector<LossScale>{LossScale{}})) {
    state.weights = weights, state.others = others;
    state.parameters = parameters->data(), state.momenta = momenta->data();
    state.compute_weights = is_16_bits(on.settings().precision) ? compute_weights->data() : nullptr;
    state.weight_gradients = weight_gradients->data();
    state.other_gradients = other_gradients->data();
    state.step = step.data();
  }

  void run(const SgdOptions& options) { bench.operations().sgd(state, options, bench.stream()); }
  LossScale scale() const { return loss_scale->read().front(); }
  std::int64_t steps() const { return step.read().front(); }
  void set_weight_gradient(double value) {
    Values values = bench.download(*weight_gradients);
    values.back() = value;
    penstock::test::copy_and_wait(*weight_gradients, bench.upload(values)->data());
  }

  Bench& bench;
  std::unique_ptr<DeviceArrayOf<float>> parameters, momenta;
  std::unique_ptr<DeviceValues> compute_weights, weight_gradients;
  std::unique_ptr<DeviceArrayOf<float>> other_gradients;
  DeviceArrayOf<std::int64_t> step;
  std::unique_ptr<DeviceArrayOf<LossScale>> loss_scale;
  SgdState state;
};

SgdOptions with_schedule(Decay decay) {
  SgdOptions options;
  options.schedule = {decay, 0.5f, 3, 12};
  return options;
}

/// Parameters after `steps` of the same gradients, which were scaled by `scale`.
template <class T>
std::vector<T> on_the_cpu(const Optimizer& optimizer, const Values& weight_gradients,
                          const SgdOptions& options, int steps, double scale) {
  const auto weights = static_cast<std::size_t>(optimizer.state.weights);
  const auto others = static_cast<std::size_t>(optimizer.state.others);
  std::vector<T> parameters =
      as<T>(random_values(1, optimizer.state.weights + optimizer.state.others));
  for (T& parameter : parameters) parameter = static_cast<T>(static_cast<float>(parameter));
  std::vector<T> momenta(parameters.size());
  const std::vector<T> gradients = as<T>(weight_gradients);
  const std::vector<float> floats = as<float>(random_values(3, optimizer.state.others));
  const std::vector<T> other_gradients(floats.begin(), floats.end());
  for (int i = 0; i < steps; ++i) {
    reference::Update<T> by;
    by.rate = static_cast<T>(reference::learning_rate(options.schedule, i));
    by.momentum = static_cast<T>(options.momentum);
    by.decay = static_cast<T>(options.weight_decay);
    by.gradient_factor = static_cast<T>(1 / scale);
    reference::update(by, static_cast<std::int64_t>(weights), gradients.data(), momenta.data(),
                      parameters.data(), 1);
    by.decay = 0;
    reference::update(by, static_cast<std::int64_t>(others), other_gradients.data(),
                      momenta.data() + weights, parameters.data() + weights, 1);
  }
  return parameters;
}

}  // namespace

TEST_CASE("SGD steps, on every schedule", "[gpu][resnet]") {
  Settings settings = GENERATE(from_range(every_mode()));
  const Decay decay = GENERATE(Decay::cosine, Decay::steps, Decay::constant);
  const std::int64_t weights = GENERATE(4096, 1001);
  const bool scaled = GENERATE(false, true);
  Bench bench(settings);
  Optimizer optimizer(bench, weights, 130);
  if (scaled) optimizer.state.loss_scale = optimizer.loss_scale->data();
  const SgdOptions options = with_schedule(decay);
  constexpr int steps = 15;
  for (int i = 0; i < steps; ++i) optimizer.run(options);
  CHECK(optimizer.steps() == steps);

  const Values gradients = bench.download(*optimizer.weight_gradients);
  const double scale = scaled ? 65536 : 1;
  const auto truth = on_the_cpu<double>(optimizer, gradients, options, steps, scale);
  bench.expect_floats("parameters", *optimizer.parameters, truth,
                      on_the_cpu<float>(optimizer, gradients, options, steps, scale));
  if (optimizer.state.compute_weights == nullptr) return;
  const std::vector<float> parameters = optimizer.parameters->read();
  const Values compute = bench.download(*optimizer.compute_weights);
  for (std::size_t i = 0; i < compute.size(); ++i)
    REQUIRE(compute[i] == rounded(settings.precision, static_cast<double>(parameters[i])));
}

TEST_CASE("an overflow skips the step and halves the scale", "[gpu][resnet]") {
  Settings settings;
  settings.precision = GENERATE(Precision::fp32, Precision::fp16, Precision::bf16);
  const double bad =
      GENERATE(std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
               std::numeric_limits<double>::quiet_NaN());
  Bench bench(settings);
  Optimizer optimizer(bench, 1000, 10);
  optimizer.state.loss_scale = optimizer.loss_scale->data();
  const std::vector<float> before = optimizer.parameters->read();
  const auto metrics = bench.upload_as(std::vector<Metrics>(1));
  optimizer.state.metrics = metrics->data();
  optimizer.set_weight_gradient(bad);
  optimizer.run(with_schedule(Decay::constant));
  CHECK(metrics->read().front().skipped == 1);
  CHECK(optimizer.parameters->read() == before);
  CHECK(optimizer.momenta->read() == std::vector<float>(before.size()));
  CHECK(optimizer.steps() == 0);
  CHECK(optimizer.scale().scale == 32768);
  CHECK(optimizer.scale().skipped == 1);
  CHECK(optimizer.scale().overflow != 0);

  optimizer.set_weight_gradient(1);
  optimizer.run(with_schedule(Decay::constant));
  CHECK(metrics->read().front().skipped == 1);
  CHECK(optimizer.parameters->read() != before);
  CHECK(optimizer.steps() == 1);
  CHECK(optimizer.scale().overflow == 0);
  CHECK(optimizer.scale().good_steps == 1);
}

TEST_CASE("good steps in a row double the scale, in a captured graph too", "[gpu][resnet]") {
  Bench bench(Settings{});
  Optimizer optimizer(bench, 100, 10);
  optimizer.state.loss_scale = optimizer.loss_scale->data();
  SgdOptions options = with_schedule(Decay::constant);
  options.growth_interval = 3;
  const penstock::test::TestGraph graph =
      penstock::test::capture(bench.stream(), [&] { optimizer.run(options); });
  const penstock::test::TestGraphExec exec(graph);
  for (int i = 0; i < 2; ++i) REQUIRE_CUDA(cudaGraphLaunch(exec, bench.stream()));
  CHECK(optimizer.scale().scale == 65536);
  REQUIRE_CUDA(cudaGraphLaunch(exec, bench.stream()));
  CHECK(optimizer.scale().scale == 131072);
  CHECK(optimizer.scale().good_steps == 0);
  CHECK(optimizer.steps() == 3);
}

}  // namespace resnet::test
