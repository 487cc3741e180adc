// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "quantisation.hpp"

namespace resnet {
namespace {

constexpr std::size_t bin_count = 4096;
constexpr double percentile_part = 0.9999;

/// The bins [0, used) as `levels` levels have them: a level's values are spread evenly over those
/// of its bins that are not empty.
std::vector<double> quantised_distribution(std::span<const std::uint64_t> bins,
                                           std::size_t levels) {
  std::vector<double> result(bins.size());
  for (std::size_t level = 0; level < levels; ++level) {
    const std::size_t first = level * bins.size() / levels;
    const std::size_t last = (level + 1) * bins.size() / levels;
    double sum = 0, filled = 0;
    for (std::size_t i = first; i < last; ++i)
      if (bins[i] != 0) sum += static_cast<double>(bins[i]), ++filled;
    for (std::size_t i = first; i < last; ++i)
      if (bins[i] != 0) result[i] = sum / filled;
  }
  return result;
}

/// Of `clipped`, the distribution with all that is beyond in its last bin, from the quantised one.
/// Where the latter has nothing, it is taken for a millionth of a value.
double divergence(std::span<const double> clipped, std::span<const double> quantised) {
  double clipped_sum = 0, quantised_sum = 0, result = 0;
  for (const double value : clipped) clipped_sum += value;
  for (const double value : quantised) quantised_sum += value;
  for (std::size_t i = 0; i < clipped.size(); ++i) {
    if (clipped[i] == 0) continue;
    const double p = clipped[i] / clipped_sum;
    const double q = std::max(quantised[i], 1e-6) / std::max(quantised_sum, 1e-6);
    result += p * std::log(p / q);
  }
  return result;
}

}  // namespace

Histogram::Histogram() : bins_(bin_count) {}

/// Doubles the bins' width until there is a bin for `value`.
void Histogram::grow_to(float value) {
  if (width_ == 0) width_ = std::max(2 * value / bin_count, std::numeric_limits<float>::min());
  while (value >= width_ * bin_count) {
    for (std::size_t i = 0; i < bin_count / 2; ++i) bins_[i] = bins_[2 * i] + bins_[2 * i + 1];
    std::fill(bins_.begin() + bin_count / 2, bins_.end(), 0);
    width_ *= 2;
  }
}

void Histogram::add(std::span<const float> values) {
  for (const float value : values) {
    const float size = std::fabs(value);
    if (!std::isfinite(size)) throw std::invalid_argument("an activation is no finite number");
    if (size == 0) {
      ++zeros_;
      continue;
    }
    if (size >= width_ * bin_count) grow_to(size);
    ++bins_[static_cast<std::size_t>(size / width_)];
    ++others_;
    largest_ = std::max(largest_, size);
  }
}

float Histogram::percentile(double part) const {
  const double wanted = part * static_cast<double>(count());
  auto seen = static_cast<double>(zeros_);
  for (std::size_t i = 0; i < bin_count; ++i) {
    seen += static_cast<double>(bins_[i]);
    if (seen >= wanted && others_ != 0)
      return std::min(largest_, width_ * static_cast<float>(i + 1));
  }
  return largest_;
}

float Histogram::entropy_threshold(int levels) const {
  const auto least = static_cast<std::size_t>(levels);
  std::size_t used = bin_count;
  while (used > 0 && bins_[used - 1] == 0) --used;
  if (used <= least) return largest_;
  double best = std::numeric_limits<double>::infinity();
  std::size_t best_bins = used;
  double beyond = static_cast<double>(others_);
  for (std::size_t i = 0; i < least; ++i) beyond -= static_cast<double>(bins_[i]);
  for (std::size_t kept = least; kept <= used; ++kept) {
    const std::span<const std::uint64_t> bins(bins_.data(), kept);
    std::vector<double> clipped(bins.begin(), bins.end());
    clipped.back() += beyond;
    const double lost = divergence(clipped, quantised_distribution(bins, least));
    if (lost < best) best = lost, best_bins = kept;
    if (kept < used) beyond -= static_cast<double>(bins_[kept]);
  }
  return std::min(largest_, width_ * static_cast<float>(best_bins));
}

float Histogram::threshold(CalibrationMethod method) const {
  switch (method) {
    case CalibrationMethod::entropy:
      return entropy_threshold();
    case CalibrationMethod::percentile:
      return percentile(percentile_part);
    case CalibrationMethod::largest:
      return largest();
  }
  return largest();
}

}  // namespace resnet
