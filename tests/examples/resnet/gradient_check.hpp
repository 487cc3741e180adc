// SPDX-License-Identifier: Apache-2.0
#pragma once

// A gradient against central differences, in double: each element of `values` is moved, and what
// `loss` makes of it is what the gradient must say.
//
//   check_gradient(x, x_gradient, [&] { return forward_and_weigh(x); });

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "../../support/catch.hpp"
#include "arrays.hpp"

namespace resnet::test {

/// At most `checked` of the elements, evenly spread. `loss` sees `values` changed.
template <class Loss>
void check_gradient(std::vector<double>& values, const std::vector<double>& gradient,
                    const Loss& loss, std::size_t checked = 60, double step = 1e-5) {
  REQUIRE(values.size() == gradient.size());
  double largest = 0;
  for (const double value : gradient) largest = std::max(largest, std::abs(value));
  REQUIRE(std::isfinite(largest));
  const std::size_t stride = std::max<std::size_t>(1, values.size() / checked) | 1;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    const double before = values[i];
    values[i] = before + step;
    const double above = loss();
    values[i] = before - step;
    const double below = loss();
    values[i] = before;
    const double difference = (above - below) / (2 * step);
    INFO("element " << i << ": gradient " << gradient[i] << ", difference " << difference);
    REQUIRE(std::abs(difference - gradient[i]) <= 1e-6 * (1 + largest));
  }
}

inline double weigh(const std::vector<double>& weights, const std::vector<double>& values) {
  REQUIRE(weights.size() == values.size());
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
  return sum;
}

}  // namespace resnet::test
