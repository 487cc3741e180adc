// SPDX-License-Identifier: Apache-2.0
#pragma once

// A model in int8: weights by channel, activations by tensor, all of them symmetric (0 is 0).
//
//   Calibration calibration(model, batch);                       // of a model in fp32
//   calibration.add(images, pixels);                   // some hundreds of training images
//   const Model quick = quantise(model, calibration.thresholds(CalibrationMethod::entropy));
//
// Weights: the largest absolute value of a channel becomes 127. Activations: what is beyond a
// threshold is cut to it, and the threshold becomes 127. Three ways to choose it:
//
//   entropy     the threshold whose 128 levels lose the least information: the smallest
//               Kullback-Leibler divergence of the values' distribution from the quantised one (the
//               method of S. Migacz, "8-bit Inference with TensorRT", GTC 2017)
//   percentile  99.99 % of the absolute values are below it
//   largest     the largest absolute value: nothing is cut
//
// The first convolution's operands, the average and the last layer stay in fp16: they are a small
// part of the work, and the ones that quantisation harms most.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model.hpp"

namespace resnet {

enum class CalibrationMethod { entropy, percentile, largest };

/// Of absolute values. Zeros are counted apart: they are exact at any scale.
class Histogram {
 public:
  Histogram();

  /// Values that are not finite are an error: std::invalid_argument.
  void add(std::span<const float> values);

  std::uint64_t count() const { return zeros_ + others_; }
  float largest() const { return largest_; }
  /// `part` of the values are not above it, up to a bin's width.
  float percentile(double part) const;
  /// Of quantisation to `levels` levels above 0.
  float entropy_threshold(int levels = 128) const;
  float threshold(CalibrationMethod method) const;

 private:
  void grow_to(float value);

  float width_ = 0;  ///< of a bin; 0: nothing but zeros so far
  float largest_ = 0;
  std::uint64_t zeros_ = 0, others_ = 0;
  std::vector<std::uint64_t> bins_;
};

/// Collects what the convolutions of a model in fp32 give. Blocks.
class Calibration {
 public:
  /// `batch`: images at a time, at most. Throws std::invalid_argument unless the model is in fp32.
  Calibration(const Model& model, std::int64_t batch);
  ~Calibration();
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  /// `pixels`: normalised, sample x channel x height x width, on the host.
  void add(std::int64_t samples, std::span<const float> pixels);
  std::uint64_t images() const { return images_; }

  /// One for each convolution, in the model's order.
  std::vector<float> thresholds(CalibrationMethod method) const;

 private:
  struct Run;
  std::unique_ptr<Run> run_;
  std::vector<Histogram> histograms_;
  std::uint64_t images_ = 0;
};

/// In nhwc. Throws std::invalid_argument unless `model` is in floats, with a threshold for each
/// convolution.
Model quantise(const Model& model, const std::vector<float>& thresholds);

}  // namespace resnet
