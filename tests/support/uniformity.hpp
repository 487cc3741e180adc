// SPDX-License-Identifier: Apache-2.0
#pragma once

// How far counts are from what chance would make of them: a chi-square statistic on the scale of
// standard deviations. Of good orders, one in 30000 scores above 4.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/sanitized.hpp"

namespace penstock::test {

/// Returns how many orders a test draws: `count`, but a fifth of it under a sanitizer, which looks
/// for mistakes that the first orders show as well.
constexpr std::uint64_t draws(std::uint64_t count) {
  return PENSTOCK_TEST_SANITIZED ? count / 5 : count;
}

inline double score(double chi_square, double degrees) {
  // Wilson and Hilferty: the cube root is nearly normal.
  const double spread = 2 / (9 * degrees);
  return (std::cbrt(chi_square / degrees) - (1 - spread)) / std::sqrt(spread);
}

/// The sum over `counts`, each of which should be `expected`.
inline double chi_square(const std::vector<double>& counts, double expected) {
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

/// Of `counts`, which should all be about equal, and of the other `cells`, which were never hit.
inline double uniformity(const std::vector<double>& counts, std::size_t cells) {
  const double expected =
      std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(cells);
  const double never_hit = static_cast<double>(cells - counts.size()) * expected;
  return score(chi_square(counts, expected) + never_hit, static_cast<double>(cells - 1));
}
inline double uniformity(const std::vector<double>& counts) {
  return uniformity(counts, counts.size());
}

}  // namespace penstock::test
