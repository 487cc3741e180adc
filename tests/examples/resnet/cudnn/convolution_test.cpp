// SPDX-License-Identifier: Apache-2.0

// Convolutions on a GPU: against the reference in double; with every choice of plans; the same bits
// again, from plans that were saved, and in a captured graph.

#include <algorithm>
#include <string>
#include <vector>

#include "../../../../examples/resnet/ops/reference/convolution.hpp"
#include "accuracy.hpp"
#include "straightforward.hpp"
#include "support/graphs.hpp"
#include "support/temporary_directory.hpp"

namespace resnet::test {
namespace {

/// The three results.
struct Results {
  Values y, x_gradient, weight_gradient;
};

Results in_double(const ConvolutionShape& shape, Format format, const Values& x,
                  const Values& weights, const Values& y_gradient) {
  const reference::Convolution<double> plan(shape, format);
  Values memory(plan.scratch(1));
  const reference::Scratch<double> scratch{memory.data(), 1};
  Results results{Values(y_gradient.size()), Values(x.size()), Values(weights.size())};
  plan.forward(x.data(), weights.data(), results.y.data(), scratch);
  plan.data_gradient(y_gradient.data(), weights.data(), results.x_gradient.data(), scratch);
  plan.weight_gradient(x.data(), y_gradient.data(), results.weight_gradient.data(), scratch);
  return results;
}

/// One convolution's operands and results on the device.
struct OnDevice {
  OnDevice(Bench& on, const ConvolutionShape& of, const Values& x_values,
           const Values& weight_values, const Values& gradient_values)
      : bench(on),
        shape(of),
        x(on.upload(x_values)),
        weights(on.upload(weight_values)),
        y_gradient(on.upload(gradient_values)),
        y(on.room(of.out().count())),
        x_gradient(on.room(of.in.count())),
        weight_gradient(on.room(of.weights())) {}

  void run() {
    Operations& ops = bench.operations();
    const cudaStream_t stream = bench.stream();
    ops.convolution(shape, x->data(), weights->data(), y->data(), stream);
    ops.convolution_data_gradient(shape, y_gradient->data(), weights->data(), x_gradient->data(),
                                  stream);
    ops.convolution_weight_gradient(shape, x->data(), y_gradient->data(), weight_gradient->data(),
                                    stream);
  }
  Results results() const {
    return {bench.download(*y), bench.download(*x_gradient), bench.download(*weight_gradient)};
  }

  Bench& bench;
  ConvolutionShape shape;
  std::unique_ptr<DeviceValues> x, weights, y_gradient, y, x_gradient, weight_gradient;
};

struct Operands {
  Operands(const Bench& bench, const ConvolutionShape& shape)
      : x(bench.numbers(1, shape.in.count())),
        weights(bench.numbers(2, shape.weights())),
        y_gradient(bench.numbers(3, shape.out().count())) {}
  /// As tensor cores see them.
  Operands multiplied(Precision precision) const {
    Operands others = *this;
    for (Values* values : {&others.x, &others.weights, &others.y_gradient})
      for (double& value : *values) value = as_operand(precision, value);
    return others;
  }
  Values x, weights, y_gradient;
};

void expect_results(const Bench& bench, const ConvolutionShape& shape, const Operands& operands,
                    const Results& results) {
  const Format format = bench.settings().format;
  const Results truth = in_double(shape, format, operands.x, operands.weights, operands.y_gradient);
  const Operands seen = operands.multiplied(bench.settings().precision);
  const auto base = straightforward::convolution(
      shape, format, as<float>(seen.x), as<float>(seen.weights), as<float>(seen.y_gradient));
  bench.expect("y", results.y, truth.y, base.y);
  bench.expect("gradient of x", results.x_gradient, truth.x_gradient, base.x_gradient);
  bench.expect("gradient of weights", results.weight_gradient, truth.weight_gradient,
               base.weight_gradient);
}

void check_convolution(const Settings& settings, const ConvolutionShape& shape) {
  Bench bench(settings);
  const Operands operands(bench, shape);
  OnDevice device(bench, shape, operands.x, operands.weights, operands.y_gradient);
  bench.operations().prepare(shape);
  device.run();
  expect_results(bench, shape, operands, device.results());
}

constexpr ConvolutionShape shapes[] = {
    {{8, 3, 64, 64}, 64, 7, 2, 3},    // the stem
    {{8, 4, 64, 64}, 64, 7, 2, 3},    // the stem, padded
    {{8, 3, 32, 32}, 16, 3, 1, 1},    // CIFAR's
    {{8, 64, 28, 28}, 64, 3, 1, 1},   //
    {{8, 64, 28, 28}, 128, 3, 2, 1},  // strided
    {{8, 64, 14, 14}, 256, 1, 1, 0},  //
    {{8, 64, 14, 14}, 128, 1, 2, 0},  // a shortcut's
    {{3, 24, 7, 9}, 40, 3, 1, 1},     // odd extents
};

Settings usual() {
  Settings settings;
  settings.precision = Precision::fp16;
  settings.format = Format::nhwc;
  return settings;
}

constexpr ConvolutionShape usual_shape{{8, 64, 14, 14}, 64, 3, 1, 1};

}  // namespace

TEST_CASE("convolutions are as exact as the straightforward ones", "[gpu][resnet]") {
  const Settings settings = GENERATE(from_range(every_mode()));
  for (const ConvolutionShape& shape : shapes) check_convolution(settings, shape);
}

TEST_CASE("convolutions with plans chosen in every way", "[gpu][resnet]") {
  Settings settings = usual();
  settings.plans = GENERATE(PlanChoice::heuristic, PlanChoice::timed, PlanChoice::exhaustive);
  settings.deterministic = GENERATE(false, true);
  check_convolution(settings, usual_shape);
}

TEST_CASE("an operation prepares a shape that was not", "[gpu][resnet]") {
  Bench bench(usual());
  const Operands operands(bench, usual_shape);
  OnDevice device(bench, usual_shape, operands.x, operands.weights, operands.y_gradient);
  device.run();
  expect_results(bench, usual_shape, operands, device.results());
}

TEST_CASE("deterministic plans give the same bits: again, and in a graph", "[gpu][resnet]") {
  Settings settings = usual();
  settings.deterministic = true;
  Bench bench(settings);
  const Operands operands(bench, usual_shape);
  OnDevice first(bench, usual_shape, operands.x, operands.weights, operands.y_gradient);
  OnDevice second(bench, usual_shape, operands.x, operands.weights, operands.y_gradient);
  bench.operations().prepare(usual_shape);
  first.run();
  const penstock::test::TestGraph graph =
      penstock::test::capture(bench.stream(), [&] { second.run(); });
  const penstock::test::TestGraphExec exec(graph);
  // A shape that asks for more workspace must not take away what the graph has.
  bench.operations().prepare({{32, 64, 56, 56}, 64, 3, 1, 1});
  REQUIRE_CUDA(cudaGraphLaunch(exec, bench.stream()));
  CHECK(first.results().y == second.results().y);
  CHECK(first.results().x_gradient == second.results().x_gradient);
  CHECK(first.results().weight_gradient == second.results().weight_gradient);
}

TEST_CASE("saved plans are used: the same bits", "[gpu][resnet]") {
  const penstock::test::TemporaryDirectory directory;
  Settings settings = usual();
  settings.plans = PlanChoice::timed;
  settings.deterministic = true;
  settings.plan_file = directory / "plans";
  const auto run = [&] {
    Bench bench(settings);
    const Operands operands(bench, usual_shape);
    OnDevice device(bench, usual_shape, operands.x, operands.weights, operands.y_gradient);
    bench.operations().prepare(usual_shape);
    device.run();
    expect_results(bench, usual_shape, operands, device.results());
    return device.results();
  };
  const Results fresh = run();
  const auto written = std::filesystem::last_write_time(settings.plan_file);
  const Results loaded = run();
  // Had a plan been made anew, the file would be, too.
  CHECK(std::filesystem::last_write_time(settings.plan_file) == written);
  CHECK(loaded.y == fresh.y);
  CHECK(loaded.x_gradient == fresh.x_gradient);
  CHECK(loaded.weight_gradient == fresh.weight_gradient);
}

}  // namespace resnet::test
