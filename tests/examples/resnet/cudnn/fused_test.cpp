// SPDX-License-Identifier: Apache-2.0

// Fused convolutions on a GPU, fp16 in nhwc: each operation against the reference in double, saved
// plans, and a whole network against the one whose convolutions are not fused.

#include "../../../../examples/resnet/ops/reference/fused_convolution.hpp"

#include <cmath>
#include <memory>
#include <vector>

#include "../../../../examples/resnet/model/network.hpp"
#include "../arrays.hpp"
#include "accuracy.hpp"
#include "straightforward.hpp"
#include "support/temporary_directory.hpp"

namespace resnet::test {
namespace {

constexpr ConvolutionShape shapes[] = {
    {{4, 64, 28, 28}, 64, 3, 1, 1},   // ResNet-18's, of a smaller batch and image
    {{4, 64, 28, 28}, 128, 3, 2, 1},  //
    {{8, 512, 7, 7}, 512, 3, 1, 1},   //
    {{4, 64, 28, 28}, 256, 1, 1, 0},  // ResNet-50's
    {{4, 256, 14, 14}, 256, 3, 2, 1}, {{4, 256, 28, 28}, 128, 1, 1, 0},
    {{8, 512, 7, 7}, 2048, 1, 1, 0},  {{8, 4, 64, 64}, 64, 7, 2, 3},  // the stem: without an engine
};

Settings fused_settings() {
  Settings settings;
  settings.precision = Precision::fp16;
  settings.format = Format::nhwc;
  settings.fusion = Fusion::full;
  return settings;
}

double in_16_bits(double value) {
  return rounded(Precision::fp16, value);
}

/// Of a batch norm, on the host.
template <class T>
struct Norm {
  explicit Norm(std::int64_t channels) : gamma(static_cast<std::size_t>(channels)) {}
  reference::Normalisation<T> view() {
    reference::Normalisation<T> norm{
        gamma.data(), beta.data(),    running_mean.data(),   running_variance.data(),
        mean.data(),  inverse.data(), gamma_gradient.data(), beta_gradient.data()};
    norm.scale = scale.data();
    norm.bias = bias.data();
    return norm;
  }
  std::vector<T> gamma;
  std::vector<T> beta = gamma, running_mean = gamma, running_variance = gamma, mean = gamma,
                 inverse = gamma, gamma_gradient = gamma, beta_gradient = gamma, scale = gamma,
                 bias = gamma;
};

/// Random, and as if normalised: scale and bias have 16 bits, and the others say the same in float.
Norm<double> norm_of(std::uint64_t seed, std::int64_t channels) {
  Norm<double> norm(channels);
  const auto floats = [&](std::uint64_t which, double scale, double offset) {
    Values values = random_values(seed + which, channels, scale, offset);
    for (double& value : values) value = rounded(Precision::fp32, value);
    return values;
  };
  norm.running_mean = floats(0, 1, 0);
  norm.running_variance = floats(1, 0.5, 1);
  norm.mean = floats(2, 0.5, 0);
  norm.inverse = floats(3, 0.5, 1.5);
  for (std::size_t c = 0; c < norm.mean.size(); ++c) {
    norm.scale[c] = in_16_bits(1 + 0.5 * uniform(seed + 4, c));
    norm.bias[c] = in_16_bits(0.5 * uniform(seed + 5, c));
    norm.gamma[c] = rounded(Precision::fp32, norm.scale[c] / norm.inverse[c]);
    norm.beta[c] = rounded(Precision::fp32, norm.bias[c] + norm.mean[c] * norm.scale[c]);
  }
  return norm;
}

struct Operands {
  Operands(const Bench& bench, const ConvolutionShape& of)
      : shape(of),
        before(norm_of(10, of.in.c)),
        behind(norm_of(20, of.k)),
        x(bench.numbers(1, of.in.count())),
        weights(bench.numbers(2, of.weights())),
        y_gradient(bench.numbers(3, of.out().count())) {
    // None near 0 when it is normalised: there rounding decides what ReLU does.
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % before.scale.size();
      const double value = x[i] * before.scale[c] + before.bias[c];
      if (std::abs(value) < 0x1p-6)
        x[i] = in_16_bits(((value < 0 ? -0.25 : 0.25) - before.bias[c]) / before.scale[c]);
    }
  }
  ConvolutionShape shape;
  Norm<double> before, behind;
  Values x, weights, y_gradient;
};

template <class T>
struct Results {
  std::vector<T> y, weight_gradient, x_gradient;
  Norm<T> before, behind;
};

/// `normalized`: with a batch norm before the convolution.
Results<double> in_double(const Operands& of, bool normalized) {
  const reference::Convolution<double> plan(of.shape, Format::nhwc);
  Values scratch(plan.scratch(1)), room(of.x.size());
  Results<double> results{Values(of.y_gradient.size()), Values(of.weights.size()),
                          Values(of.x.size()), of.before, of.behind};
  const reference::FusedConvolution<double> fused{plan,
                                                  {of.shape.in, Format::nhwc},
                                                  {of.shape.out(), Format::nhwc},
                                                  room.data(),
                                                  {scratch.data(), 1}};
  const auto before = results.before.view();
  fused.forward(of.x.data(), normalized ? &before : nullptr, of.weights.data(), results.y.data(),
                results.behind.view());
  fused.weight_gradient(of.x.data(), before, of.y_gradient.data(), results.weight_gradient.data());
  fused.data_gradient(of.y_gradient.data(), of.weights.data(), of.x.data(), before,
                      results.x_gradient.data());
  return results;
}

/// The statistics by sums of y and of y * y, one term behind the other.
void straightforward_statistics(const reference::ActivationLayout& layout,
                                const std::vector<float>& y, Norm<float>& norm) {
  for (std::int64_t k = 0; k < layout.extents.c; ++k) {
    const auto at = static_cast<std::size_t>(k);
    const straightforward::Channel channel{layout, k};
    float sum = 0, squares = 0;
    channel.each([&](std::size_t i) { sum += y[i], squares += y[i] * y[i]; });
    const float count = channel.count(), mean = sum / count;
    const float variance = std::max(squares / count - mean * mean, 0.0f);
    norm.mean[at] = mean;
    norm.inverse[at] = 1 / std::sqrt(variance + 1e-5f);
    norm.running_mean[at] = 0.9f * norm.running_mean[at] + 0.1f * mean;
    norm.running_variance[at] =
        0.9f * norm.running_variance[at] + 0.1f * variance * count / (count - 1);
    norm.scale[at] = norm.gamma[at] * norm.inverse[at];
    norm.bias[at] =
        norm.beta[at] - mean * static_cast<float>(in_16_bits(static_cast<double>(norm.scale[at])));
  }
}

Norm<float> as_floats(const Norm<double>& norm) {
  Norm<float> floats(static_cast<std::int64_t>(norm.gamma.size()));
  floats.gamma = as<float>(norm.gamma), floats.beta = as<float>(norm.beta);
  floats.running_mean = as<float>(norm.running_mean);
  floats.running_variance = as<float>(norm.running_variance);
  floats.mean = as<float>(norm.mean), floats.inverse = as<float>(norm.inverse);
  floats.scale = as<float>(norm.scale), floats.bias = as<float>(norm.bias);
  return floats;
}

/// In float, with everything that has the size of an activation in 16 bits.
Results<float> in_float(const Operands& of, bool normalized) {
  const auto round_all = [](std::vector<float>& values) {
    for (float& value : values) value = static_cast<float>(in_16_bits(static_cast<double>(value)));
  };
  const reference::Convolution<float> plan(of.shape, Format::nhwc);
  const reference::ActivationLayout in(of.shape.in, Format::nhwc),
      out(of.shape.out(), Format::nhwc);
  std::vector<float> memory(plan.scratch(1));
  const reference::Scratch<float> scratch{memory.data(), 1};
  const std::vector<float> x = as<float>(of.x), weights = as<float>(of.weights),
                           y_gradient = as<float>(of.y_gradient);
  Results<float> results{std::vector<float>(y_gradient.size()), std::vector<float>(weights.size()),
                         std::vector<float>(x.size()), as_floats(of.before), as_floats(of.behind)};
  Norm<float>& before = results.before;
  std::vector<float> operand = x;
  for (std::size_t i = 0; i < operand.size(); ++i)
    operand[i] *= before.scale[i % before.scale.size()];
  round_all(operand);
  for (std::size_t i = 0; i < operand.size(); ++i)
    operand[i] = std::max(operand[i] + before.bias[i % before.bias.size()], 0.0f);
  round_all(operand);

  plan.forward(normalized ? operand.data() : x.data(), weights.data(), results.y.data(), scratch);
  round_all(results.y);
  straightforward_statistics(out, results.y, results.behind);
  plan.weight_gradient(operand.data(), y_gradient.data(), results.weight_gradient.data(), scratch);
  std::vector<float> arriving(x.size());
  plan.data_gradient(y_gradient.data(), weights.data(), arriving.data(), scratch);
  round_all(arriving);
  for (std::size_t i = 0; i < arriving.size(); ++i)
    if (operand[i] <= 0) arriving[i] = 0;
  for (std::int64_t c = 0; c < of.shape.in.c; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const float inverse = before.inverse[at];
    const straightforward::NormGradient sums = straightforward::norm_gradient(
        {in, c}, x, arriving, {before.mean[at], 1 / (inverse * inverse) - 1e-5f}, before.gamma[at],
        results.x_gradient);
    before.gamma_gradient[at] = sums.gamma;
    before.beta_gradient[at] = sums.beta;
  }
  return results;
}

/// A batch norm's arrays on the device.
class DeviceNorm {
 public:
  DeviceNorm(const Bench& bench, const Norm<double>& norm)
      : gamma(bench.upload_as(as<float>(norm.gamma))),
        beta(bench.upload_as(as<float>(norm.beta))),
        running_mean(bench.upload_as(as<float>(norm.running_mean))),
        running_variance(bench.upload_as(as<float>(norm.running_variance))),
        mean(bench.upload_as(as<float>(norm.mean))),
        inverse(bench.upload_as(as<float>(norm.inverse))),
        gamma_gradient(bench.upload_as(as<float>(norm.gamma_gradient))),
        beta_gradient(bench.upload_as(as<float>(norm.beta_gradient))),
        scale(bench.upload(norm.scale)),
        bias(bench.upload(norm.bias)) {}
  BatchNorm view() const {
    BatchNorm norm;
    norm.gamma = gamma->data(), norm.beta = beta->data();
    norm.running_mean = running_mean->data(), norm.running_variance = running_variance->data();
    norm.mean = mean->data(), norm.inverse_deviation = inverse->data();
    norm.gamma_gradient = gamma_gradient->data(), norm.beta_gradient = beta_gradient->data();
    norm.scale = scale->data(), norm.bias = bias->data();
    return norm;
  }
  std::unique_ptr<DeviceArrayOf<float>> gamma, beta, running_mean, running_variance, mean, inverse,
      gamma_gradient, beta_gradient;
  std::unique_ptr<DeviceValues> scale, bias;
};

struct OnDevice {
  OnDevice(Bench& on, const Operands& of)
      : bench(on),
        shape(of.shape),
        before(on, of.before),
        behind(on, of.behind),
        x(on.upload(of.x)),
        weights(on.upload(of.weights)),
        y_gradient(on.upload(of.y_gradient)),
        y(on.room(of.shape.out().count())),
        weight_gradient(on.room(of.shape.weights())),
        x_gradient(on.room(of.shape.in.count())) {}

  void forward(bool normalized) {
    const BatchNorm norm = before.view();
    bench.operations().convolution_statistics(shape, x->data(), normalized ? &norm : nullptr,
                                              weights->data(), y->data(), behind.view(),
                                              bench.stream());
  }
  void backward() {
    Operations& ops = bench.operations();
    ops.normalized_weight_gradient(shape, x->data(), before.view(), y_gradient->data(),
                                   weight_gradient->data(), bench.stream());
    ops.normalized_data_gradient(shape, y_gradient->data(), weights->data(), x->data(),
                                 before.view(), x_gradient->data(), bench.stream());
  }
  std::vector<Values> results() const {
    const auto floats = [](const DeviceArrayOf<float>& values) {
      const std::vector<float> read = values.read();
      return Values(read.begin(), read.end());
    };
    return {bench.download(*y),           bench.download(*weight_gradient),
            bench.download(*x_gradient),  bench.download(*behind.scale),
            bench.download(*behind.bias), floats(*behind.mean),
            floats(*behind.inverse),      floats(*before.gamma_gradient),
            floats(*before.beta_gradient)};
  }

  Bench& bench;
  ConvolutionShape shape;
  DeviceNorm before, behind;
  std::unique_ptr<DeviceValues> x, weights, y_gradient, y, weight_gradient, x_gradient;
};

/// On Hopper engines with normalised input are known to be there, but for the stem's.
bool fuses(Bench& bench, const ConvolutionShape& shape, bool normalized_input) {
  int major = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  const bool there = bench.operations().fuses(shape, normalized_input);
  if (!normalized_input)
    CHECK(there);
  else if (major == 9)
    CHECK(there == (shape.in.c > 4));
  return there;
}

void expect_forward(const OnDevice& device, const Results<double>& truth,
                    const Results<float>& base) {
  const Bench& bench = device.bench;
  const DeviceNorm& norm = device.behind;
  bench.expect("y", bench.download(*device.y), truth.y, base.y);
  bench.expect_floats("mean", *norm.mean, truth.behind.mean, base.behind.mean, rms(truth.y));
  bench.expect_floats("inverse deviation", *norm.inverse, truth.behind.inverse,
                      base.behind.inverse);
  bench.expect_floats("running mean", *norm.running_mean, truth.behind.running_mean,
                      base.behind.running_mean, rms(truth.y));
  bench.expect_floats("running variance", *norm.running_variance, truth.behind.running_variance,
                      base.behind.running_variance);
  bench.expect("scale", bench.download(*norm.scale), truth.behind.scale, base.behind.scale);
  bench.expect("bias", bench.download(*norm.bias), truth.behind.bias, base.behind.bias);
}

void expect_backward(const OnDevice& device, const Results<double>& truth,
                     const Results<float>& base) {
  const Bench& bench = device.bench;
  bench.expect("gradient of weights", bench.download(*device.weight_gradient),
               truth.weight_gradient, base.weight_gradient);
  bench.expect("gradient of x", bench.download(*device.x_gradient), truth.x_gradient,
               base.x_gradient);
  // What sums of so many terms are like.
  const auto terms = static_cast<double>(device.shape.in.count() / device.shape.in.c);
  const double size = std::sqrt(terms) * rms(truth.x_gradient);
  bench.expect_floats("gradient of gamma", *device.before.gamma_gradient,
                      truth.before.gamma_gradient, base.before.gamma_gradient, size);
  bench.expect_floats("gradient of beta", *device.before.beta_gradient, truth.before.beta_gradient,
                      base.before.beta_gradient, size);
}

}  // namespace

TEST_CASE("fused convolutions are as exact as the straightforward ones", "[gpu][resnet]") {
  const Settings settings = fused_settings();
  for (const ConvolutionShape& shape : shapes) {
    Bench bench(settings);
    const Operands operands(bench, shape);
    for (const bool normalized : {false, true}) {
      if (!fuses(bench, shape, normalized)) continue;
      OnDevice device(bench, operands);
      const Results<double> truth = in_double(operands, normalized);
      const Results<float> base = in_float(operands, normalized);
      device.forward(normalized);
      expect_forward(device, truth, base);
      if (!normalized) continue;
      device.backward();
      expect_backward(device, truth, base);
    }
  }
}

TEST_CASE("batch norm with statistics that are there has the bits of batch norm", "[gpu][resnet]") {
  Settings settings = GENERATE(from_range(every_mode()));
  settings.fusion = GENERATE(Fusion::none, Fusion::elementwise, Fusion::full);
  Bench bench(settings);
  const Extents extents{4, 24, 7, 9};
  const DeviceNorm norm(bench, norm_of(10, extents.c));
  const auto x = bench.upload(bench.numbers(1, extents.count())),
             residual = bench.upload(bench.numbers(2, extents.count()));
  const auto y = bench.room(extents.count()), again = bench.room(extents.count());
  Operations& ops = bench.operations();
  ops.batch_norm(extents, x->data(), norm.view(), residual->data(), true, y->data(),
                 bench.stream());
  ops.batch_norm_apply(extents, x->data(), norm.view(), residual->data(), nullptr, true,
                       again->data(), bench.stream());
  CHECK(bench.download(*again) == bench.download(*y));
}

TEST_CASE("a residual's batch norm in the same kernel has the bits of one before",
          "[gpu][resnet]") {
  // In float: 16 bits are rounded in between.
  Settings settings;
  settings.format = GENERATE(Format::nchw, Format::nhwc);
  settings.fusion = Fusion::elementwise;
  Bench bench(settings);
  const Extents extents = GENERATE(Extents{4, 24, 7, 9}, Extents{3, 64, 8, 8});
  const DeviceNorm norm(bench, norm_of(10, extents.c)), other(bench, norm_of(20, extents.c));
  const auto x = bench.upload(bench.numbers(1, extents.count())),
             residual = bench.upload(bench.numbers(2, extents.count()));
  const auto normal = bench.room(extents.count()), y = bench.room(extents.count()),
             again = bench.room(extents.count());
  Operations& ops = bench.operations();
  ops.batch_norm_apply(extents, residual->data(), other.view(), nullptr, nullptr, false,
                       normal->data(), bench.stream());
  ops.batch_norm_apply(extents, x->data(), norm.view(), normal->data(), nullptr, true, y->data(),
                       bench.stream());
  const BatchNorm before = other.view();
  ops.batch_norm_apply(extents, x->data(), norm.view(), residual->data(), &before, true,
                       again->data(), bench.stream());
  CHECK(bench.download(*again) == bench.download(*y));
}

TEST_CASE("deterministic convolutions are not fused with channel sums", "[gpu][resnet]") {
  Settings settings = fused_settings();
  settings.deterministic = true;
  Bench bench(settings);
  for (const bool normalized : {false, true})
    CHECK_FALSE(bench.operations().fuses(shapes[0], normalized));
}

TEST_CASE("saved fused plans are used: the same bits, but for channel sums", "[gpu][resnet]") {
  const penstock::test::TemporaryDirectory directory;
  Settings settings = fused_settings();
  settings.plans = GENERATE(PlanChoice::heuristic, PlanChoice::timed);
  settings.plan_file = directory / "plans";
  const auto run = [&] {
    Bench bench(settings);
    OnDevice device(bench, Operands(bench, shapes[0]));
    const bool normalized = bench.operations().fuses(shapes[0], true);
    device.forward(normalized);
    if (normalized) device.backward();
    std::vector<Values> results = device.results();
    results.push_back({normalized ? 1.0 : 0.0});
    // What was not written is NaN, which equals nothing.
    for (Values& values : results)
      for (double& value : values) value = std::isnan(value) ? 1e9 : value;
    return results;
  };
  const std::vector<Values> fresh = run();
  const auto written = std::filesystem::last_write_time(settings.plan_file);
  const std::vector<Values> loaded = run();
  CHECK(std::filesystem::last_write_time(settings.plan_file) == written);
  REQUIRE(loaded.size() == fresh.size());
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    INFO("result " << i);
    const bool sums = i >= 2 && i < 9;  // of channels, and what is made of them
    CHECK(rms_distance(fresh[i], loaded[i]) <= (sums ? 1e-4 * rms(fresh[i]) : 0));
  }
}

namespace {

/// What a network says of one batch.
struct Answers {
  Values logits, gradients, statistics;
};

/// Parameters' elements in torchvision's order, whatever the memory's.
Values in_order(const ParameterTable& table, const std::vector<float>& block) {
  Values values;
  for (const Parameter& parameter : table.parameters())
    for (std::int64_t i = 0; i < parameter.count(); ++i)
      values.push_back(static_cast<double>(block[size(table.place(parameter, i))]));
  return values;
}

/// nhwc, and 0 in channels that are padding.
std::vector<float> images_of(const Extents& in) {
  std::vector<float> images;
  for (std::int64_t pixel = 0; pixel < in.n * in.h * in.w; ++pixel)
    for (std::int64_t c = 0; c < in.c; ++c)
      images.push_back(c < 3 ? static_cast<float>(uniform(1, size(pixel * 3 + c))) : 0);
  return images;
}

Answers answers(const Settings& settings) {
  const std::unique_ptr<Operations> ops = make_operations(settings);
  const penstock::test::TestStream stream;
  Network network({.architecture = architecture_of("resnet18", 10),
                   .images = {16, 3, 64, 64},
                   .loss_scale = true,
                   .initial_loss_scale = 1024},
                  *ops);
  network.initialise(5, stream);
  const Extents& in = network.input();
  std::vector<std::int32_t> classes;
  for (std::int32_t i = 0; i < in.n; ++i) classes.push_back(i % 10);
  DeviceArray<float> floats(in.count());
  DeviceArray<std::byte> input(in.count() * static_cast<std::int64_t>(ops->element_bytes()));
  DeviceArray<std::int32_t> labels(in.n);
  floats.set(images_of(in), stream);
  labels.set(classes, stream);
  ops->from_float(floats.data(), input.data(), in.count(), stream);
  network.forward(input.data(), in.n, stream);
  network.loss(labels.data(), stream);
  network.backward(stream);

  DeviceArrayOf<float> logits(static_cast<std::size_t>(in.n * 10));
  REQUIRE_CUDA(cudaMemcpyAsync(logits.data(), network.logits(), logits.bytes(),
                               cudaMemcpyDeviceToDevice, stream));
  const std::vector<float> gradients = network.gradients(stream),
                           statistics = network.state(stream).statistics, read = logits.read();
  return {{read.begin(), read.end()},
          in_order(network.table(), gradients),
          {statistics.begin(), statistics.end()}};
}

}  // namespace

TEST_CASE("a network whose convolutions fuse is as exact as one whose do not", "[gpu][resnet]") {
  Settings settings = fused_settings();
  const Answers fused = answers(settings);
  settings.fusion = Fusion::elementwise;
  const Answers apart = answers(settings);
  CHECK(fused.logits != apart.logits);  // else nothing was fused
  settings.precision = Precision::fp32;
  const Answers truth = answers(settings);
  const auto check = [](const char* what, const Values& f, const Values& a, const Values& t) {
    const double error = rms_distance(t, f), allowed = 3 * rms_distance(t, a);
    INFO(what << ": error " << error << ", allowed " << allowed);
    CHECK(error <= allowed);
  };
  check("logits", fused.logits, apart.logits, truth.logits);
  check("gradients", fused.gradients, apart.gradients, truth.gradients);
  check("statistics", fused.statistics, apart.statistics, truth.statistics);
}

}  // namespace resnet::test
