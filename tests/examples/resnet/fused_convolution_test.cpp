// SPDX-License-Identifier: Apache-2.0

// Fused convolutions of the reference: the bits of the operations one by one, and their gradients
// against differences.

#include "../../../examples/resnet/ops/reference/fused_convolution.hpp"

#include <vector>

#include "gradient_check.hpp"
#include "random.hpp"

namespace resnet::test {
namespace {

using reference::ActivationLayout;
using reference::Convolution;
using reference::FusedConvolution;
using reference::Normalisation;

/// A batch norm's arrays.
template <class T>
struct Norm {
  explicit Norm(std::uint64_t seed, std::int64_t channels)
      : gamma(random_values<T>(seed, channels, 0.5, 1)),
        beta(random_values<T>(seed + 1, channels, 0.5)),
        running_mean(random_values<T>(seed + 2, channels)),
        running_variance(random_values<T>(seed + 3, channels, 0.5, 1)),
        mean(gamma.size(), T(99)) {}

  Normalisation<T> view() {
    Normalisation<T> norm{
        gamma.data(), beta.data(),    running_mean.data(),   running_variance.data(),
        mean.data(),  inverse.data(), gamma_gradient.data(), beta_gradient.data()};
    norm.scale = scale.data();
    norm.bias = bias.data();
    return norm;
  }
  bool operator==(const Norm&) const = default;

  std::vector<T> gamma, beta, running_mean, running_variance, mean;
  std::vector<T> inverse = mean, gamma_gradient = mean, beta_gradient = mean, scale = mean,
                 bias = mean;
};

/// x is what a convolution before has written, and `before` its batch norm.
template <class T>
struct FusedProblem {
  explicit FusedProblem(const ConvolutionShape& of, Format in = Format::nchw)
      : shape(of), format(in), convolution(of, in), scratch(convolution.scratch(threads)) {}

  ActivationLayout in() const { return {shape.in, format}; }
  ActivationLayout out() const { return {shape.out(), format}; }
  FusedConvolution<T> fused() {
    return {convolution, in(), out(), room.data(), {scratch.data(), threads}};
  }
  /// As the convolution before leaves them.
  void find_statistics() {
    reference::batch_norm_statistics(in(), x.data(), before.view(), threads);
  }
  void forward() {
    const Normalisation<T> input = before.view();
    fused().forward(x.data(), &input, weights.data(), y.data(), behind.view());
  }
  void backward() {
    fused().weight_gradient(x.data(), before.view(), y_gradient.data(), weight_gradient.data());
    fused().data_gradient(y_gradient.data(), weights.data(), x.data(), before.view(),
                          x_gradient.data());
  }

  ConvolutionShape shape;
  Format format;
  int threads = 2;
  Convolution<T> convolution;
  std::vector<T> scratch;
  Norm<T> before{10, shape.in.c}, behind{20, shape.k};
  std::vector<T> x = random_values<T>(1, shape.in.count(), 2, 0.5);
  std::vector<T> weights = random_values<T>(2, shape.weights());
  std::vector<T> y_gradient = random_values<T>(3, shape.out().count());
  // What is written is written whole, whatever was there.
  std::vector<T> room = std::vector<T>(x.size(), T(99)), x_gradient = room;
  std::vector<T> y = std::vector<T>(y_gradient.size(), T(99));
  std::vector<T> weight_gradient = std::vector<T>(weights.size(), T(99));
};

constexpr ConvolutionShape fused_shapes[] = {{{2, 3, 5, 7}, 4, 3, 1, 1},
                                             {{3, 2, 6, 5}, 3, 3, 2, 1},
                                             {{2, 5, 4, 4}, 7, 1, 1, 0},
                                             {{2, 4, 6, 6}, 3, 1, 2, 0}};

template <class T>
void check_bits(const ConvolutionShape& shape, Format format) {
  FusedProblem<T> fused(shape, format), apart(shape, format);
  fused.find_statistics();
  fused.forward();
  const std::vector<T> y = fused.y;
  fused.backward();

  std::vector<T> normalized(apart.x.size()), ignored(apart.y.size());
  const reference::Scratch<T> scratch{apart.scratch.data(), apart.threads};
  const T* none = nullptr;
  reference::batch_norm(apart.in(), apart.x.data(), apart.before.view(), none, true,
                        normalized.data(), 2);
  apart.convolution.forward(normalized.data(), apart.weights.data(), apart.y.data(), scratch);
  reference::batch_norm(apart.out(), apart.y.data(), apart.behind.view(), none, true,
                        ignored.data(), 2);
  apart.convolution.weight_gradient(normalized.data(), apart.y_gradient.data(),
                                    apart.weight_gradient.data(), scratch);
  apart.convolution.data_gradient(apart.y_gradient.data(), apart.weights.data(),
                                  apart.x_gradient.data(), scratch);
  reference::batch_norm_gradient(apart.in(),
                                 {apart.x.data(), normalized.data(), apart.x_gradient.data(), none,
                                  apart.x_gradient.data(), nullptr},
                                 apart.before.view(), true, 2);
  CHECK(y == apart.y);
  CHECK(fused.weight_gradient == apart.weight_gradient);
  CHECK(fused.x_gradient == apart.x_gradient);
  // batch_norm leaves scale and bias alone.
  for (Norm<T>* norm : {&fused.before, &fused.behind}) norm->scale = norm->bias = {};
  for (Norm<T>* norm : {&apart.before, &apart.behind}) norm->scale = norm->bias = {};
  CHECK(fused.before == apart.before);
  CHECK(fused.behind == apart.behind);

  const auto applied = [&](Norm<T>& norm) {
    std::vector<T> again(apart.y.size());
    reference::batch_norm_statistics(apart.out(), apart.y.data(), norm.view(), 1);
    reference::batch_norm_apply(apart.out(), apart.y.data(), norm.view(), none, true, again.data(),
                                1);
    return again;
  };
  Norm<T> behind(20, shape.k);
  CHECK(applied(behind) == ignored);
}

TEST_CASE("fused convolutions have the bits of the operations one by one") {
  for (const ConvolutionShape& shape : fused_shapes)
    for (const Format format : {Format::nchw, Format::nhwc}) {
      check_bits<float>(shape, format);
      check_bits<double>(shape, format);
    }
}

TEST_CASE("without a batch norm before it, a fused convolution reads x itself") {
  FusedProblem<float> problem(fused_shapes[0]);
  problem.fused().forward(problem.x.data(), nullptr, problem.weights.data(), problem.y.data(),
                          problem.behind.view());
  std::vector<float> y(problem.y.size());
  problem.convolution.forward(problem.x.data(), problem.weights.data(), y.data(),
                              {problem.scratch.data(), problem.threads});
  CHECK(problem.y == y);
}

TEST_CASE("fused convolutions: gradients against differences, through ReLU and batch norm") {
  for (const ConvolutionShape& shape : fused_shapes) {
    FusedProblem<double> problem(shape);
    problem.find_statistics();
    problem.forward();
    problem.backward();
    const auto loss = [&] {
      problem.find_statistics();
      problem.forward();
      return weigh(problem.y_gradient, problem.y);
    };
    // Small steps: where the sum crosses 0, ReLU has no derivative.
    check_gradient(problem.x, problem.x_gradient, loss, 60, 1e-6);
    check_gradient(problem.weights, problem.weight_gradient, loss, 60, 1e-6);
    check_gradient(problem.before.gamma, problem.before.gamma_gradient, loss, 60, 1e-6);
    check_gradient(problem.before.beta, problem.before.beta_gradient, loss, 60, 1e-6);
  }
}

}  // namespace
}  // namespace resnet::test
