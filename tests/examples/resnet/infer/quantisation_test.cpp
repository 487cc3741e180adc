// SPDX-License-Identifier: Apache-2.0

// Histograms and the thresholds of the three methods; weights and scales in int8.

#include "../../../../examples/resnet/infer/quantisation.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "../../../support/catch.hpp"
#include "../matchers.hpp"
#include "models.hpp"

namespace resnet::test {
namespace {

std::vector<float> normal(std::int64_t count, double deviation) {
  // The sum of twelve uniform numbers in [-1, 1) has a variance of 4.
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (std::uint64_t part = 0; part < 12; ++part)
      sum += uniform(part, static_cast<std::uint64_t>(i));
    values.push_back(static_cast<float>(sum / 2 * deviation));
  }
  return values;
}

TEST_CASE("histogram: percentile and largest, while values of every size come") {
  Histogram histogram;
  CHECK(histogram.threshold(CalibrationMethod::percentile) == 0);
  CHECK(histogram.threshold(CalibrationMethod::entropy) == 0);
  std::vector<float> values;
  for (int i = 1; i <= 10'000; ++i)
    values.push_back((i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(i) * 0.001f);
  for (const float value : values) histogram.add(std::vector{value});  // the bins grow many times
  CHECK(histogram.count() == 10'000);
  CHECK(histogram.largest() == 10);
  const float bin = 10.0f / 2048;  // at most
  CHECK(histogram.percentile(0.5) == Approx(5).margin(static_cast<double>(bin)));
  CHECK(histogram.percentile(0.99) == Approx(9.9).margin(static_cast<double>(bin)));
  CHECK(histogram.percentile(1) == 10);
  histogram.add(std::vector<float>(10'000));  // zeros are values too
  CHECK(histogram.percentile(0.75) == Approx(5).margin(static_cast<double>(bin)));
  CHECK(histogram.percentile(0.5) <= bin);
}

TEST_CASE("histogram: what is no number is told") {
  Histogram histogram;
  CHECK_THROWS_AS(histogram.add(std::vector{std::numeric_limits<float>::quiet_NaN()}),
                  std::invalid_argument);
  CHECK_THROWS_AS(histogram.add(std::vector{-std::numeric_limits<float>::infinity()}),
                  std::invalid_argument);
}

TEST_CASE("histogram: entropy cuts a few far values, and keeps a distribution that is even") {
  Histogram even;
  even.add(random_values<float>(1, 100'000, 3));
  CHECK(even.entropy_threshold() >= 2.9f);

  Histogram tailed;
  tailed.add(normal(200'000, 1));
  tailed.add(std::vector<float>{60, -70, 80});
  CHECK(tailed.largest() == 80);
  const float cut = tailed.entropy_threshold();
  CHECK(cut > 2);
  CHECK(cut < 20);
}

TEST_CASE("calibration: thresholds are of what the convolutions give") {
  Unfolded unfolded("resnet8", {4, 3, 16, 16});
  const Model model = unfolded.folded();
  Calibration calibration(model, 4);
  CHECK_THROWS_AS(calibration.thresholds(CalibrationMethod::largest), std::logic_error);
  calibration.add(4, unfolded.images);
  const std::vector<float> whole = calibration.thresholds(CalibrationMethod::largest);
  REQUIRE(whole.size() == model.convolutions.size());
  for (const float threshold : whole) CHECK(threshold > 0);

  // In parts that are not the batch: the same, and padding adds nothing.
  Calibration in_parts(model, 4);
  const std::int64_t image = 3 * 16 * 16;
  in_parts.add(3, std::span(unfolded.images).first(size(3 * image)));
  in_parts.add(1, std::span(unfolded.images).subspan(size(3 * image)));
  CHECK(in_parts.images() == 4);
  for (const auto method :
       {CalibrationMethod::largest, CalibrationMethod::percentile, CalibrationMethod::entropy})
    CHECK(in_parts.thresholds(method) == calibration.thresholds(method));
  CHECK_THROWS_AS(in_parts.add(4, std::span(unfolded.images).first(5)), std::invalid_argument);

  Model other = model;
  other.precision = Precision::fp16;
  CHECK_THROWS_AS(Calibration(other, 4), std::invalid_argument);
}

TEST_CASE("quantise: weights by channel, the largest is 127") {
  Unfolded unfolded("resnet8", {1, 3, 16, 16});
  const Model model = unfolded.folded();
  std::vector<float> thresholds(model.convolutions.size(), 2.54f);
  const Model quick = quantise(model, thresholds);
  CHECK(quick.precision == Precision::int8);
  CHECK(quick.format == Format::nhwc);
  CHECK(quick.convolutions[0].weights == model.convolutions[0].weights);
  CHECK(quick.convolutions[0].quantised.empty());
  for (std::size_t i = 1; i < model.convolutions.size(); ++i) {
    const ModelConvolution &one = quick.convolutions[i], &exact = model.convolutions[i];
    CHECK(one.output_scale == Approx(0.02));
    CHECK(one.weights.empty());
    REQUIRE(one.quantised.size() == exact.weights.size());
    const std::size_t filter = one.quantised.size() / one.weight_scale.size();
    for (std::size_t k = 0; k < one.weight_scale.size(); ++k) {
      int largest = 0;
      for (std::size_t j = k * filter; j < (k + 1) * filter; ++j) {
        largest = std::max(largest, std::abs(int{one.quantised[j]}));
        CHECK(std::abs(static_cast<float>(one.quantised[j]) * one.weight_scale[k] -
                       exact.weights[j]) <= 0.5001f * one.weight_scale[k]);
      }
      CHECK(largest == 127);
    }
  }
  CHECK_THROWS_AS(quantise(quick, thresholds), std::invalid_argument);
  thresholds.pop_back();
  CHECK_THROWS_AS(quantise(model, thresholds), std::invalid_argument);
}

TEST_CASE("int8: a network's logits are near those in fp32") {
  // Part of the largest logit: roundings add up over the layers.
  const auto [name, extents, part] = GENERATE(std::tuple("resnet8", Extents{4, 3, 32, 32}, 0.1),
                                              std::tuple("resnet50", Extents{2, 3, 40, 40}, 0.3));
  Unfolded unfolded(name, extents);
  const std::vector<float> wanted = unfolded.logits();
  const Model model = unfolded.folded();
  Calibration calibration(model, extents.n);
  calibration.add(extents.n, unfolded.images);
  for (const auto method :
       {CalibrationMethod::largest, CalibrationMethod::percentile, CalibrationMethod::entropy}) {
    const Model quick = quantise(model, calibration.thresholds(method));
    const std::vector<float> logits =
        run(quick, {.batches = {extents.n}}, unfolded.images, extents.n);
    INFO(name << ", method " << static_cast<int>(method));
    CHECK(largest_difference(logits, wanted) <= part * largest(wanted));
    CHECK(largest_difference(logits, wanted) > 0);
  }
}

}  // namespace
}  // namespace resnet::test
