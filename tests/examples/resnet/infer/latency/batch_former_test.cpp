// SPDX-License-Identifier: Apache-2.0

// BatchFormer, at times that the test makes up: rules one by one, then many random loads on random
// numbers of contexts, against a model of the rules.

#include "../../../../../examples/resnet/infer/latency/batch_former.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "support/catch.hpp"

namespace resnet::latency {
namespace {

using std::chrono::milliseconds;
using Batch = std::vector<int>;

Clock::time_point at(std::int64_t ms) {
  return Clock::time_point(milliseconds(ms));
}

TEST_CASE("batch former: a batch is closed when it is full", "[resnet][latency]") {
  BatchFormer<int> former(3, milliseconds(100));
  Batch batch{9};
  CHECK_FALSE(former.due());
  CHECK_FALSE(former.close(at(1000), batch));
  for (int i = 0; i < 7; ++i) {
    former.add(i, at(i));
    CHECK(former.due() == (i < 2 ? at(100) : at(0)));
  }
  CHECK(former.close(at(6), batch));
  CHECK(batch == Batch{0, 1, 2});
  CHECK(former.due() == at(3));
  CHECK(former.close(at(6), batch));
  CHECK(batch == Batch{3, 4, 5});
  CHECK(former.due() == at(106));
  CHECK_FALSE(former.close(at(105), batch));
  CHECK(batch == Batch{3, 4, 5});
  CHECK(former.waiting() == 1);
}

TEST_CASE("batch former: a batch is closed when its oldest request has waited",
          "[resnet][latency]") {
  BatchFormer<int> former(8, milliseconds(10));
  Batch batch;
  former.add(1, at(0));
  former.add(2, at(9));
  CHECK_FALSE(former.close(at(9), batch));
  CHECK(former.close(at(10), batch));
  CHECK(batch == Batch{1, 2});
  former.add(3, at(11));
  CHECK(former.due() == at(21));
}

TEST_CASE("batch former: without a deadline nothing waits; at the end nothing waits any more",
          "[resnet][latency]") {
  Batch batch;
  BatchFormer<int> at_once(8, milliseconds(0));
  at_once.add(1, at(5));
  CHECK(at_once.close(at(5), batch));

  BatchFormer<int> former(8, milliseconds(1000));
  former.add(2, at(5));
  CHECK_FALSE(former.close(at(6), batch));
  former.finish();
  CHECK(former.finished());
  CHECK(former.close(at(6), batch));
  CHECK(batch == Batch{2});
  CHECK_FALSE(former.close(at(2000), batch));
  CHECK_FALSE(former.due());
}

TEST_CASE("batch former: mistakes", "[resnet][latency]") {
  CHECK_THROWS_AS(BatchFormer<int>(0, milliseconds(1)), std::invalid_argument);
  CHECK_THROWS_AS(BatchFormer<int>(1, milliseconds(-1)), std::invalid_argument);
}

/// A random load, a millisecond at a time. Contexts that are free take what can be closed.
class Simulation {
 public:
  explicit Simulation(std::uint64_t seed)
      : random_(seed),
        max_batch_(1 + below(8)),
        deadline_(static_cast<std::int64_t>(below(20))),
        gap_(1 + below(6)),
        busy_until_(1 + below(4)),
        former_(max_batch_, milliseconds(deadline_)) {}

  void run() {
    for (std::int64_t now = 0; now < 400 || !waiting_.empty(); ++now) {
      if (now < 400) arrive(now);
      if (now == 400) former_.finish();
      finished_ = now >= 400;
      for (std::int64_t& until : busy_until_)
        while (until <= now && take(now))
          until = now + static_cast<std::int64_t>(below(12));  // 0: free again at once
      check_nothing_was_left(now);
    }
    CHECK(next_expected_ == next_);
  }

 private:
  struct Waiting {
    int request;
    std::int64_t arrival;
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  void arrive(std::int64_t now) {
    if (below(gap_) != 0) return;
    for (std::uint64_t burst = 1 + below(1 + below(12)); burst > 0; --burst) {
      waiting_.push_back({next_, now});
      former_.add(next_++, at(now));
    }
  }

  bool due(std::int64_t now) const {
    return !waiting_.empty() && (finished_ || waiting_.size() >= max_batch_ ||
                                 now - waiting_.front().arrival >= deadline_);
  }

  bool take(std::int64_t now) {
    const bool wanted = due(now);
    const bool closed = former_.close(at(now), batch_);
    REQUIRE(closed == wanted);
    if (!closed) return false;
    REQUIRE(batch_.size() == std::min(max_batch_, waiting_.size()));
    for (const int request : batch_) {
      REQUIRE(request == next_expected_++);  // each once, in order
      waiting_.pop_front();
    }
    return true;
  }

  /// No request waits longer than the deadline, unless all contexts are busy.
  void check_nothing_was_left(std::int64_t now) const {
    const bool idle = std::any_of(busy_until_.begin(), busy_until_.end(),
                                  [&](std::int64_t until) { return until <= now; });
    REQUIRE_FALSE((idle && due(now)));
    REQUIRE(former_.waiting() == waiting_.size());
  }

  std::mt19937_64 random_;
  const std::size_t max_batch_;
  const std::int64_t deadline_;
  const std::uint64_t gap_;
  std::vector<std::int64_t> busy_until_;  // of each context
  BatchFormer<int> former_;
  std::deque<Waiting> waiting_;
  Batch batch_;
  int next_ = 0, next_expected_ = 0;
  bool finished_ = false;
};

TEST_CASE("batch former: every request once, in order, in a batch that is not too large, in time",
          "[resnet][latency]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Simulation(seed).run();
  }
}

}  // namespace
}  // namespace resnet::latency
