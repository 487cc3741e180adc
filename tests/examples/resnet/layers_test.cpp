// SPDX-License-Identifier: Apache-2.0

// The reference pooling, last layer and loss: against definitions and differences.

#include <cmath>
#include <limits>
#include <vector>

#include "../../../examples/resnet/ops/reference/cross_entropy.hpp"
#include "../../../examples/resnet/ops/reference/linear.hpp"
#include "../../../examples/resnet/ops/reference/pooling.hpp"
#include "gradient_check.hpp"
#include "matchers.hpp"
#include "random.hpp"

namespace resnet::test {
namespace {

using reference::ActivationLayout;

const double infinity = std::numeric_limits<double>::infinity();
const double not_a_number = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("max pool: gradient against differences, from one place and from two") {
  for (const PoolShape& shape : {PoolShape{{2, 3, 7, 9}, 3, 2, 1}, PoolShape{{1, 2, 6, 5}, 2, 2, 0},
                                 PoolShape{{2, 2, 5, 5}, 3, 1, 1}})
    for (const Format format : {Format::nchw, Format::nhwc}) {
      std::vector<double> x = random_values(1, shape.in.count());
      const std::vector<double> y_gradient = random_values(2, shape.out().count());
      const std::vector<double> more = random_values(3, shape.out().count());
      std::vector<double> y(y_gradient.size()), x_gradient(x.size(), 99), sum = y_gradient;
      std::vector<std::uint8_t> chosen(y.size());
      const auto forward = [&] {
        reference::max_pool(shape, format, x.data(), y.data(), chosen.data(), 2);
      };
      const auto loss = [&] {
        forward();
        return weigh(sum, y);
      };
      forward();
      reference::max_pool_gradient<double>(shape, format, chosen.data(), y_gradient.data(), nullptr,
                                           x_gradient.data(), 2);
      check_gradient(x, x_gradient, loss);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
      forward();
      reference::max_pool_gradient(shape, format, chosen.data(), y_gradient.data(), more.data(),
                                   x_gradient.data(), 2);
      check_gradient(x, x_gradient, loss);
    }
}

TEST_CASE("max pool: the first of equals, never the padding, and NaN over all") {
  const PoolShape shape{{1, 1, 3, 3}, 3, 2, 1};
  const auto pool = [&](const std::vector<double>& x) {
    std::vector<double> y(4);
    std::vector<std::uint8_t> chosen(4);
    reference::max_pool(shape, Format::nchw, x.data(), y.data(), chosen.data(), 1);
    return std::pair(y, chosen);
  };
  const auto [equal, first] = pool(std::vector<double>(9, -2));
  CHECK(equal == std::vector<double>(4, -2));  // 0, which is larger, is not there
  CHECK(first == std::vector<std::uint8_t>{4, 3, 1, 0});
  const auto [lowest, chosen] = pool(std::vector<double>(9, -infinity));
  CHECK(lowest == std::vector<double>(4, -infinity));
  CHECK(chosen == first);
  const auto [with_nan, nan_chosen] = pool({1, 2, 3, 4, not_a_number, 6, 7, 8, 9});
  for (const double value : with_nan) CHECK(std::isnan(value));
  CHECK(nan_chosen == std::vector<std::uint8_t>{8, 6, 2, 0});
}

TEST_CASE("average pool: value, and gradient against differences") {
  for (const Format format : {Format::nchw, Format::nhwc}) {
    const ActivationLayout layout({2, 3, 4, 5}, format);
    std::vector<double> x = random_values(1, layout.extents.count());
    const std::vector<double> y_gradient = random_values(2, 6);
    std::vector<double> y(6), x_gradient(x.size(), 99);
    const auto loss = [&] {
      reference::average_pool(layout, x.data(), y.data(), 2);
      return weigh(y_gradient, y);
    };
    loss();
    double mean = 0;
    for (std::int64_t i = 0; i < 20; ++i) mean += x[size(layout.row(1, 2) + i * layout.pixel)] / 20;
    CHECK(y[5] == Approx(mean));
    reference::average_pool_gradient(layout, y_gradient.data(), x_gradient.data(), 2);
    check_gradient(x, x_gradient, loss);
  }
}

TEST_CASE("linear: gradients against differences") {
  const reference::LinearShape shape{3, 21, 5};
  std::vector<double> x = random_values(1, 63), weights = random_values(2, 105),
                      bias = random_values(3, 5);
  const std::vector<double> logit_gradient = random_values(4, 15);
  std::vector<double> logits(15), x_gradient(63, 99), weight_gradient(105, 99), bias_gradient(5);
  const auto loss = [&] {
    reference::linear(shape, x.data(), weights.data(), bias.data(), logits.data(), 2);
    return weigh(logit_gradient, logits);
  };
  reference::linear_gradient(shape, x.data(), weights.data(), logit_gradient.data(),
                             x_gradient.data(), weight_gradient.data(), bias_gradient.data(), 2);
  check_gradient(x, x_gradient, loss, 1000);
  check_gradient(weights, weight_gradient, loss, 1000);
  check_gradient(bias, bias_gradient, loss);
  loss();
  double expected = bias[1];
  for (std::size_t i = 0; i < 21; ++i) expected += x[42 + i] * weights[21 + i];
  CHECK(logits[11] == Approx(expected));
}

TEST_CASE("cross entropy: loss, hits, and gradient against differences") {
  constexpr std::int64_t n = 4, classes = 5;
  std::vector<double> logits = random_values(1, n * classes, 3), gradient(logits.size());
  const std::vector<std::int32_t> labels = {0, 4, 2, 2};
  const auto sums = [&](double* into, double scale = 1) {
    return reference::cross_entropy(n, classes, logits.data(), labels.data(), scale, into);
  };
  sums(gradient.data());
  check_gradient(logits, gradient, [&] { return sums(nullptr).loss / n; });

  double loss = 0, correct = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double* row = &logits[i * classes];
    double sum = 0;
    for (std::size_t k = 0; k < classes; ++k) sum += std::exp(row[k]);
    const auto label = static_cast<std::size_t>(labels[i]);
    loss += std::log(sum) - row[label];
    correct += std::max_element(row, row + classes) == row + label ? 1 : 0;
  }
  CHECK(sums(nullptr).loss == Approx(loss));
  CHECK(sums(nullptr).correct == correct);
  CHECK(sums(nullptr).samples == n);

  std::vector<double> scaled(logits.size());
  sums(scaled.data(), 1024);
  for (std::size_t i = 0; i < scaled.size(); ++i) CHECK(scaled[i] == Approx(1024 * gradient[i]));
}

TEST_CASE("cross entropy: large logits, bad labels, infinities") {
  std::vector<double> gradient(3);
  const auto loss = [&](std::vector<double> logits, std::int32_t label) {
    return reference::cross_entropy<double>(3, logits.data(), label, 1, gradient.data());
  };
  CHECK(loss({1e4, 0, 0}, 0) == 0);
  CHECK(gradient == std::vector<double>{0, 0, 0});
  CHECK(loss({1e4, 0, 0}, 1) == Approx(1e4));
  CHECK(std::isnan(loss({0, 0, 0}, 3)));
  CHECK(std::isnan(gradient[0]));
  CHECK(std::isnan(loss({0, 0, 0}, -1)));
  CHECK(std::isnan(loss({infinity, 0, 0}, 0)));
  CHECK(std::isnan(loss({not_a_number, 0, 0}, 0)));
  CHECK(loss({-infinity, 0, 0}, 0) == infinity);  // The optimizer has to see it in the gradients.
  CHECK(std::isnan(gradient[1]));
}

}  // namespace
}  // namespace resnet::test
