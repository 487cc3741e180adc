// SPDX-License-Identifier: Apache-2.0

#include "resize_taps.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::inline PENSTOCK_ABI::images {

void ResizeTaps::find(const ResizeAxis& axis, std::int32_t multiple, bool reversed) {
  const auto outputs = static_cast<std::size_t>(axis.outputs);
  const double reach = std::max(axis.step, 1.0);
  first.resize(outputs);
  lengths_.resize(outputs);
  count = 0;
  begin = axis.end;
  end = axis.begin;
  const auto centre = [&](std::size_t output) {
    const std::size_t place = reversed ? outputs - 1 - output : output;
    return axis.origin + (static_cast<double>(place) + 0.5) * axis.step;
  };
  // Like Pillow and PyTorch, this selects the pixels whose centres are within reach.
  for (std::size_t output = 0; output < outputs; ++output) {
    const double low = centre(output) - reach + 0.5, high = centre(output) + reach + 0.5;
    const auto from = static_cast<std::int32_t>(std::max<double>(low, axis.begin));
    const auto to = static_cast<std::int32_t>(std::min<double>(high, axis.end));
    first[output] = from;
    lengths_[output] = to - from;
    begin = std::min(begin, from);
    end = std::max(end, to);
    count = std::max(count, to - from);
  }
  count = (count + multiple - 1) / multiple * multiple;

  shares_.resize(outputs * static_cast<std::size_t>(count));
  double largest = 0;
  for (std::size_t output = 0; output < outputs; ++output)
    largest = std::max(largest, weigh(output, centre(output), reach));
  bits = 22;
  while (bits > 1 && std::ldexp(largest, bits) > INT16_MAX - 1) --bits;
  weights.resize(shares_.size());
  for (std::size_t output = 0; output < outputs; ++output) {
    quantise(output);
    first[output] -= begin;
  }
}

/// Writes the output's shares, whose sum is 1. Returns the largest.
double ResizeTaps::weigh(std::size_t output, double centre, double reach) {
  double* const shares = &shares_[output * static_cast<std::size_t>(count)];
  double sum = 0, largest = 0;
  for (std::int32_t tap = 0; tap < lengths_[output]; ++tap) {
    const double distance = std::abs(first[output] + tap + 0.5 - centre);
    shares[tap] = std::max(1 - distance / reach, 0.0);
    sum += shares[tap];
    largest = std::max(largest, shares[tap]);
  }
  const double scale = 1 / sum;
  for (std::int32_t tap = 0; tap < lengths_[output]; ++tap) shares[tap] *= scale;
  return largest * scale;
}

/// Rounds the cumulative sums instead of the shares, so that the integers add up to 2^bits.
void ResizeTaps::quantise(std::size_t output) {
  const std::size_t at = output * static_cast<std::size_t>(count);
  const auto length = static_cast<std::size_t>(lengths_[output]);
  const double one = std::ldexp(1.0, bits);
  double sum = 0.5;  // 0.5 is for rounding
  std::int32_t before = 0;
  for (std::size_t tap = 0; tap < length; ++tap) {
    sum += shares_[at + tap] * one;
    const auto after = static_cast<std::int32_t>(sum);
    weights[at + tap] = static_cast<std::int16_t>(after - before);
    before = after;
  }
  std::fill(&weights[at + length], &weights[at] + count, std::int16_t{0});
}

}  // namespace penstock::images
