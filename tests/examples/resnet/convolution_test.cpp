// SPDX-License-Identifier: Apache-2.0

// The reference convolutions: against the definition, against differences, and the same bits
// whatever the number of threads and the format.

#include "../../../examples/resnet/ops/reference/convolution.hpp"

#include <sstream>
#include <string>
#include <vector>

#include "gradient_check.hpp"
#include "random.hpp"

namespace resnet::test {
namespace {

using reference::Convolution;
using reference::Scratch;

std::string describe(const ConvolutionShape& s) {
  std::ostringstream out;
  out << s.in.n << " images of " << s.in.c << " x " << s.in.h << " x " << s.in.w << " to " << s.k
      << " channels, kernel " << s.kernel << ", stride " << s.stride << ", padding " << s.padding;
  return out.str();
}

/// A convolution with its operands, in nchw.
template <class T>
struct ConvolutionProblem {
  explicit ConvolutionProblem(const ConvolutionShape& of, int with_threads = 2,
                              Format in = Format::nchw)
      : shape(of), threads(with_threads), format(in), convolution(of, in) {
    scratch.resize(convolution.scratch(threads));
  }

  Scratch<T> memory() { return {scratch.data(), threads}; }
  void forward() { convolution.forward(x.data(), weights.data(), y.data(), memory()); }
  void backward() {
    convolution.data_gradient(y_gradient.data(), weights.data(), x_gradient.data(), memory());
    convolution.weight_gradient(x.data(), y_gradient.data(), weight_gradient.data(), memory());
  }

  ConvolutionShape shape;
  int threads;
  Format format;
  Convolution<T> convolution;
  std::vector<T> x = random_values<T>(1, shape.in.count());
  std::vector<T> weights = random_values<T>(2, shape.weights());
  std::vector<T> y_gradient = random_values<T>(3, shape.out().count());
  // What is written is written whole, whatever was there.
  std::vector<T> y = std::vector<T>(size(shape.out().count()), T(99));
  std::vector<T> x_gradient = std::vector<T>(x.size(), T(99));
  std::vector<T> weight_gradient = std::vector<T>(weights.size(), T(99));
  std::vector<T> scratch;
};

/// Calls f(x index, weight index, y index) for every product of the definition, in nchw.
template <class F>
void for_each_product(const ConvolutionShape& s, const F& f) {
  const Extents out = s.out();
  for (std::int64_t y = 0; y < out.count(); ++y)
    for (std::int64_t w = 0; w < s.in.c * s.kernel * s.kernel; ++w) {
      const std::int64_t n = y / (out.c * out.h * out.w), k = y / (out.h * out.w) % out.c;
      const std::int64_t c = w / (s.kernel * s.kernel);
      const std::int64_t row = y / out.w % out.h * s.stride + w / s.kernel % s.kernel - s.padding;
      const std::int64_t column = y % out.w * s.stride + w % s.kernel - s.padding;
      if (row < 0 || row >= s.in.h || column < 0 || column >= s.in.w) continue;
      f(size(((n * s.in.c + c) * s.in.h + row) * s.in.w + column),
        size(k * s.in.c * s.kernel * s.kernel + w), size(y));
    }
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

void check_against_definition(const ConvolutionShape& shape) {
  INFO(describe(shape));
  ConvolutionProblem<double> problem(shape);
  problem.forward();
  problem.backward();
  std::vector<double> y(problem.y.size()), x_gradient(problem.x.size());
  std::vector<double> weight_gradient(problem.weights.size());
  for_each_product(shape, [&](std::size_t x, std::size_t w, std::size_t out) {
    y[out] += problem.x[x] * problem.weights[w];
    x_gradient[x] += problem.y_gradient[out] * problem.weights[w];
    weight_gradient[w] += problem.y_gradient[out] * problem.x[x];
  });
  CHECK(largest_difference(y, problem.y) < 1e-10);
  CHECK(largest_difference(x_gradient, problem.x_gradient) < 1e-10);
  CHECK(largest_difference(weight_gradient, problem.weight_gradient) < 1e-10);
}

TEST_CASE("convolution: odd sizes, strides and paddings, against the definition") {
  for (std::uint64_t i = 0; i < 150; ++i) {
    auto pick = [&, place = std::uint64_t{0}](std::int64_t low, std::int64_t high) mutable {
      return low + static_cast<std::int64_t>(mix(mix(i) ^ place++) %
                                             static_cast<std::uint64_t>(high - low + 1));
    };
    ConvolutionShape shape;
    shape.kernel = std::vector<std::int64_t>{1, 2, 3, 5, 7}[size(pick(0, 4))];
    shape.stride = pick(1, 3);
    shape.padding = pick(0, shape.kernel - 1);
    shape.in = {pick(1, 3), pick(1, 19), shape.kernel + pick(0, 12), shape.kernel + pick(0, 12)};
    shape.k = pick(1, 19);
    check_against_definition(shape);
  }
}

// The shapes of ResNets, small.
const std::vector<ConvolutionShape> shapes = {
    {{2, 3, 9, 11}, 4, 7, 2, 3}, {{2, 5, 8, 7}, 6, 3, 1, 1},  {{1, 4, 9, 9}, 9, 3, 2, 1},
    {{2, 6, 7, 6}, 3, 1, 1, 0},  {{2, 3, 8, 9}, 17, 1, 2, 0}, {{3, 18, 5, 5}, 2, 3, 1, 1}};

TEST_CASE("convolution: gradients against differences") {
  for (const ConvolutionShape& shape : shapes) {
    INFO(describe(shape));
    ConvolutionProblem<double> problem(shape);
    problem.backward();
    const auto loss = [&] {
      problem.forward();
      return weigh(problem.y_gradient, problem.y);
    };
    check_gradient(problem.x, problem.x_gradient, loss);
    check_gradient(problem.weights, problem.weight_gradient, loss);
  }
}

TEST_CASE("convolution: the same bits for any number of threads") {
  for (const ConvolutionShape& shape : shapes) {
    INFO(describe(shape));
    ConvolutionProblem<float> one(shape, 1);
    one.forward();
    one.backward();
    for (const int threads : {2, 3, 5}) {
      ConvolutionProblem<float> more(shape, threads);
      more.forward();
      more.backward();
      CHECK(more.y == one.y);
      CHECK(more.x_gradient == one.x_gradient);
      CHECK(more.weight_gradient == one.weight_gradient);
    }
  }
}

TEST_CASE("convolution: the same bits in both formats") {
  for (const ConvolutionShape& shape : shapes) {
    INFO(describe(shape));
    const Extents out = shape.out();
    const std::int64_t taps = shape.kernel * shape.kernel;
    const auto input = [&](const auto& v) {
      return transposed(v, shape.in.n, shape.in.c, shape.in.h * shape.in.w);
    };
    const auto output = [&](const auto& v) { return transposed(v, out.n, out.c, out.h * out.w); };
    const auto filter = [&](const auto& v) { return transposed(v, shape.k, shape.in.c, taps); };
    ConvolutionProblem<float> planes(shape), pixels(shape, 2, Format::nhwc);
    pixels.x = input(planes.x);
    pixels.weights = filter(planes.weights);
    pixels.y_gradient = output(planes.y_gradient);
    for (ConvolutionProblem<float>* problem : {&planes, &pixels}) {
      problem->forward();
      problem->backward();
    }
    CHECK(pixels.y == output(planes.y));
    CHECK(pixels.x_gradient == input(planes.x_gradient));
    CHECK(pixels.weight_gradient == filter(planes.weight_gradient));
  }
}

}  // namespace
}  // namespace resnet::test
