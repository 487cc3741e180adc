// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/record_ring.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include <penstock/detail/sync/index_stack.hpp>

#include "support/catch.hpp"

using penstock::detail::IndexStack;
using penstock::detail::RecordRing;

namespace {

/// A record is its index here, and has the number of its batch.
struct RingRecords {
  RingRecords(std::uint32_t count, bool ordered)
      : ring(count, ordered), free(count), numbers(count), in_use(0), most(count) {
    for (std::uint32_t i = 0; i < count; ++i) free.push(i);
  }

  /// Publishes each number that it claims, until none is left.
  void work() {
    while (ring.reserve()) {
      std::uint32_t record = IndexStack::kNone;
      while ((record = free.pop()) == IndexStack::kNone && !ring.closed())
        std::this_thread::yield();
      if (record == IndexStack::kNone) return;
      if (++in_use > most) too_many = true;
      const auto number = ring.claim();
      if (!number) {
        give_back(record);
        return;
      }
      numbers[record] = *number;
      ring.publish(*number, record);
    }
  }
  std::vector<std::thread> start_workers(int count) {
    std::vector<std::thread> workers;
    for (int i = 0; i < count; ++i) workers.emplace_back([this] { work(); });
    return workers;
  }

  /// Until it is over, where not even a batch that ends comes.
  template <class Condition>
  bool wait_for(Condition condition) {
    while (!condition()) {
      if (ring.all_staged() && !condition()) return false;
      std::this_thread::yield();
    }
    return true;
  }

  /// Stages the first filled one and takes it.
  std::uint64_t take() {
    ring.stage();
    return take_staged();
  }
  std::uint64_t take_staged() {
    const std::uint32_t record = ring.staged_head();
    const std::uint64_t number = numbers[record];
    ring.take();
    give_back(record);
    return number;
  }
  void give_back(std::uint32_t record) {
    --in_use;
    free.push(record);
  }

  RecordRing<std::uint32_t> ring;
  IndexStack free;
  std::vector<std::uint64_t> numbers;
  std::atomic<std::uint32_t> in_use;
  const std::uint32_t most;
  std::atomic<bool> too_many{false};
};

}  // namespace

TEST_CASE("a ring hands over every number once, in order", "[record_ring]") {
  const std::uint32_t depth = GENERATE(1u, 2u, 3u, 16u);
  const int count = GENERATE(1, 2, 5);
  constexpr std::uint64_t kFirst = 1000, kNumbers = 3000;
  RingRecords records(depth, true);
  records.ring.reopen(kFirst, kFirst + kNumbers);
  auto workers = records.start_workers(count);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kNumbers; ++i) {
    if (!records.wait_for([&] { return records.ring.has_filled(); })) FAIL("the ring ended early");
    wrong += records.take() != kFirst + i;
  }
  CHECK(wrong == 0);
  CHECK(records.ring.all_staged());
  CHECK_FALSE(records.ring.has_filled());
  CHECK_FALSE(records.ring.has_staged());
  CHECK_FALSE(records.ring.reserve());
  CHECK_FALSE(records.too_many);
  for (std::thread& worker : workers) worker.join();
}

TEST_CASE("as they come, a ring hands over every number once", "[record_ring]") {
  const std::uint32_t depth = GENERATE(1u, 2u, 16u);
  constexpr std::uint64_t kNumbers = 3000;
  RingRecords records(depth, false);
  records.ring.reopen(0, kNumbers);
  auto workers = records.start_workers(4);
  std::vector<bool> seen(kNumbers, false);
  std::uint64_t twice = 0;
  for (std::uint64_t i = 0; i < kNumbers; ++i) {
    if (!records.wait_for([&] { return records.ring.has_filled(); })) FAIL("the ring ended early");
    const std::uint64_t number = records.take();
    twice += seen[number];
    seen[number] = true;
  }
  CHECK(twice == 0);
  CHECK(records.ring.all_staged());
  for (std::thread& worker : workers) worker.join();
}

TEST_CASE("one thread stages, another takes: each number once, in order", "[record_ring]") {
  const std::uint32_t depth = GENERATE(1u, 3u, 8u);
  constexpr std::uint64_t kNumbers = 3000;
  RingRecords records(depth, true);
  records.ring.reopen(0, kNumbers);
  auto workers = records.start_workers(2);
  std::thread stager([&] {
    while (records.wait_for([&] { return records.ring.has_filled(); })) records.ring.stage();
  });
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kNumbers; ++i) {
    while (!records.ring.has_staged()) std::this_thread::yield();
    CHECK(records.ring.staged() <= depth);
    wrong += records.take_staged() != i;
  }
  CHECK(wrong == 0);
  CHECK_FALSE(records.ring.has_staged());
  CHECK(records.ring.position() == kNumbers);
  stager.join();
  for (std::thread& worker : workers) worker.join();
}

TEST_CASE("a ring has two cursors: what is staged is filled no more, and taken in its order",
          "[record_ring]") {
  RecordRing<std::uint32_t> ring(3, true);
  ring.reopen(7, 100);
  for (std::uint32_t i = 0; i < 3; ++i) {
    REQUIRE(ring.reserve());
    REQUIRE(ring.claim() == 7 + i);
  }
  CHECK(ring.next_number() == 10);
  ring.publish(8, 1);
  CHECK_FALSE(ring.has_filled());  // Not the first one.
  ring.publish(7, 0);
  REQUIRE(ring.has_filled());
  CHECK(ring.filled_head() == 0);
  CHECK_FALSE(ring.has_staged());
  ring.stage();
  CHECK(ring.staged_position() == 8);
  CHECK(ring.filled_head() == 1);
  REQUIRE(ring.has_staged());
  CHECK(ring.staged_head() == 0);
  ring.stage();
  CHECK_FALSE(ring.has_filled());
  CHECK(ring.staged() == 2);
  ring.take();
  CHECK(ring.position() == 8);
  CHECK(ring.staged_head() == 1);
  ring.take();
  CHECK_FALSE(ring.has_staged());
  ring.publish(9, 2);
  CHECK(ring.filled_head() == 2);
}

TEST_CASE("a ring tells how many are filled without a gap", "[record_ring]") {
  RecordRing<std::uint32_t> ring(4, true);
  const auto filled = [&] { return ring.count_filled(); };
  const auto claim = [&] { REQUIRE((ring.reserve() && ring.claim())); };
  const auto take = [&] {
    ring.stage();
    ring.take();
  };
  for (const std::uint64_t first : {100u, 7u}) {  // the second time further back
    ring.reopen(first, first + 100);
    for (int i = 0; i < 4; ++i) claim();
    CHECK(filled() == 0);
    ring.publish(first, 0);
    ring.publish(first + 2, 2);
    CHECK(filled() == 1);  // The one between is missing.
    ring.publish(first + 1, 1);
    ring.publish(first + 3, 3);
    CHECK(filled() == 4);  // and not the first one again
    take();
    CHECK(filled() == 3);
    for (int i = 0; i < 3; ++i) take();
    CHECK(filled() == 0);
    claim();
    ring.publish(first + 4, 0);
    take();  // Nobody has asked how many there are since.
    CHECK(filled() == 0);
    claim();
    ring.publish(first + 5, 0);
    CHECK(filled() == 1);
  }
}

TEST_CASE("no more numbers are reserved than there are", "[record_ring]") {
  RecordRing<std::uint32_t> ring(2, true);
  CHECK_FALSE(ring.reserve());  // Not before it is opened.
  CHECK(ring.all_reserved());
  ring.reopen(3, 5);
  CHECK_FALSE(ring.all_reserved());
  CHECK(ring.reserve());
  CHECK(ring.reserve());
  CHECK_FALSE(ring.reserve());
  CHECK(ring.all_reserved());
  CHECK_FALSE(ring.closed());  // Who has reserved gets a number.
  CHECK(ring.claim() == 3);
  CHECK(ring.claim() == 4);
  CHECK_FALSE(ring.all_staged());
}

TEST_CASE("a closed ring gives no numbers, and is over when what was claimed is taken",
          "[record_ring]") {
  RingRecords records(3, true);
  records.ring.reopen(0, 1'000'000);
  auto workers = records.start_workers(4);
  for (int i = 0; i < 50; ++i) {
    REQUIRE(records.wait_for([&] { return records.ring.has_filled(); }));
    records.take();
  }
  records.ring.close();
  records.ring.close();  // By somebody else.
  for (std::thread& worker : workers) worker.join();
  CHECK(records.ring.closed());
  CHECK(records.ring.all_reserved());
  CHECK_FALSE(records.ring.reserve());
  CHECK_FALSE(records.ring.claim());
  while (records.ring.has_filled()) records.take();
  CHECK(records.ring.all_staged());
  CHECK(records.ring.position() == records.ring.next_number());
  CHECK(records.in_use == 0);
}

TEST_CASE("the numbers of batches saturate", "[record_ring]") {
  using penstock::detail::batch_number;
  using penstock::detail::most_batches;
  using penstock::detail::saturated_product;
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  CHECK(saturated_product(0, kLargest) == 0);
  CHECK(saturated_product(3, 5) == 15);
  CHECK(saturated_product(2, most_batches) == most_batches);
  CHECK(saturated_product(kLargest, kLargest) == most_batches);
  CHECK(batch_number(10, 2, 3) == 23);
  CHECK(batch_number(10, 1, kLargest) == most_batches);
  CHECK(batch_number(kLargest, 1, 1) == most_batches);
}
