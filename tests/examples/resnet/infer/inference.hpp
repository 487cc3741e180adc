// SPDX-License-Identifier: Apache-2.0
#pragma once

// A convolution for inference with its operands on the device, and what it must give, for tests:
//
//   Problem problem({shape, Precision::fp16, Precision::fp16, true, true}, Format::nhwc);
//   const std::vector<double> y = problem.run({.precision = Precision::fp16, .format =
//   problem.format}); const std::vector<double> truth = problem.truth();            // both in nchw

#include <cstdint>
#include <memory>
#include <penstock/cuda.hpp>
#include <vector>

#include "../../../../examples/resnet/model/device_array.hpp"
#include "../../../../examples/resnet/ops/inference.hpp"
#include "../../../../examples/resnet/ops/reference/rounding.hpp"
#include "../arrays.hpp"
#include "../random.hpp"

namespace resnet::test {

/// As `resnet_reference` has numbers in memory: floats, or int8.
class Stored {
 public:
  Stored(Precision precision, const std::vector<double>& values, cudaStream_t stream)
      : precision_(precision), stream_(stream) {
    if (precision == Precision::int8) {
      bytes_ = DeviceArray<std::int8_t>(static_cast<std::int64_t>(values.size()));
      bytes_.set({values.begin(), values.end()}, stream);
    } else {
      floats_ = DeviceArray<float>(static_cast<std::int64_t>(values.size()));
      floats_.set({values.begin(), values.end()}, stream);
    }
  }

  void* data() const {
    return precision_ == Precision::int8 ? static_cast<void*>(bytes_.data()) : floats_.data();
  }
  /// Waits for the stream.
  std::vector<double> get() const {
    if (precision_ == Precision::int8) {
      const std::vector<std::int8_t> values = bytes_.get(stream_);
      return {values.begin(), values.end()};
    }
    const std::vector<float> values = floats_.get(stream_);
    return {values.begin(), values.end()};
  }

 private:
  Precision precision_;
  cudaStream_t stream_;
  DeviceArray<std::int8_t> bytes_;
  DeviceArray<float> floats_;
};

inline DeviceArray<float> floats_on_device(const std::vector<double>& values, cudaStream_t stream) {
  DeviceArray<float> device(static_cast<std::int64_t>(values.size()));
  device.set({values.begin(), values.end()}, stream);
  return device;
}

/// Operands are random, in nchw, and exact in their precision.
struct Problem {
  Problem(const InferenceConvolution& convolution, Format in) : what(convolution), format(in) {
    const bool int8 = what.precision == Precision::int8,
               int8_result = what.result == Precision::int8;
    const auto exact = [](std::vector<double> values, Precision precision) {
      for (double& value : values)
        value = precision == Precision::int8
                    ? static_cast<double>(reference::quantised(static_cast<float>(value)))
                    : static_cast<double>(reference::rounded(precision, static_cast<float>(value)));
      return values;
    };
    const double depth =
        static_cast<double>(what.shape.in.c * what.shape.kernel * what.shape.kernel);
    x = exact(random_values(1, what.shape.in.count(), int8 ? 127 : 1), what.precision);
    weights = exact(random_values(2, what.shape.weights(), int8 ? 127 : 1), what.precision);
    bias = random_values(3, what.shape.k, int8_result ? 20 : 0.5);
    if (what.quantised()) scale = random_values(4, what.shape.k, int8 ? 5e-3 / depth : 30 / depth);
    if (!what.residual) return;
    residual =
        exact(random_values(5, what.shape.out().count(), int8_result ? 127 : 1), what.result);
    if (what.quantised()) residual_scale = 0.75;
  }

  /// By the definition: one loop for each sum, in double.
  std::vector<double> truth() const {
    const ConvolutionShape& s = what.shape;
    const Extents out = s.out();
    std::vector<double> y;
    for (std::int64_t at = 0; at < out.count(); ++at) {
      const std::int64_t n = at / (out.c * out.h * out.w), k = at / (out.h * out.w) % out.c;
      double value = sum(n, k, at / out.w % out.h, at % out.w);
      if (!scale.empty()) value *= static_cast<double>(static_cast<float>(scale[size(k)]));
      value += bias[size(k)];
      if (what.residual) value += residual_scale * residual[size(at)];
      y.push_back(what.relu && value < 0 ? 0 : value);
    }
    return y;
  }

  double sum(std::int64_t n, std::int64_t k, std::int64_t h, std::int64_t w) const {
    const ConvolutionShape& s = what.shape;
    double total = 0;
    for (std::int64_t c = 0; c < s.in.c; ++c)
      for (std::int64_t tap = 0; tap < s.kernel * s.kernel; ++tap) {
        const std::int64_t row = h * s.stride + tap / s.kernel - s.padding;
        const std::int64_t column = w * s.stride + tap % s.kernel - s.padding;
        if (row < 0 || row >= s.in.h || column < 0 || column >= s.in.w) continue;
        total += x[size(((n * s.in.c + c) * s.in.h + row) * s.in.w + column)] *
                 weights[size((k * s.in.c + c) * s.kernel * s.kernel + tap)];
      }
    return total;
  }

  std::vector<double> in_format(const std::vector<double>& values, const Extents& e) const {
    return format == Format::nchw || values.empty() ? values
                                                    : transposed(values, e.n, e.c, e.h * e.w);
  }

  std::vector<double> run(Settings settings) const {
    settings.format = format;
    const auto plans = make_inference_plans(settings);
    plans->prepare(what);
    const auto operations = plans->make_operations();
    const penstock::Stream stream;
    const ConvolutionShape& s = what.shape;
    const Stored device_x(what.precision, in_format(x, s.in), stream.get());
    const Stored device_weights(
        what.precision, in_format(weights, {s.k, s.in.c, s.kernel, s.kernel}), stream.get());
    const Stored device_residual(what.result, in_format(residual, s.out()), stream.get());
    const Stored y(what.result, std::vector<double>(size(s.out().count()), 99), stream.get());
    const DeviceArray<float> biases = floats_on_device(bias, stream.get()),
                             scales = floats_on_device(scale, stream.get()),
                             of_residual = floats_on_device({residual_scale}, stream.get());
    operations->convolution(what, device_x.data(),
                            {.weights = device_weights.data(),
                             .bias = biases.data(),
                             .scale = scale.empty() ? nullptr : scales.data(),
                             .residual_scale = what.quantised() ? of_residual.data() : nullptr},
                            what.residual ? device_residual.data() : nullptr, y.data(),
                            stream.get());
    const std::vector<double> values = y.get();
    const Extents out = s.out();
    return format == Format::nchw || values.empty()
               ? values
               : transposed(values, out.n, out.h * out.w, out.c);
  }

  InferenceConvolution what;
  Format format;
  std::vector<double> x, weights, bias, scale, residual;
  double residual_scale = 1;
};

}  // namespace resnet::test
