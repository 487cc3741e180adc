// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/batch_pace.hpp>

#include <chrono>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"

namespace penstock {
namespace {

using detail::BatchPace;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr BatchPace::Time kBegin{seconds(1000)};
constexpr BatchPace::Time kNotYet{};

/// Begins the batches first to end - 1, 10 ms after each other.
BatchPace::Time steady(BatchPace& pace, std::uint64_t first, std::uint64_t end,
                       BatchPace::Time now) {
  for (std::uint64_t i = first; i < end; ++i) pace.begun(i, now += milliseconds(10));
  return now;
}

TEST_CASE("BatchPace: a batch is due by the pace of the last ones, once there were enough",
          "[batch_pace]") {
  BatchPace pace;
  CHECK(pace.due(3) == kNotYet);
  BatchPace::Time now = steady(pace, 40, 56, kBegin);
  CHECK(pace.due(60) == kNotYet);  // 16 batches, 15 times between two of them
  for (std::uint64_t last = 56; last < 200; ++last) {
    now = steady(pace, last, last + 1, now);
    CHECK(pace.due(last + 1) == now + milliseconds(10));
    CHECK(pace.due(last + 8) == now + milliseconds(80));
  }
  CHECK(pace.due(199) == now);  // is begun
  CHECK(pace.due(0) == now);
}

TEST_CASE("BatchPace: batches that are begun in bursts have their mean pace", "[batch_pace]") {
  BatchPace pace;
  BatchPace::Time now = kBegin;
  for (std::uint64_t i = 0; i < 400; ++i) {
    if (i % 8 == 0) now += milliseconds(80);
    pace.begun(i, now);
  }
  CHECK(pace.due(400 + 9) == now + milliseconds(100));
}

TEST_CASE("BatchPace: one pause does not count, and a new pace does soon", "[batch_pace]") {
  BatchPace pace;
  BatchPace::Time now = steady(pace, 0, 40, kBegin);
  now += seconds(60);
  for (std::uint64_t i = 40; i < 100; ++i) {
    now = steady(pace, i, i + 1, now);
    CHECK(pace.due(i + 2) == now + milliseconds(20));
  }
  for (std::uint64_t i = 100; i < 132; ++i) pace.begun(i, now += milliseconds(30));
  CHECK(pace.due(132) == now + milliseconds(30));
  now = steady(pace, 132, 132 + 16, now);
  CHECK(pace.due(149) == now + milliseconds(20));
}

TEST_CASE("BatchPace: batches may be left out, or told too late", "[batch_pace]") {
  BatchPace pace;
  BatchPace::Time now = kBegin;
  for (std::uint64_t i = 0; i < 100; ++i) {
    now += milliseconds(30);
    pace.begun(3 * i, now);
    pace.begun(3 * i, now + milliseconds(1));
    if (i > 0) pace.begun(3 * i - 1, now + milliseconds(2));
  }
  CHECK(pace.due(3 * 99 + 5) == now + milliseconds(50));
}

TEST_CASE("BatchPace: behind a restart nothing is known", "[batch_pace]") {
  BatchPace pace;
  const BatchPace::Time now = steady(pace, 100, 150, kBegin);
  pace.restart();
  CHECK(pace.due(200) == kNotYet);
  CHECK(steady(pace, 3, 19, now) > now);
  CHECK(pace.due(200) == kNotYet);
}

TEST_CASE("BatchPace: a batch of any number has a time", "[batch_pace]") {
  BatchPace pace;
  const BatchPace::Time now = steady(pace, 0, 100, kBegin);
  CHECK(pace.due(std::uint64_t{1} << 62) == now + milliseconds(10) * (1 << 20));
  CHECK(pace.due(std::numeric_limits<std::uint64_t>::max()) == now);
}

}  // namespace
}  // namespace penstock
