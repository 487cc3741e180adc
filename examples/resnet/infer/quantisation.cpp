// SPDX-License-Identifier: Apache-2.0
#include "quantisation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <penstock/cuda.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "network.hpp"

namespace resnet {
namespace {

constexpr float most = 127;

/// The value of 1 when `largest` becomes 127. Nothing but zeros, or what is as good as none: any
/// will do. A scale of few digits would make more than 127 of `largest`.
float scale_of(float largest) {
  const float scale = largest / most;
  return scale >= std::numeric_limits<float>::min() ? scale : 1;
}

/// Of one channel's weights: into `quantised`.
float quantise_channel(std::span<const float> weights, std::vector<std::int8_t>& quantised) {
  float largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(weight));
  const float scale = scale_of(largest);
  for (const float weight : weights)
    quantised.push_back(static_cast<std::int8_t>(std::nearbyint(weight / scale)));
  return scale;
}

}  // namespace

// ---- Calibration --------------------------------------------------------------------------------

struct Calibration::Run {
  Run(const Model& model, std::int64_t batch)
      : network(model, {.batches = {batch}}, stream.get()),
        context(network),
        pixels(network.image().count()),
        logits(batch * network.classes()) {}

  penstock::Stream stream;
  InferenceNetwork network;
  InferenceContext context;
  DeviceArray<float> pixels, logits;
};

Calibration::Calibration(const Model& model, std::int64_t batch)
    : histograms_(model.convolutions.size()) {
  if (model.precision != Precision::fp32)
    throw std::invalid_argument("calibration takes a model in fp32");
  run_ = std::make_unique<Run>(model, batch);
}

Calibration::~Calibration() = default;

void Calibration::add(std::int64_t samples, std::span<const float> pixels) {
  const cudaStream_t stream = run_->stream.get();
  Extents images = run_->network.image();
  images.n = samples;
  if (samples > run_->network.image().n ||
      pixels.size() != static_cast<std::size_t>(images.count()))
    throw std::invalid_argument("a batch of calibration images of another size");
  examples::check(cudaMemcpyAsync(run_->pixels.data(), pixels.data(), pixels.size_bytes(),
                                  cudaMemcpyHostToDevice, stream),
                  "cudaMemcpyAsync");
  std::vector<float> values;
  run_->context.set_observer([&](std::size_t place, const void* y, const Extents& extents) {
    // Of these images alone: padding is no image.
    values.resize(static_cast<std::size_t>(extents.count() / extents.n * samples));
    examples::check(cudaMemcpyAsync(values.data(), y, values.size() * sizeof(float),
                                    cudaMemcpyDeviceToHost, stream),
                    "cudaMemcpyAsync");
    examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    histograms_[place].add(values);
  });
  run_->context.run({images}, run_->pixels.data(), run_->logits.data(), stream);
  examples::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  run_->context.set_observer({});
  images_ += static_cast<std::uint64_t>(samples);
}

std::vector<float> Calibration::thresholds(CalibrationMethod method) const {
  if (images_ == 0) throw std::logic_error("thresholds without calibration images");
  std::vector<float> all;
  for (const Histogram& histogram : histograms_) all.push_back(histogram.threshold(method));
  return all;
}

// ---- The model in int8 --------------------------------------------------------------------------

Model quantise(const Model& model, const std::vector<float>& thresholds) {
  if (model.precision == Precision::int8 || thresholds.size() != model.convolutions.size())
    throw std::invalid_argument(
        "quantisation takes a model in floats, and a threshold for each "
        "of its convolutions");
  Model result = model;
  result.precision = Precision::int8;
  result.format = Format::nhwc;
  for (std::size_t i = 0; i < result.convolutions.size(); ++i) {
    ModelConvolution& convolution = result.convolutions[i];
    convolution.output_scale = scale_of(thresholds[i]);
    if (i == 0) continue;  // its operands stay in floats
    const std::vector<float> weights = std::exchange(convolution.weights, {});
    const std::size_t filter = weights.size() / convolution.bias.size();
    for (std::size_t k = 0; k < convolution.bias.size(); ++k)
      convolution.weight_scale.push_back(
          quantise_channel(std::span(weights).subspan(k * filter, filter), convolution.quantised));
  }
  return result;
}

}  // namespace resnet
