// SPDX-License-Identifier: Apache-2.0

// Time-outs count the time that this process runs. A sleep is as good as a stop: it is never
// shorter than it says, so a deadline would have passed for certain; and a longer one counts as one
// step, too.

#include <penstock/detail/sync/time_out.hpp>

#include <chrono>
#include <thread>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using penstock::detail::TimeOut;

TEST_CASE("a time-out: what is longer than a step counts as one", "[deadline]") {
  TimeOut left(16ms);
  std::this_thread::sleep_for(40ms);
  for (int step = 1; step < 16; ++step) {
    INFO("step " << step);
    REQUIRE_FALSE(left.over());
    std::this_thread::sleep_until(left.next_step());
  }
  CHECK(left.over());
  CHECK(left.next_step() <= TimeOut::Clock::now());
}

TEST_CASE("a time-out: the next step is never behind its end", "[deadline]") {
  const auto before = TimeOut::Clock::now();
  const TimeOut short_one(std::chrono::milliseconds(1)), long_one(160s);
  const auto after = TimeOut::Clock::now();
  CHECK(short_one.next_step() >= before + 1ms);
  CHECK(short_one.next_step() <= after + 1ms);
  CHECK(long_one.next_step() >= before + 10s);
  CHECK(long_one.next_step() <= after + 10s);
}

TEST_CASE("a time-out: none at all, and for ever", "[deadline]") {
  TimeOut none(0ms);
  CHECK(none.over());
  for (const auto longest :
       {std::chrono::milliseconds::max(), std::chrono::milliseconds::max() - 1ms}) {
    TimeOut ever(longest);
    CHECK_FALSE(ever.over());
    CHECK(ever.next_step() == TimeOut::Clock::time_point::max());
  }
}
