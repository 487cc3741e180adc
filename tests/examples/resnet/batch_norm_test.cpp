// SPDX-License-Identifier: Apache-2.0

// The reference batch norm: against its definition and differences, PyTorch's running statistics,
// and the same bits whatever the number of threads and the format.

#include "../../../examples/resnet/ops/reference/batch_norm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gradient_check.hpp"
#include "matchers.hpp"
#include "random.hpp"

namespace resnet::test {
namespace {

using reference::ActivationLayout;
using reference::Normalisation;

/// Batch norm with its operands, in nchw unless told.
template <class T>
struct BatchNormProblem {
  explicit BatchNormProblem(const Extents& of, bool with_residual, bool with_relu)
      : extents(of), has_residual(with_residual), relu(with_relu) {}

  Normalisation<T> norm() {
    return {gamma.data(), beta.data(),    running_mean.data(),   running_variance.data(),
            mean.data(),  inverse.data(), gamma_gradient.data(), beta_gradient.data()};
  }
  ActivationLayout layout() const { return {extents, format}; }
  const T* added() const { return has_residual ? residual.data() : nullptr; }

  void forward() {
    reference::batch_norm(layout(), x.data(), norm(), added(), relu, y.data(), threads);
  }
  void backward() {
    reference::batch_norm_gradient(
        layout(),
        {x.data(), y.data(), y_gradient.data(), has_residual ? more_y_gradient.data() : nullptr,
         x_gradient.data(), has_residual ? residual_gradient.data() : nullptr},
        norm(), relu, threads);
  }

  Extents extents;
  bool has_residual, relu;
  Format format = Format::nchw;
  int threads = 2;
  std::vector<T> x = random_values<T>(1, extents.count(), 2, 0.5);
  std::vector<T> residual = random_values<T>(2, extents.count());
  std::vector<T> y_gradient = random_values<T>(3, extents.count());
  std::vector<T> more_y_gradient = random_values<T>(4, extents.count());
  std::vector<T> gamma = random_values<T>(5, extents.c, 0.5, 1);
  std::vector<T> beta = random_values<T>(6, extents.c);
  std::vector<T> running_mean = random_values<T>(7, extents.c);
  std::vector<T> running_variance = random_values<T>(8, extents.c, 0.5, 1);
  std::vector<T> mean = std::vector<T>(gamma.size());
  std::vector<T> inverse = mean, gamma_gradient = mean, beta_gradient = mean;
  std::vector<T> y = std::vector<T>(x.size(), T(99));
  std::vector<T> x_gradient = y, residual_gradient = y;
};

const std::vector<Extents> activations = {{2, 3, 5, 7}, {3, 2, 4, 4}, {5, 1, 1, 1}, {2, 2, 33, 37}};

template <class F>
void for_each_problem(const F& f) {
  for (const Extents& extents : activations)
    for (const bool residual : {false, true})
      for (const bool relu : {false, true}) {
        INFO(extents.n << " x " << extents.c << " x " << extents.h << " x " << extents.w
                       << ", residual " << residual << ", relu " << relu);
        f(BatchNormProblem<double>(extents, residual, relu));
      }
}

TEST_CASE("batch norm: gradients against differences") {
  for_each_problem([](BatchNormProblem<double> problem) {
    problem.forward();
    problem.backward();
    std::vector<double> arriving = problem.y_gradient;
    if (problem.has_residual)
      for (std::size_t i = 0; i < arriving.size(); ++i) arriving[i] += problem.more_y_gradient[i];
    const auto loss = [&] {
      problem.forward();
      return weigh(arriving, problem.y);
    };
    // Small steps: where the sum crosses 0, ReLU has no derivative.
    check_gradient(problem.x, problem.x_gradient, loss, 60, 1e-6);
    check_gradient(problem.gamma, problem.gamma_gradient, loss, 60, 1e-6);
    check_gradient(problem.beta, problem.beta_gradient, loss, 60, 1e-6);
    if (problem.has_residual)
      check_gradient(problem.residual, problem.residual_gradient, loss, 60, 1e-6);
  });
}

/// Of one channel, by the definition.
struct Statistics {
  double mean = 0, variance = 0, count = 0;
};

Statistics statistics(const BatchNormProblem<double>& problem, std::int64_t c) {
  std::vector<double> values;
  const Extents& e = problem.extents;
  for (std::int64_t n = 0; n < e.n; ++n)
    for (std::int64_t i = 0; i < e.h * e.w; ++i)
      values.push_back(problem.x[size((n * e.c + c) * e.h * e.w + i)]);
  Statistics of;
  of.count = static_cast<double>(values.size());
  for (const double value : values) of.mean += value / of.count;
  for (const double value : values) of.variance += (value - of.mean) * (value - of.mean) / of.count;
  return of;
}

TEST_CASE("batch norm: output and running statistics as PyTorch's") {
  for_each_problem([](BatchNormProblem<double> problem) {
    const BatchNormProblem<double> before = problem;
    problem.forward();
    const Extents& e = problem.extents;
    for (std::int64_t c = 0; c < e.c; ++c) {
      const Statistics of = statistics(before, c);
      CHECK(problem.mean[size(c)] == Approx(of.mean));
      CHECK(problem.inverse[size(c)] == Approx(1 / std::sqrt(of.variance + 1e-5)));
      CHECK(problem.running_mean[size(c)] ==
            Approx(0.9 * before.running_mean[size(c)] + 0.1 * of.mean));
      const double unbiased = of.variance * of.count / (of.count - 1);
      CHECK(problem.running_variance[size(c)] ==
            Approx(0.9 * before.running_variance[size(c)] + 0.1 * unbiased));
      const std::size_t i = size(c * e.h * e.w);
      double y = (before.x[i] - of.mean) / std::sqrt(of.variance + 1e-5) * before.gamma[size(c)] +
                 before.beta[size(c)] + (problem.has_residual ? before.residual[i] : 0);
      if (problem.relu) y = std::max(y, 0.0);
      CHECK(problem.y[i] == Approx(y).margin(1e-12));
    }
  });
}

TEST_CASE("batch norm: inference takes the running statistics and leaves them") {
  for_each_problem([](BatchNormProblem<double> problem) {
    const BatchNormProblem<double> before = problem;
    reference::batch_norm_inference(problem.layout(), problem.x.data(), problem.norm(),
                                    problem.added(), problem.relu, problem.y.data(), 2);
    CHECK(problem.running_mean == before.running_mean);
    CHECK(problem.running_variance == before.running_variance);
    const std::int64_t pixels = before.extents.h * before.extents.w;
    for (std::size_t i = 0; i < problem.y.size(); ++i) {
      const std::size_t c = i / size(pixels) % size(before.extents.c);
      double y = (before.x[i] - before.running_mean[c]) /
                     std::sqrt(before.running_variance[c] + 1e-5) * before.gamma[c] +
                 before.beta[c] + (problem.has_residual ? before.residual[i] : 0);
      if (problem.relu) y = std::max(y, 0.0);
      REQUIRE(problem.y[i] == Approx(y).margin(1e-12));
    }
  });
}

TEST_CASE("batch norm: the gradient may be written over the one it is made of") {
  BatchNormProblem<float> apart({2, 3, 5, 7}, true, true), in_place({2, 3, 5, 7}, true, true);
  for (BatchNormProblem<float>* problem : {&apart, &in_place}) problem->forward();
  apart.backward();
  reference::batch_norm_gradient(in_place.layout(),
                                 {in_place.x.data(), in_place.y.data(), in_place.y_gradient.data(),
                                  in_place.more_y_gradient.data(), in_place.y_gradient.data(),
                                  in_place.residual_gradient.data()},
                                 in_place.norm(), true, 2);
  CHECK(in_place.y_gradient == apart.x_gradient);
  CHECK(in_place.residual_gradient == apart.residual_gradient);
  CHECK(in_place.gamma_gradient == apart.gamma_gradient);
}

TEST_CASE("batch norm: the same bits for any number of threads and in both formats") {
  for (const Extents& extents : activations) {
    BatchNormProblem<float> planes(extents, true, true), pixels(extents, true, true);
    const auto other = [&](const std::vector<float>& values) {
      return transposed(values, extents.n, extents.c, extents.h * extents.w);
    };
    planes.threads = 1;
    pixels.threads = 3;
    pixels.format = Format::nhwc;
    for (std::vector<float>* values :
         {&pixels.x, &pixels.residual, &pixels.y_gradient, &pixels.more_y_gradient})
      *values = other(*values);
    for (BatchNormProblem<float>* problem : {&planes, &pixels}) {
      problem->forward();
      problem->backward();
    }
    CHECK(pixels.y == other(planes.y));
    CHECK(pixels.x_gradient == other(planes.x_gradient));
    CHECK(pixels.residual_gradient == other(planes.residual_gradient));
    CHECK(pixels.gamma_gradient == planes.gamma_gradient);
    CHECK(pixels.beta_gradient == planes.beta_gradient);
    CHECK(pixels.running_variance == planes.running_variance);
  }
}

/// The problem by ranks that have a part of its images each.
struct DividedProblem {
  DividedProblem(const BatchNormProblem<double>& whole, int number)
      : problem(whole), ranks(number), norm(problem.norm()) {
    norm.scale = scale.data();
    norm.bias = bias.data();
  }

  Extents part() const {
    Extents extents = problem.extents;
    extents.n /= ranks;
    return extents;
  }
  ActivationLayout layout() const { return {part(), problem.format}; }
  std::int64_t first(int rank) const { return rank * part().count(); }

  void forward() {
    std::vector<double> moments;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<double> mine(2 * scale.size());
      reference::batch_norm_moments(layout(), problem.x.data() + first(rank), mine.data(), 2);
      moments.insert(moments.end(), mine.begin(), mine.end());
    }
    reference::batch_norm_merge(layout(), ranks, moments.data(), norm, 2);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t at = first(rank);
      reference::batch_norm_apply(layout(), problem.x.data() + at, norm,
                                  problem.residual.data() + at, problem.relu, problem.y.data() + at,
                                  2);
    }
  }

  void backward() {
    const auto operands = [&](int rank) {
      const std::int64_t at = first(rank);
      return reference::BatchNormGradient<double>{
          problem.x.data() + at,          problem.y.data() + at,
          problem.y_gradient.data() + at, problem.more_y_gradient.data() + at,
          problem.x_gradient.data() + at, problem.residual_gradient.data() + at};
    };
    std::vector<double> sums(2 * scale.size());
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<double> mine(sums.size());
      reference::batch_norm_gradient_sums(layout(), operands(rank), norm, problem.relu, mine.data(),
                                          2);
      for (std::size_t c = 0; c < scale.size(); ++c) {
        CHECK(problem.beta_gradient[c] == mine[c]);
        CHECK(problem.gamma_gradient[c] == mine[scale.size() + c]);
      }
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += mine[i];
    }
    std::copy_n(sums.begin(), scale.size(), problem.beta_gradient.begin());
    std::copy_n(sums.begin() + problem.extents.c, scale.size(), problem.gamma_gradient.begin());
    for (int rank = 0; rank < ranks; ++rank)
      reference::batch_norm_gradient_rest(layout(), ranks, operands(rank), norm, problem.relu,
                                          sums.data(), 2);
  }

  BatchNormProblem<double> problem;
  int ranks;
  std::vector<double> scale = problem.gamma, bias = problem.gamma;
  Normalisation<double> norm;
};

void check_close(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(1e-12));
}

TEST_CASE("batch norm in parts: ranks that have parts of a batch come to what the whole has") {
  const int ranks = GENERATE(1, 2, 4);
  const bool relu = GENERATE(false, true);
  BatchNormProblem<double> whole({4, 3, 5, 7}, true, relu);
  DividedProblem divided(whole, ranks);
  whole.forward();
  whole.backward();
  divided.forward();
  divided.backward();
  const BatchNormProblem<double>& parts = divided.problem;
  check_close(parts.y, whole.y);
  check_close(parts.mean, whole.mean);
  check_close(parts.inverse, whole.inverse);
  check_close(parts.running_mean, whole.running_mean);
  check_close(parts.running_variance, whole.running_variance);
  check_close(parts.x_gradient, whole.x_gradient);
  check_close(parts.residual_gradient, whole.residual_gradient);
  check_close(parts.gamma_gradient, whole.gamma_gradient);
  check_close(parts.beta_gradient, whole.beta_gradient);
}

}  // namespace
}  // namespace resnet::test
