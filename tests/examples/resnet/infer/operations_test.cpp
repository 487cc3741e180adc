// SPDX-License-Identifier: Apache-2.0

// The reference operations of inference: against plain loops in double, int8 against integers, and
// the roundings that a precision and a fusion mean.

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "../../../support/catch.hpp"
#include "inference.hpp"

namespace resnet::test {
namespace {

using reference::quantised;
using reference::rounded;

double nearest(Precision precision, double value) {
  return static_cast<double>(rounded(precision, static_cast<float>(value)));
}

/// A kernel of each size, strides, borders, and channels that fill no vector.
std::vector<ConvolutionShape> shapes() {
  return {{{2, 3, 9, 7}, 5, 7, 2, 3},
          {{3, 16, 6, 6}, 9, 3, 1, 1},
          {{1, 20, 5, 8}, 17, 3, 2, 1},
          {{2, 8, 7, 7}, 12, 1, 2, 0},
          {{1, 33, 4, 4}, 3, 1, 1, 0}};
}

TEST_CASE("inference: convolution, bias, residual and ReLU are what a plain loop gives") {
  const auto precision =
      GENERATE(Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16);
  const auto format = GENERATE(Format::nchw, Format::nhwc);
  const auto fusion = GENERATE(Fusion::none, Fusion::elementwise, Fusion::full);
  const auto [residual, relu] =
      GENERATE(std::tuple(false, false), std::tuple(false, true), std::tuple(true, true));
  // Half a unit in the last place of numbers up to 16: once at the end, and after each operation.
  const double half_unit = precision == Precision::fp16   ? 0x1p-8
                           : precision == Precision::bf16 ? 0x1p-5
                                                          : 1e-5;
  const double allowed = half_unit * (fusion == Fusion::none   ? 4
                                      : fusion == Fusion::full ? 1.01
                                                               : 2);
  for (const ConvolutionShape& shape : shapes()) {
    const Problem problem({shape, precision, precision, residual, relu}, format);
    const std::vector<double> truth = problem.truth();
    const std::vector<double> y = problem.run({.precision = precision, .fusion = fusion});
    REQUIRE(y.size() == truth.size());
    double largest = 0;
    bool stored = true;
    for (std::size_t i = 0; i < y.size(); ++i) {
      largest = std::max(largest, std::abs(y[i] - truth[i]));
      stored = stored && y[i] == nearest(precision, y[i]);
    }
    INFO("kernel " << shape.kernel << ", precision " << static_cast<int>(precision) << ", fusion "
                   << static_cast<int>(fusion));
    CHECK(largest <= allowed);
    CHECK(stored);
  }
}

TEST_CASE("inference: both formats give the same bits") {
  const auto precision = GENERATE(Precision::fp32, Precision::fp16);
  for (const ConvolutionShape& shape : shapes()) {
    const InferenceConvolution what{shape, precision, precision, true, true};
    CHECK(Problem(what, Format::nchw).run({.precision = precision}) ==
          Problem(what, Format::nhwc).run({.precision = precision}));
  }
}

TEST_CASE("inference: fusion decides where there is a rounding") {
  // 2049 has no fp16: the convolution alone gives 2048.
  Problem problem({{{1, 1, 1, 1}, 1, 1, 1, 0}, Precision::fp16, Precision::fp16, true, true},
                  Format::nchw);
  problem.x = {683};
  problem.weights = {3};
  problem.bias = {-2048};
  problem.residual = {0.25};
  const auto with = [&](Fusion fusion) {
    return problem.run({.precision = Precision::fp16, .fusion = fusion}).front();
  };
  CHECK(with(Fusion::full) == 1.25);
  CHECK(with(Fusion::elementwise) == 0.25);
  problem.bias = {-1024.4};  // 2048 - 1024.4 is 1023.6: in fp16 1023.5
  CHECK(with(Fusion::elementwise) == nearest(Precision::fp16, 2048 - 1024.4 + 0.25));
  CHECK(with(Fusion::none) == nearest(Precision::fp16, 1023.5 + 0.25));
}

// ---- int8 ---------------------------------------------------------------------------------------

TEST_CASE("inference: int8 is what integers give, then the scales, then one rounding") {
  const auto fusion = GENERATE(Fusion::none, Fusion::elementwise, Fusion::full);
  const auto [residual, relu] =
      GENERATE(std::tuple(false, false), std::tuple(false, true), std::tuple(true, true));
  for (const ConvolutionShape& shape : shapes()) {
    const Problem problem({shape, Precision::int8, Precision::int8, residual, relu}, Format::nhwc);
    const std::vector<double> truth = problem.truth();
    const std::vector<double> y = problem.run({.precision = Precision::int8, .fusion = fusion});
    std::size_t wrong = 0, saturated = 0, different = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      // Between two integers, within float's rounding, either is right.
      const double clamped = std::min(127.0, std::max(-128.0, truth[i]));
      wrong += std::abs(y[i] - clamped) > 0.5 + 1e-3;
      saturated += y[i] == 127;
      different += y[i] != y[0];
    }
    CHECK(wrong == 0);
    CHECK(saturated < y.size() / 2);
    CHECK(different > y.size() / 4);
  }
}

TEST_CASE("inference: sums of int8 are exact, at any depth") {
  // 512 x 3 x 3 products of up to 128 x 127: beyond 2^24, where float has no odd numbers.
  const std::int64_t channels = GENERATE(16, 100, 512);
  const std::int64_t k = 16;
  Problem problem(
      {{{1, channels, 3, 3}, k, 3, 1, 0}, Precision::int8, Precision::int8, false, false},
      Format::nhwc);
  for (std::size_t i = 0; i < problem.x.size(); ++i) problem.x[i] = i % 3 == 0 ? -128 : 127;
  for (std::size_t i = 0; i < problem.weights.size(); ++i)
    problem.weights[i] = problem.x[i % problem.x.size()] < 0
                             ? -127.0
                             : 126.0 + static_cast<double>(i / problem.x.size() % 2);
  problem.scale.assign(size(k), 1);
  std::vector<double> wanted;
  for (std::int64_t channel = 0; channel < k; ++channel) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < problem.x.size(); ++i)
      sum += static_cast<std::int64_t>(problem.x[i]) *
             static_cast<std::int64_t>(problem.weights[size(channel) * problem.x.size() + i]);
    const auto in_float = static_cast<float>(sum);  // as the formula has it, behind the sum
    problem.bias[size(channel)] = 5 - static_cast<double>(in_float);
    const float bias = static_cast<float>(problem.bias[size(channel)]);
    wanted.push_back(static_cast<double>(quantised(in_float + bias)));
  }
  CHECK(problem.run({.precision = Precision::int8}) == wanted);
}

TEST_CASE("inference: the first convolution of a network in int8 takes fp16") {
  const auto fusion = GENERATE(Fusion::none, Fusion::full);
  for (const ConvolutionShape& shape : shapes()) {
    const Problem problem({shape, Precision::fp16, Precision::int8, false, true}, Format::nhwc);
    const std::vector<double> truth = problem.truth();
    const std::vector<double> y = problem.run({.precision = Precision::int8, .fusion = fusion});
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      wrong += std::abs(y[i] - std::min(127.0, truth[i])) > (fusion == Fusion::full ? 0.501 : 0.6);
    CHECK(wrong == 0);
  }
}

TEST_CASE("inference: int8 is there in nhwc alone, and for inference alone") {
  CHECK_THROWS_AS(make_operations({.precision = Precision::int8}), std::invalid_argument);
  CHECK_THROWS_AS(make_inference_plans({.precision = Precision::int8}), std::invalid_argument);
}

TEST_CASE("inference: what was not prepared is told") {
  const InferenceConvolution what{{{1, 4, 4, 4}, 4, 3, 1, 1}};
  const auto plans = make_inference_plans({});
  const auto operations = plans->make_operations();
  CHECK_THROWS_AS(operations->convolution(what, nullptr, {}, nullptr, nullptr, nullptr),
                  std::logic_error);
  CHECK_THROWS_AS(plans->prepare(what), std::logic_error);
}

// ---- Rounding -----------------------------------------------------------------------------------

TEST_CASE("inference: rounding to fewer bits") {
  const auto half = [](float value) { return rounded(Precision::fp16, value); };
  CHECK(half(0.1f) == 0x1.998p-4f);
  CHECK(half(2049) == 2048);  // ties to even
  CHECK(half(2051) == 2052);
  CHECK(half(65519) == 65504);
  CHECK(std::isinf(half(65520)));
  CHECK(half(-65520) == -std::numeric_limits<float>::infinity());
  CHECK(half(0x1.8p-24f) == 0x1p-23f);  // subnormal numbers: multiples of 2^-24
  CHECK(half(0x1p-25f) == 0);
  CHECK(std::signbit(half(-0x1p-26f)));
  CHECK(half(0x1.ffep-15f) == 0x1p-14f);  // the carry into the normal ones
  CHECK(std::isnan(half(std::numeric_limits<float>::quiet_NaN())));
  CHECK(rounded(Precision::bf16, 1.00390625f) == 1);  // a tie
  CHECK(rounded(Precision::bf16, 1.01171875f) == 1.015625f);
  CHECK(std::isinf(rounded(Precision::bf16, std::numeric_limits<float>::max())));
  CHECK(rounded(Precision::tf32, 0.1f) == 0.1f);
}

TEST_CASE("inference: rounding to int8") {
  CHECK(quantised(0.5f) == 0);
  CHECK(quantised(1.5f) == 2);
  CHECK(quantised(-3.5f) == -4);
  CHECK(quantised(126.7f) == 127);
  CHECK(quantised(1e9f) == 127);
  CHECK(quantised(-1e9f) == -128);
  CHECK(quantised(-128.4f) == -128);
  CHECK(quantised(std::numeric_limits<float>::quiet_NaN()) == 0);
}

// ---- The others ---------------------------------------------------------------------------------

TEST_CASE("inference: images become what the first convolution reads") {
  const auto format = GENERATE(Format::nchw, Format::nhwc);
  const auto input_format = GENERATE(Format::nchw, Format::nhwc);
  const auto precision = GENERATE(Precision::fp32, Precision::fp16);
  const Extents extents{3, 3, 5, 4};
  const penstock::Stream stream;
  const auto plans = make_inference_plans({.precision = precision, .format = format});
  const auto operations = plans->make_operations();
  ImageInput input{extents, input_format};
  input.factor = {0.01f, 0.02f, 0.03f, 0};
  input.offset = {-1, 0.5f, 2, 0};
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < extents.count(); ++i)
    bytes.push_back(static_cast<std::uint8_t>(mix(static_cast<std::uint64_t>(i))));
  DeviceArray<std::uint8_t> device_bytes(extents.count());
  device_bytes.set(bytes, stream.get());
  DeviceArray<float> device_floats(extents.count()), x(extents.count()), same(extents.count());
  device_floats.set({bytes.begin(), bytes.end()}, stream.get());
  operations->convert(input, device_bytes.data(), x.data(), stream.get());
  operations->convert(input, device_floats.data(), same.data(), stream.get());
  const auto place = [&](Format of, std::int64_t n, std::int64_t c, std::int64_t pixel) {
    return size(of == Format::nchw ? (n * 3 + c) * 20 + pixel : (n * 20 + pixel) * 3 + c);
  };
  const std::vector<float> values = x.get(stream.get());
  CHECK(values == same.get(stream.get()));
  for (std::int64_t n = 0; n < extents.n; ++n)
    for (std::int64_t c = 0; c < 3; ++c)
      for (std::int64_t pixel = 0; pixel < 20; ++pixel) {
        const double wanted =
            bytes[place(input_format, n, c, pixel)] * static_cast<double>(input.factor[size(c)]) +
            static_cast<double>(input.offset[size(c)]);
        const auto got = static_cast<double>(values[place(format, n, c, pixel)]);
        CHECK(std::abs(got - wanted) <= (precision == Precision::fp16 ? 5e-3 : 1e-6));
        CHECK(got == nearest(precision, got));
      }
}

TEST_CASE("inference: pooling") {
  const auto precision = GENERATE(Precision::fp32, Precision::int8);
  const bool int8 = precision == Precision::int8;
  const PoolShape shape{{2, 5, 7, 6}};
  const penstock::Stream stream;
  const auto plans = make_inference_plans({.precision = precision, .format = Format::nhwc});
  const auto operations = plans->make_operations();
  std::vector<double> x = random_values(1, shape.in.count(), 90, -30);
  for (double& value : x) value = std::nearbyint(value);  // many are negative: padding is no zero
  const Extents out = shape.out();
  const Stored device_x(precision, transposed(x, 2, 5, 42), stream.get());
  const Stored y(precision, std::vector<double>(size(out.count())), stream.get());
  const DeviceArray<float> means(10);
  operations->max_pool(shape, precision, device_x.data(), y.data(), stream.get());
  operations->average_pool(shape.in, precision, device_x.data(), int8 ? 0.5f : 1.0f, means.data(),
                           stream.get());
  const std::vector<double> pooled = transposed(y.get(), 2, out.h * out.w, 5);
  const std::vector<float> averages = means.get(stream.get());
  for (std::int64_t plane = 0; plane < 10; ++plane) {
    double sum = 0;
    for (std::int64_t i = 0; i < 42; ++i) sum += x[size(plane * 42 + i)];
    CHECK(std::abs(static_cast<double>(averages[size(plane)]) - (int8 ? 0.5 : 1.0) * sum / 42) <=
          (int8 ? 0.02 : 1e-4));
    for (std::int64_t h = 0; h < out.h; ++h)
      for (std::int64_t w = 0; w < out.w; ++w) {
        double most = -1e9;
        for (std::int64_t row = std::max<std::int64_t>(0, 2 * h - 1);
             row < std::min<std::int64_t>(7, 2 * h + 2); ++row)
          for (std::int64_t column = std::max<std::int64_t>(0, 2 * w - 1);
               column < std::min<std::int64_t>(6, 2 * w + 2); ++column)
            most = std::max(most, x[size(plane * 42 + row * 6 + column)]);
        CHECK(pooled[size((plane * out.h + h) * out.w + w)] == most);
      }
  }
}

TEST_CASE("inference: the last layer") {
  const penstock::Stream stream;
  const auto plans = make_inference_plans({});
  const auto operations = plans->make_operations();
  constexpr std::int64_t n = 3, features = 37, classes = 11;
  const std::vector<double> x = random_values(1, n * features), bias = random_values(3, classes),
                            weights = random_values(2, classes * features);
  const DeviceArray<float> device_x = floats_on_device(x, stream.get()),
                           device_weights = floats_on_device(weights, stream.get()),
                           device_bias = floats_on_device(bias, stream.get()), logits(n * classes);
  operations->linear(n, features, classes, device_x.data(), device_weights.data(),
                     device_bias.data(), logits.data(), stream.get());
  const std::vector<float> values = logits.get(stream.get());
  for (std::int64_t i = 0; i < n * classes; ++i) {
    double sum = bias[size(i % classes)];
    for (std::int64_t j = 0; j < features; ++j)
      sum += x[size(i / classes * features + j)] * weights[size(i % classes * features + j)];
    CHECK(std::abs(static_cast<double>(values[size(i)]) - sum) <= 1e-5);
  }
}

}  // namespace
}  // namespace resnet::test
