// SPDX-License-Identifier: Apache-2.0
#pragma once

// Batch norm's operands, and what the reference computes from them in double.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "../../../../examples/resnet/ops/reference/batch_norm.hpp"
#include "accuracy.hpp"

namespace resnet::test {

/// What is computed, by whom it may be.
template <class T>
struct Results {
  std::vector<T> y, inference, x_gradient, residual_gradient;
  std::vector<T> mean, inverse_deviation, running_mean, running_variance;
  std::vector<T> gamma_gradient, beta_gradient;
};

struct Case {
  Extents extents;
  bool residual = false, relu = false, more = false, in_place = false;
  double mean = 0;  ///< of x, against a deviation of 0.6
  bool relu_bits = false;
};

/// Of one layer, full of ones: what is not written shows.
class ReluBits {
 public:
  ReluBits(const Bench& bench, const Extents& extents)
      : bits_(std::vector<std::uint8_t>(static_cast<std::size_t>(std::max<std::int64_t>(
                                            bench.operations().relu_bits_bytes(extents), 1)),
                                        0xff)),
        memory_(bench.upload_as(bits_)) {}
  /// Null where the operations do not want them.
  std::uint8_t* data() const { return bits_.size() > 1 ? memory_->data() : nullptr; }

 private:
  std::vector<std::uint8_t> bits_;
  std::unique_ptr<DeviceArrayOf<std::uint8_t>> memory_;
};

struct Operands {
  Operands(const Bench& bench, const Case& of)
      : x(bench.numbers(1, of.extents.count(), 1, of.mean)),
        residual(bench.numbers(2, of.extents.count())),
        y_gradient(bench.numbers(3, of.extents.count())),
        more(bench.numbers(4, of.extents.count())),
        gamma(random_values(5, of.extents.c, 0.5, 1)),
        beta(random_values(6, of.extents.c, 0.5)),
        running_mean(random_values(7, of.extents.c)),
        running_variance(random_values(8, of.extents.c, 0.5, 1)) {
    for (Values* values : {&gamma, &beta, &running_mean, &running_variance})
      for (double& value : *values) value = rounded(Precision::fp32, value);
  }
  Values x, residual, y_gradient, more, gamma, beta, running_mean, running_variance;
};

inline Results<double> empty(const Case& of) {
  const auto count = static_cast<std::size_t>(of.extents.count());
  const auto channels = static_cast<std::size_t>(of.extents.c);
  Results<double> results;
  for (Values* values :
       {&results.y, &results.inference, &results.x_gradient, &results.residual_gradient})
    values->resize(count);
  for (Values* values :
       {&results.mean, &results.inverse_deviation, &results.running_mean, &results.running_variance,
        &results.gamma_gradient, &results.beta_gradient})
    values->resize(channels);
  return results;
}

/// `y`: what the gradient finds where ReLU wrote; with it, rounding decides the same everywhere.
inline Results<double> in_double(const Case& of, Format format, const Operands& operands,
                                 const Values& y) {
  const reference::ActivationLayout layout(of.extents, format);
  Results<double> results = empty(of);
  results.running_mean = operands.running_mean;
  results.running_variance = operands.running_variance;
  reference::Normalisation<double> norm;
  norm.gamma = operands.gamma.data(), norm.beta = operands.beta.data();
  norm.running_mean = results.running_mean.data();
  norm.running_variance = results.running_variance.data();
  norm.mean = results.mean.data(), norm.inverse_deviation = results.inverse_deviation.data();
  norm.gamma_gradient = results.gamma_gradient.data();
  norm.beta_gradient = results.beta_gradient.data();
  const double* added = of.residual ? operands.residual.data() : nullptr;
  reference::batch_norm_inference(layout, operands.x.data(), norm, added, of.relu,
                                  results.inference.data(), 1);
  reference::batch_norm(layout, operands.x.data(), norm, added, of.relu, results.y.data(), 1);
  const reference::BatchNormGradient<double> arrays{
      operands.x.data(),          y.data(),
      operands.y_gradient.data(), of.more ? operands.more.data() : nullptr,
      results.x_gradient.data(),  of.residual ? results.residual_gradient.data() : nullptr};
  reference::batch_norm_gradient(layout, arrays, norm, of.relu, 1);
  return results;
}

}  // namespace resnet::test
