// SPDX-License-Identifier: Apache-2.0

// Sets of moments, against sets of single moments.

#include "intervals.hpp"

#include <bitset>
#include <random>

#include "support/catch.hpp"

using namespace penstock::trace::detail;
using penstock::trace::Time;

namespace {

using Moments = std::bitset<64>;

Moments moments_of(const std::vector<Interval>& intervals) {
  Moments moments;
  for (const Interval& interval : intervals)
    for (Time at = interval.begin; at < interval.end; ++at)
      moments.set(static_cast<std::size_t>(at));
  return moments;
}

/// By begin, none empty, none touching the next: there is one way to write a set down.
Intervals written_down(const Moments& moments) {
  Intervals intervals;
  for (std::size_t at = 0; at < moments.size(); ++at) {
    if (!moments[at]) continue;
    const auto time = static_cast<Time>(at);
    if (intervals.empty() || intervals.back().end != time) intervals.push_back({time, time});
    intervals.back().end = time + 1;
  }
  return intervals;
}

std::vector<Interval> any_intervals(std::mt19937& random) {
  const auto below = [&](int end) {
    return std::uniform_int_distribution<int>(0, end - 1)(random);
  };
  std::vector<Interval> intervals(static_cast<std::size_t>(below(12)));
  for (Interval& interval : intervals) {
    interval.begin = below(60);
    interval.end = std::min<Time>(64, interval.begin + below(10));
  }
  return intervals;
}

}  // namespace

TEST_CASE("Unions, intersections and differences hold the moments that they should") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<Interval> some = any_intervals(random), others = any_intervals(random);
    const Moments a = moments_of(some), b = moments_of(others);
    REQUIRE((united(some) == written_down(a)));
    REQUIRE((united(others) == written_down(b)));
    REQUIRE((intersection(united(some), united(others)) == written_down(a & b)));
    REQUIRE((difference(united(some), united(others)) == written_down(a & ~b)));
    REQUIRE(length(united(some)) == static_cast<Time>(a.count()));
    for (Time at = 0; at < 64; ++at)
      REQUIRE(contains(united(some), at) == a[static_cast<std::size_t>(at)]);
  }
}

TEST_CASE("Sets of no moments") {
  CHECK(united({}).empty());
  CHECK(united({{5, 5}, {7, 6}}).empty());
  CHECK(length({}) == 0);
  CHECK_FALSE(contains({}, 0));
  CHECK(intersection({}, {{0, 5}}).empty());
  CHECK(difference({}, {{0, 5}}).empty());
}
