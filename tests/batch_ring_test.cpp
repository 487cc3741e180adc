// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/batch_ring.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::BatchRing;

namespace {

/// Workers that publish each number they claim, until the ring is closed.
std::vector<std::thread> start_workers(int count, BatchRing<std::unique_ptr<std::uint64_t>>& ring) {
  std::vector<std::thread> workers;
  for (int i = 0; i < count; ++i)
    workers.emplace_back([&ring] {
      while (ring.enter()) {
        const auto number = ring.claim();
        if (!number) return;
        ring.publish(*number, std::make_unique<std::uint64_t>(*number));
      }
    });
  return workers;
}

template <class Item>
Item take(BatchRing<Item>& ring) {
  Item item = std::move(ring.front());
  ring.pop();
  return item;
}

}  // namespace

TEST_CASE("a ring hands over every number once, in order", "[batch_ring]") {
  const std::size_t depth = GENERATE(1u, 2u, 3u, 16u);
  const int count = GENERATE(1, 2, 5);
  constexpr std::uint64_t kFirst = 1000, kNumbers = 3000;
  BatchRing<std::unique_ptr<std::uint64_t>> ring(depth, true);
  ring.reopen(kFirst, kFirst + kNumbers);
  auto workers = start_workers(count, ring);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < kNumbers; ++i) {
    ring.wait();
    if (!ring.full()) FAIL("the ring ended early");
    wrong += *take(ring) != kFirst + i;
  }
  CHECK(wrong == 0);
  ring.wait();
  CHECK(ring.over());
  for (std::thread& worker : workers) worker.join();
}

TEST_CASE("as they come, a ring hands over every number once", "[batch_ring]") {
  const std::size_t depth = GENERATE(1u, 2u, 16u);
  constexpr std::uint64_t kNumbers = 3000;
  BatchRing<std::unique_ptr<std::uint64_t>> ring(depth, false);
  ring.reopen(0, kNumbers);
  auto workers = start_workers(4, ring);
  std::vector<bool> seen(kNumbers, false);
  for (std::uint64_t i = 0; i < kNumbers; ++i) {
    ring.wait();
    const std::uint64_t number = *take(ring);
    CHECK_FALSE(seen[number]);
    seen[number] = true;
  }
  CHECK(ring.over());
  for (std::thread& worker : workers) worker.join();
}

TEST_CASE("a ring tells how many items are queued without a gap", "[batch_ring]") {
  BatchRing<int> ring(4, true);
  const auto queued = [&] {
    CHECK(ring.count_queued() == ring.queued());
    return ring.queued();
  };
  const auto publish = [&](std::uint64_t number) {
    ring.publish(number, static_cast<int>(number));
  };
  for (const std::uint64_t first : {100u, 7u}) {  // the second time further back
    ring.reopen(first, first + 100);
    for (int i = 0; i < 4; ++i) REQUIRE((ring.try_enter() && ring.claim()));
    CHECK(queued() == 0);
    publish(first);
    publish(first + 2);
    CHECK(queued() == 1);  // The one between is missing.
    publish(first + 1);
    publish(first + 3);
    CHECK(ring.queued(3) == 3);
    CHECK(queued() == 4);  // and not the first one again
    CHECK(ring.queued(2) == 2);
    take(ring);
    CHECK(queued() == 3);
    for (int i = 0; i < 3; ++i) take(ring);
    CHECK(queued() == 0);
    REQUIRE((ring.try_enter() && ring.claim()));
    publish(first + 4);
    take(ring);  // Nobody has asked how many there are since.
    CHECK(queued() == 0);
    REQUIRE((ring.try_enter() && ring.claim()));
    publish(first + 5);
    CHECK(queued() == 1);
  }
}

TEST_CASE("a ring never lets in more than its depth", "[batch_ring]") {
  BatchRing<int> ring(2, true);
  ring.reopen(0, 10);
  CHECK(ring.try_enter());
  CHECK(ring.try_enter());
  CHECK_FALSE(ring.try_enter());
  ring.publish(*ring.claim(), 7);
  CHECK_FALSE(ring.try_enter());
  CHECK(take(ring) == 7);
  CHECK(ring.try_enter());
}

TEST_CASE("closing a ring ends every wait, and is over when what was claimed is taken",
          "[batch_ring]") {
  BatchRing<std::unique_ptr<std::uint64_t>> ring(3, true);
  ring.reopen(0, 1'000'000);
  auto workers = start_workers(4, ring);
  for (int i = 0; i < 50; ++i) {
    ring.wait();
    ring.pop();
  }
  ring.close();
  for (std::thread& worker : workers) worker.join();
  CHECK(ring.closed());
  CHECK_FALSE(ring.enter());
  while (ring.full()) ring.pop();
  CHECK(ring.over());
  CHECK(ring.head() == ring.next_number());
}
