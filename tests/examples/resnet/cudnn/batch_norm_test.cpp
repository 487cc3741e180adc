// SPDX-License-Identifier: Apache-2.0

// Batch norm on a GPU, with and without what is fused, against the reference in double.

#include <cmath>
#include <vector>

#include "accuracy.hpp"
#include "batch_norm_problem.hpp"
#include "straightforward.hpp"

namespace resnet::test {
namespace {

/// The gradient behind the normalised value.
std::vector<float> arriving(const Case& of, const Operands& operands, const Values& y) {
  std::vector<float> gradients = as<float>(operands.y_gradient);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (of.more) gradients[i] += static_cast<float>(operands.more[i]);
    if (of.relu && y[i] <= 0) gradients[i] = 0;
  }
  return gradients;
}

Results<float> in_float(const Case& of, Format format, const Operands& operands, const Values& y) {
  const reference::ActivationLayout layout(of.extents, format);
  const std::vector<float> x = as<float>(operands.x), residual = as<float>(operands.residual);
  const auto* added = of.residual ? &residual : nullptr;
  Results<float> results;
  for (auto* values : {&results.y, &results.inference, &results.x_gradient})
    values->resize(x.size());
  results.residual_gradient = arriving(of, operands, y);
  for (std::int64_t c = 0; c < of.extents.c; ++c) {
    const auto at = static_cast<std::size_t>(c);
    const straightforward::Channel channel{layout, c};
    const auto gamma = static_cast<float>(operands.gamma[at]);
    const auto beta = static_cast<float>(operands.beta[at]);
    const straightforward::Statistics running{static_cast<float>(operands.running_mean[at]),
                                              static_cast<float>(operands.running_variance[at])};
    straightforward::normalize(channel, x, running, gamma, beta, added, of.relu, results.inference);
    const straightforward::Statistics batch = straightforward::statistics(channel, x);
    straightforward::normalize(channel, x, batch, gamma, beta, added, of.relu, results.y);
    const straightforward::NormGradient sums = straightforward::norm_gradient(
        channel, x, results.residual_gradient, batch, gamma, results.x_gradient);
    const float unbiased = batch.variance * channel.count() / (channel.count() - 1);
    results.mean.push_back(batch.mean);
    results.inverse_deviation.push_back(1 / std::sqrt(batch.variance + 1e-5f));
    results.running_mean.push_back(0.9f * running.mean + 0.1f * batch.mean);
    results.running_variance.push_back(0.9f * running.variance + 0.1f * unbiased);
    results.gamma_gradient.push_back(sums.gamma);
    results.beta_gradient.push_back(sums.beta);
  }
  return results;
}

/// Everything on the device; `expect` compares.
class OnDevice {
 public:
  OnDevice(Bench& bench, const Case& of, const Operands& operands)
      : bench_(bench),
        case_(of),
        x_(bench.upload(operands.x)),
        residual_(bench.upload(operands.residual)),
        gradient_(bench.upload(operands.y_gradient)),
        more_(bench.upload(operands.more)),
        y_(bench.room(of.extents.count())),
        inference_(bench.room(of.extents.count())),
        x_gradient_(bench.room(of.extents.count())),
        residual_gradient_(bench.room(of.extents.count())),
        gamma_(bench.upload_as(as<float>(operands.gamma))),
        beta_(bench.upload_as(as<float>(operands.beta))),
        running_mean_(bench.upload_as(as<float>(operands.running_mean))),
        running_variance_(bench.upload_as(as<float>(operands.running_variance))),
        mean_(operands.gamma.size()),
        inverse_deviation_(operands.gamma.size()),
        gamma_gradient_(operands.gamma.size()),
        beta_gradient_(operands.gamma.size()),
        relu_bits_(bench, of.extents) {}

  void forward() {
    Operations& ops = bench_.operations();
    const void* added = case_.residual ? residual_->data() : nullptr;
    ops.batch_norm_inference(case_.extents, x_->data(), norm(), added, case_.relu,
                             inference_->data(), bench_.stream());
    ops.batch_norm(case_.extents, x_->data(), norm(), added, case_.relu, y_->data(),
                   bench_.stream());
  }
  void backward() {
    bench_.operations().batch_norm_gradient(
        case_.extents, x_->data(), y_->data(), gradient_->data(),
        case_.more ? more_->data() : nullptr, norm(), case_.relu, x_gradient().data(),
        case_.residual ? residual_gradient_->data() : nullptr, bench_.stream());
  }
  Values y() const { return bench_.download(*y_); }

  void expect(const Results<double>& truth, const Results<float>& base) const {
    bench_.expect("y", y(), truth.y, base.y);
    bench_.expect("inference", bench_.download(*inference_), truth.inference, base.inference);
    bench_.expect_floats("mean", mean_, truth.mean, base.mean, rms(bench_.download(*x_)));
    bench_.expect_floats("inverse deviation", inverse_deviation_, truth.inverse_deviation,
                         base.inverse_deviation);
    bench_.expect_floats("running mean", *running_mean_, truth.running_mean, base.running_mean,
                         rms(bench_.download(*x_)));
    bench_.expect_floats("running variance", *running_variance_, truth.running_variance,
                         base.running_variance);
    bench_.expect("gradient of x", bench_.download(x_gradient()), truth.x_gradient,
                  base.x_gradient);
    // Fusion none rounds the arriving gradient before it is summed, to what activations have.
    const Precision sums =
        bench_.settings().fusion == Fusion::none ? bench_.settings().precision : Precision::fp32;
    // What sums of so many terms are like.
    const auto terms = static_cast<double>(case_.extents.count() / case_.extents.c);
    const double size = std::sqrt(terms) * rms(truth.residual_gradient);
    const auto floats = [](const DeviceArrayOf<float>& values) {
      const std::vector<float> read = values.read();
      return Values(read.begin(), read.end());
    };
    bench_.expect("gradient of gamma", floats(gamma_gradient_), truth.gamma_gradient,
                  base.gamma_gradient, sums, size);
    bench_.expect("gradient of beta", floats(beta_gradient_), truth.beta_gradient,
                  base.beta_gradient, sums, size);
    if (case_.residual)
      bench_.expect("gradient of the residual", bench_.download(*residual_gradient_),
                    truth.residual_gradient, base.residual_gradient);
  }

 private:
  const DeviceValues& x_gradient() const { return case_.in_place ? *gradient_ : *x_gradient_; }
  BatchNorm norm() const {
    BatchNorm norm;
    norm.gamma = gamma_->data(), norm.beta = beta_->data();
    norm.running_mean = running_mean_->data(), norm.running_variance = running_variance_->data();
    norm.mean = mean_.data(), norm.inverse_deviation = inverse_deviation_.data();
    norm.gamma_gradient = gamma_gradient_.data(), norm.beta_gradient = beta_gradient_.data();
    if (case_.relu_bits) norm.relu_bits = relu_bits_.data();
    return norm;
  }

  Bench& bench_;
  Case case_;
  std::unique_ptr<DeviceValues> x_, residual_, gradient_, more_, y_, inference_, x_gradient_,
      residual_gradient_;
  std::unique_ptr<DeviceArrayOf<float>> gamma_, beta_, running_mean_, running_variance_;
  DeviceArrayOf<float> mean_, inverse_deviation_, gamma_gradient_, beta_gradient_;
  ReluBits relu_bits_;
};

void check_batch_norm(const Settings& settings, const Case& of) {
  Bench bench(settings);
  const Operands operands(bench, of);
  OnDevice device(bench, of, operands);
  device.forward();
  device.backward();
  const Values y = device.y();
  device.expect(in_double(of, settings.format, operands, y),
                in_float(of, settings.format, operands, y));
}

}  // namespace

TEST_CASE("batch norm is as exact as the straightforward one", "[gpu][resnet]") {
  Settings settings = GENERATE(from_range(every_mode()));
  settings.fusion = GENERATE(Fusion::none, Fusion::elementwise);
  const Extents wide{16, 64, 16, 16};
  for (const Case& of :
       {Case{wide}, Case{wide, false, true}, Case{wide, true, true}, Case{wide, true, true, true},
        Case{wide, false, true, true, true}, Case{wide, true, true, true, true},
        Case{wide, true, false}, Case{wide, true, true, true, true, 0, true}})
    check_batch_norm(settings, of);
}

TEST_CASE("batch norm of every extent", "[gpu][resnet]") {
  Settings settings = GENERATE(from_range(every_mode()));
  settings.fusion = Fusion::elementwise;
  const Extents extents = GENERATE(Extents{3, 24, 7, 9}, Extents{5, 7, 3, 3}, Extents{2, 1, 5, 1},
                                   Extents{4, 2048, 7, 7}, Extents{32, 16, 32, 32},
                                   Extents{2, 3000, 4, 4}, Extents{64, 520, 2, 2});
  const bool relu_bits = GENERATE(false, true);
  check_batch_norm(settings, {extents, true, true, true, false, 0, relu_bits});
}

TEST_CASE("batch norm where the mean is far from 0", "[gpu][resnet]") {
  Settings settings = GENERATE(from_range(every_mode()));
  settings.fusion = Fusion::elementwise;
  // Sums of squares would have no digit left of the variance, in float.
  check_batch_norm(settings, {{16, 32, 16, 16},
                              false,
                              false,
                              false,
                              false,
                              is_16_bits(settings.precision) ? 30.0 : 5000.0});
}

}  // namespace resnet::test
