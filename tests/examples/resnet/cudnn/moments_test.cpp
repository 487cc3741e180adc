// SPDX-License-Identifier: Apache-2.0

// The arithmetic of batch norm's kernels, on the host: mean and squared distances of parts come
// together to those of the whole, also where sums of squares in float would have no digit left.

#include "../../../../examples/resnet/ops/cudnn/moments.hpp"

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "../random.hpp"
#include "support/catch.hpp"

namespace resnet::test {
namespace {

using cudnn::merged;
using cudnn::Moments;
using cudnn::ShiftedSums;

using Floats = std::vector<float>;

/// 1000 numbers whose mean is 1,700 deviations away from 0 at `mean` 1000.
Floats numbers(double mean) {
  return random_values<float>(1, 1000, 1, mean);
}

/// Of values[from, to), as a thread has them.
Moments moments(const Floats& values, std::size_t from, std::size_t to) {
  ShiftedSums sums;
  if (from < to) sums.shift = values[from];
  for (std::size_t i = from; i < to; ++i) sums.add(values[i]);
  return sums.moments(static_cast<float>(to - from));
}

/// Within roundings in float: 900 terms are added up, and those of the means cost the distances
/// digits.
void check_moments(const Moments& of, const Floats& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  const double size = 1 + std::abs(mean);
  CHECK(of.count == static_cast<float>(count));
  CHECK(std::abs(static_cast<double>(of.mean) - mean) <= 0x1p-22 * size);
  CHECK(std::abs(static_cast<double>(of.squares) - squares) <= 0x1p-22 * (16 + size) * squares);
}

TEST_CASE("moments of parts combine to those of the whole", "[resnet]") {
  const Floats values = numbers(GENERATE(0.0, 1000.0, -5000.0));
  Moments all{};
  for (const auto& [from, to] : {std::pair{0, 0}, {0, 1}, {1, 8}, {8, 8}, {8, 108}, {108, 1000}})
    all.combine(moments(values, static_cast<std::size_t>(from), static_cast<std::size_t>(to)));
  check_moments(all, values);
}

TEST_CASE("moments of ranks merge to those of all their elements", "[resnet]") {
  const Floats values = numbers(GENERATE(0.0, 1000.0));
  const int ranks = GENERATE(2, 4, 1000);
  const std::size_t part = values.size() / static_cast<std::size_t>(ranks);
  // Of two channels the first: what the second has is not to be read.
  Floats all;
  for (std::size_t from = 0; from < values.size(); from += part) {
    const Moments of = moments(values, from, from + part);
    const float none = std::nanf("");
    all.insert(all.end(), {of.mean, none, of.squares, none});
  }
  check_moments(merged(ranks, all.data(), 2, 0, static_cast<double>(part)), values);
}

TEST_CASE("moments of one rank stay what they are", "[resnet]") {
  const Floats values = numbers(1000);
  const Moments of = moments(values, 0, values.size());
  const Moments same = merged(1, Floats{of.mean, of.squares}.data(), 1, 0, 1000);
  CHECK(same.count == of.count);
  CHECK(same.mean == of.mean);
  CHECK(same.squares == of.squares);
}

TEST_CASE("moments that are not finite are not finite together", "[resnet]") {
  const float infinity = INFINITY;
  const Moments of = merged(2, Floats{1, 1, infinity, 1}.data(), 1, 0, 8);
  CHECK_FALSE(std::isfinite(of.mean));
  CHECK_FALSE(std::isfinite(of.squares));
}

}  // namespace
}  // namespace resnet::test
