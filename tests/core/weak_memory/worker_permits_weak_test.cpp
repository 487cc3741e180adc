// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/sync/worker_permits.hpp>

using penstock::detail::WorkerPermits;
using penstock::test::weak::expect;
using penstock::test::weak::explore;

TEST_CASE("weak: a worker that is parked runs when it is allowed to", "[worker_permits]") {
  explore([] {
    WorkerPermits permits(0);
    std::thread worker([&] { expect(permits.take([] { return false; }), "it was allowed"); });
    permits.allow(1);
    worker.join();
    expect(permits.running() == 1, "it runs");
  });
}

TEST_CASE("weak: workers that are parked end when all does", "[worker_permits]") {
  explore([] {
    WorkerPermits permits(0);
    std::atomic<bool> ended{false};
    const auto work = [&] {
      expect(!permits.take([&] { return ended.load(std::memory_order_relaxed); }),
             "none was allowed");
    };
    std::thread first(work), second(work);
    ended.store(true, std::memory_order_relaxed);
    permits.wake();
    first.join();
    second.join();
  });
}

TEST_CASE("weak: of two workers with permits one loses its own, whoever looks first",
          "[worker_permits]") {
  explore([] {
    WorkerPermits permits(2);
    for (int i = 0; i < 2; ++i) expect(permits.take([] { return false; }), "there are two");
    std::atomic<int> lost{0};
    const auto look = [&] {
      if (permits.lose()) lost.fetch_add(1, std::memory_order_relaxed);
    };
    std::thread first(look), second(look);
    permits.allow(1);
    first.join();
    second.join();
    look();
    expect(permits.running() == 1, "one is left");
    expect(lost.load(std::memory_order_relaxed) == 1, "one was lost");
  });
}
