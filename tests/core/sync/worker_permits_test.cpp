// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/sync/worker_permits.hpp>

#include <atomic>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"

using penstock::detail::WorkerPermits;
using penstock::test::eventually;

static bool never() {
  return false;
}

TEST_CASE("as many permits as are allowed, and one is lost only where there are too many",
          "[worker_permits]") {
  WorkerPermits permits(2);
  CHECK(permits.take(never));
  CHECK(permits.take(never));
  CHECK(!permits.take([] { return true; }));  // It would wait.
  CHECK(permits.running() == 2);
  CHECK(!permits.lose());
  permits.allow(1);
  CHECK(permits.lose());
  CHECK(!permits.lose());
  CHECK(permits.running() == 1);
  permits.give_back();
  CHECK(permits.running() == 0);
  CHECK(permits.take(never));
}

TEST_CASE("parked workers run when more are allowed, and end when all does", "[worker_permits]") {
  constexpr int kWorkers = 4;
  WorkerPermits permits(1);
  std::atomic<bool> ended{false};
  std::atomic<int> took{0}, left{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kWorkers; ++i)
    threads.emplace_back([&] {
      if (permits.take([&] { return ended.load(); })) ++took;
      ++left;
    });
  CHECK(eventually([&] { return took == 1; }));
  permits.allow(3);
  CHECK(eventually([&] { return took == 3; }));
  CHECK(permits.running() == 3);
  CHECK(left == 3);
  ended = true;
  permits.wake();
  for (auto& thread : threads) thread.join();
  CHECK(took == 3);
}

TEST_CASE("workers that change places: never more than are allowed", "[worker_permits]") {
  constexpr int kWorkers = 4, kRounds = 2'000;
  WorkerPermits permits(2);
  std::atomic<int> inside{0}, most{0};
  std::atomic<bool> ended{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kWorkers; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        if (!permits.take([&] { return ended.load(); })) return;
        const int now = ++inside;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        --inside;
        permits.give_back();
        permits.wake();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(most <= 2);
  CHECK(permits.running() == 0);
}
