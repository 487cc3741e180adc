// SPDX-License-Identifier: Apache-2.0

// Pooling, the last layer, the loss, and conversions on a GPU, against the reference in double.

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "../../../../examples/resnet/ops/reference/cross_entropy.hpp"
#include "../../../../examples/resnet/ops/reference/linear.hpp"
#include "../../../../examples/resnet/ops/reference/pooling.hpp"
#include "accuracy.hpp"
#include "straightforward.hpp"

namespace resnet::test {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

void check_max_pool(const Settings& settings, const PoolShape& shape, bool with_more) {
  Bench bench(settings);
  const std::int64_t out = shape.out().count();
  // Few different numbers: there are equals in most windows.
  Values x = bench.numbers(1, shape.in.count());
  for (double& value : x) value = std::round(value * 4) / 4;
  const Values gradient = bench.numbers(2, out), more = bench.numbers(3, out);
  const auto device_x = bench.upload(x), device_gradient = bench.upload(gradient),
             device_more = bench.upload(more), y = bench.room(out),
             x_gradient = bench.room(shape.in.count());
  const DeviceArrayOf<std::uint8_t> chosen(size(out));
  Operations& ops = bench.operations();
  ops.max_pool(shape, device_x->data(), y->data(), chosen.data(), bench.stream());
  ops.max_pool_gradient(shape, chosen.data(), device_gradient->data(),
                        with_more ? device_more->data() : nullptr, x_gradient->data(),
                        bench.stream());

  Values truth(size(out)), truth_gradient(x.size());
  std::vector<float> base_gradient(x.size());
  std::vector<std::uint8_t> truth_chosen(size(out));
  const Format format = settings.format;
  reference::max_pool(shape, format, x.data(), truth.data(), truth_chosen.data(), 1);
  reference::max_pool_gradient(shape, format, truth_chosen.data(), gradient.data(),
                               with_more ? more.data() : nullptr, truth_gradient.data(), 1);
  const std::vector<float> few = as<float>(gradient), others = as<float>(more);
  reference::max_pool_gradient(shape, format, truth_chosen.data(), few.data(),
                               with_more ? others.data() : nullptr, base_gradient.data(), 1);
  CHECK(bench.download(*y) == truth);
  CHECK(chosen.read() == truth_chosen);
  bench.expect("gradient of max pool", bench.download(*x_gradient), truth_gradient, base_gradient);
}

void check_average_pool(const Settings& settings, const Extents& extents) {
  Bench bench(settings);
  const std::int64_t out = extents.n * extents.c;
  const Values x = bench.numbers(1, extents.count()), gradient = bench.numbers(2, out);
  const auto device_x = bench.upload(x), device_gradient = bench.upload(gradient),
             y = bench.room(out), x_gradient = bench.room(extents.count());
  bench.operations().average_pool(extents, device_x->data(), y->data(), bench.stream());
  bench.operations().average_pool_gradient(extents, device_gradient->data(), x_gradient->data(),
                                           bench.stream());
  const reference::ActivationLayout layout(extents, settings.format);
  const auto on_the_cpu = [&]<class T>(std::vector<T> means, std::vector<T> gradients) {
    reference::average_pool(layout, as<T>(x).data(), means.data(), 1);
    reference::average_pool_gradient(layout, as<T>(gradient).data(), gradients.data(), 1);
    return std::pair(means, gradients);
  };
  const auto truth = on_the_cpu(Values(size(out)), Values(x.size()));
  const auto base = on_the_cpu(std::vector<float>(size(out)), std::vector<float>(x.size()));
  bench.expect("average", bench.download(*y), truth.first, base.first);
  bench.expect("gradient of average", bench.download(*x_gradient), truth.second, base.second);
}

template <class T>
struct LinearResults {
  std::vector<T> logits, x_gradient, weight_gradient, bias_gradient;
};

struct LinearOperands {
  Values x, weights, bias, gradient;
};

LinearResults<double> linear_in_double(const reference::LinearShape& shape,
                                       const LinearOperands& operands) {
  const auto& [x, weights, bias, gradient] = operands;
  LinearResults<double> results{Values(gradient.size()), Values(x.size()), Values(weights.size()),
                                Values(bias.size())};
  reference::linear(shape, x.data(), weights.data(), bias.data(), results.logits.data(), 1);
  reference::linear_gradient(shape, x.data(), weights.data(), gradient.data(),
                             results.x_gradient.data(), results.weight_gradient.data(),
                             results.bias_gradient.data(), 1);
  return results;
}

LinearResults<float> linear_in_float(const reference::LinearShape& shape,
                                     const LinearOperands& operands) {
  using straightforward::Matrix, straightforward::Transposed, straightforward::product;
  const auto [n, features, classes] = shape;
  const std::vector<float> xs = as<float>(operands.x), ws = as<float>(operands.weights),
                           gs = as<float>(operands.gradient), ones(size(n), 1.0f);
  const Matrix x{xs, features}, weights{ws, features}, gradient{gs, classes};
  LinearResults<float> results{product(n, classes, features, x, Transposed{weights}),
                               product(n, features, classes, gradient, weights),
                               product(classes, features, n, Transposed{gradient}, x),
                               product(1, classes, n, Matrix{ones, n}, gradient)};
  for (std::size_t i = 0; i < results.logits.size(); ++i)
    results.logits[i] += static_cast<float>(operands.bias[i % size(classes)]);
  return results;
}

/// The truth with what float sums of the last layer's length lose, one term behind the other, when
/// operands have float's digits. Products of bfloat16 have but 16, and float sums of those lose 0.4
/// of that: the operands' luck, and no measure for sums in the order of tensor cores.
std::vector<float> float_sums(const reference::LinearShape& shape, const Values& truth) {
  const auto [n, features, classes] = shape;
  const LinearOperands operands{random_values(1, n * features),
                                random_values(2, classes * features), random_values(3, classes),
                                random_values(4, n * classes)};
  const auto exact = linear_in_double(shape, operands);
  const auto summed = linear_in_float(shape, operands);
  std::vector<float> base(truth.size());
  for (std::size_t i = 0; i < base.size(); ++i)
    base[i] =
        static_cast<float>(truth[i] + (static_cast<double>(summed.logits[i]) - exact.logits[i]));
  return base;
}

void check_linear(const Settings& settings, const reference::LinearShape& shape) {
  Bench bench(settings);
  const auto [n, features, classes] = shape;
  LinearOperands operands{bench.numbers(1, n * features), bench.numbers(2, classes * features),
                          random_values(3, classes), random_values(4, n * classes)};
  const auto x = bench.upload(operands.x), weights = bench.upload(operands.weights),
             x_gradient = bench.room(n * features),
             weight_gradient = bench.room(classes * features);
  const auto bias = bench.upload_as(as<float>(operands.bias)),
             gradient = bench.upload_as(as<float>(operands.gradient));
  const DeviceArrayOf<float> logits(size(n * classes)), bias_gradient(size(classes));
  Operations& ops = bench.operations();
  ops.linear(n, features, classes, x->data(), weights->data(), bias->data(), logits.data(),
             bench.stream());
  ops.linear_gradient(n, features, classes, x->data(), weights->data(), gradient->data(),
                      x_gradient->data(), weight_gradient->data(), bias_gradient.data(),
                      bench.stream());

  const auto truth = linear_in_double(shape, operands);
  LinearOperands seen = operands;
  for (Values* values : {&seen.x, &seen.weights, &seen.gradient})
    for (double& value : *values) value = as_operand(settings.precision, value);
  const auto base = linear_in_float(shape, seen);
  bench.expect_floats(
      "logits", logits, truth.logits,
      is_16_bits(settings.precision) ? float_sums(shape, truth.logits) : base.logits);
  bench.expect("gradient of x", bench.download(*x_gradient), truth.x_gradient, base.x_gradient);
  bench.expect("gradient of weights", bench.download(*weight_gradient), truth.weight_gradient,
               base.weight_gradient);
  // The bias's is a sum of floats in every precision.
  bench.expect_floats("gradient of bias", bias_gradient, truth.bias_gradient,
                      linear_in_float(shape, operands).bias_gradient);
}

}  // namespace

TEST_CASE("max pool takes the first of equals, and gives it the gradient", "[gpu][resnet]") {
  const Settings settings = GENERATE(from_range(every_mode()));
  for (const bool with_more : {false, true})
    for (const PoolShape& shape : {PoolShape{{4, 64, 32, 32}}, PoolShape{{2, 3, 9, 12}},
                                   PoolShape{{2, 5, 7, 9}}, PoolShape{{3, 8, 6, 6}, 2, 2, 0}})
      check_max_pool(settings, shape, with_more);
}

TEST_CASE("average pool of every extent", "[gpu][resnet]") {
  const Settings settings = GENERATE(from_range(every_mode()));
  for (const Extents& extents :
       {Extents{32, 512, 7, 7}, Extents{4, 64, 8, 8}, Extents{3, 5, 3, 2}, Extents{1, 1, 1, 1}})
    check_average_pool(settings, extents);
}

TEST_CASE("the last layer, whatever its numbers divide by", "[gpu][resnet]") {
  const Settings settings = GENERATE(from_range(every_mode()));
  for (const reference::LinearShape& shape :
       {reference::LinearShape{128, 64, 10}, {32, 2048, 1000}, {5, 33, 7}, {1, 16, 2}})
    check_linear(settings, shape);
}

TEST_CASE("cross entropy: loss, hits, and the gradient times the scale", "[gpu][resnet]") {
  Settings settings;
  Bench bench(settings);
  const auto [n, classes] = GENERATE(std::pair<std::int64_t, std::int64_t>(256, 1000),
                                     std::pair<std::int64_t, std::int64_t>(7, 10),
                                     std::pair<std::int64_t, std::int64_t>(300, 33));
  const Values logits = random_values(1, n * classes, 8);
  std::vector<std::int32_t> labels(size(n));
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = static_cast<std::int32_t>(i * 7 % size(classes));
  const auto device_logits = bench.upload_as(as<float>(logits));
  const auto device_labels = bench.upload_as(labels);
  const auto scale = bench.upload_as(std::vector<LossScale>{LossScale{1024, 0, 0, 0}});
  const auto metrics = bench.upload_as(std::vector<Metrics>{Metrics{1, 2, 3}});
  const DeviceArrayOf<float> gradient(logits.size());
  bench.operations().cross_entropy(n, classes, device_logits->data(), device_labels->data(),
                                   scale->data(), gradient.data(), metrics->data(), bench.stream());

  Values truth(logits.size());
  std::vector<float> base(logits.size());
  const auto sums =
      reference::cross_entropy(n, classes, logits.data(), labels.data(), 1024, truth.data());
  const std::vector<float> few = as<float>(logits);
  reference::cross_entropy(n, classes, few.data(), labels.data(), 1024, base.data());
  // The reference has exp in double in every type; ours, in float, may be off by 2 units there, and
  // rounding of the exponent's argument adds as much as its size.
  const std::vector<float> ours = gradient.read();
  CHECK(rms_distance(truth, ours) <=
        16 * std::max(rms_distance(truth, base), unit_roundoff(Precision::fp32) * rms(truth)));
  const Metrics after = metrics->read().front();
  CHECK(after.loss == Approx(1 + sums.loss).epsilon(1e-5));
  CHECK(after.correct == 2 + static_cast<float>(sums.correct));
  CHECK(after.samples == 3 + static_cast<float>(n));
}

TEST_CASE("a label that is no class makes the loss NaN", "[gpu][resnet]") {
  Bench bench(Settings{});
  const auto logits = bench.upload_as(std::vector<float>(20, 1.0f));
  const auto labels = bench.upload_as(std::vector<std::int32_t>{3, GENERATE(-1, 10)});
  const DeviceArrayOf<Metrics> metrics(1);
  const DeviceArrayOf<float> gradient(20);
  bench.operations().cross_entropy(2, 10, logits->data(), labels->data(), nullptr, gradient.data(),
                                   metrics.data(), bench.stream());
  CHECK(std::isnan(metrics.read().front().loss));
  CHECK(std::isfinite(gradient.read().front()));
  CHECK(std::isnan(gradient.read().back()));
}

TEST_CASE("a loss that is not finite has no finite gradient", "[gpu][resnet]") {
  Bench bench(Settings{});
  std::vector<float> values(20, 1.0f);
  values[10 + 4] = -std::numeric_limits<float>::infinity();  // of the second sample's label
  const auto logits = bench.upload_as(values);
  const auto labels = bench.upload_as(std::vector<std::int32_t>{3, 4});
  const auto metrics = bench.upload_as(std::vector<Metrics>(1));
  const DeviceArrayOf<float> gradient(20);
  bench.operations().cross_entropy(2, 10, logits->data(), labels->data(), nullptr, gradient.data(),
                                   metrics->data(), bench.stream());
  CHECK(std::isinf(metrics->read().front().loss));
  const std::vector<float> found = gradient.read();
  for (std::size_t i = 0; i < 20; ++i) CHECK(std::isnan(found[i]) == (i >= 10));
}

TEST_CASE("conversions round to nearest, and keep what is not finite", "[gpu][resnet]") {
  const Settings settings = GENERATE(from_range(every_mode()));
  const std::int64_t count = GENERATE(1, 7, 4096, 4099);
  Bench bench(settings);
  Values values = random_values(1, count, 100);
  values.front() = std::numeric_limits<double>::infinity();
  const auto in = bench.upload_as(as<float>(values));
  const auto stored = bench.room(count);
  const DeviceArrayOf<float> back(size(count));
  bench.operations().from_float(in->data(), stored->data(), count, bench.stream());
  bench.operations().to_float(stored->data(), back.data(), count, bench.stream());
  const Values found = bench.download(*stored);
  const std::vector<float> floats = back.read();
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(found[i] == rounded(settings.precision, values[i]));
    CHECK(static_cast<double>(floats[i]) == found[i]);
  }
}

}  // namespace resnet::test
