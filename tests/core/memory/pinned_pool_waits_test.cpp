// SPDX-License-Identifier: Apache-2.0

// Threads that wait for a block of a PinnedPool: what ends their wait.

#include <penstock/pinned_pool.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"

using namespace std::chrono_literals;
using penstock::PinnedBlock;
using penstock::PinnedPool;
using penstock::PoolExhausted;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::TestStream;
using penstock::test::Waiter;

TEST_CASE("a wait ends when another thread releases a block", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 4096, .timeout = 20s});
  PinnedBlock held = pool.acquire(4096);
  std::atomic<std::byte*> got{nullptr};
  std::thread waiter([&] { got = pool.acquire(4096).data(); });
  std::byte* data = held.data();
  held.release();
  waiter.join();
  CHECK(got == data);
}

TEST_CASE("a wait ends when it is asked to stop", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 4096, .timeout = 20s});
  PinnedBlock held = pool.acquire(4096);
  std::stop_source stop;
  std::atomic<bool> empty{false};
  std::thread waiter([&] { empty = !pool.acquire(4096, stop.get_token()); });
  stop.request_stop();
  waiter.join();
  CHECK(empty);
  CHECK_FALSE(pool.acquire(4096, stop.get_token()));
}

TEST_CASE("of the threads that wait for a copy one polls, and another one when it leaves",
          "[pinned_pool]") {
  for (int round = 0; round < 20; ++round) {  // The others may wake before the one that leaves.
    Gate gate;
    TestStream stream;
    PinnedPool pool({.max_bytes = 4096, .timeout = std::chrono::milliseconds::max()});
    PinnedBlock block = pool.acquire(4096);
    gate.hold(stream);
    block.release_after(stream);
    std::array<std::stop_source, 4> stops;
    std::atomic<int> got{0}, left{0};
    std::vector<std::thread> waiters;
    for (std::stop_source& stop : stops)
      waiters.emplace_back([&, token = stop.get_token()] {
        const PinnedBlock mine = pool.acquire(4096, token);
        ++(mine ? got : left);
      });
    for (int i = 0; i < 3; ++i) {  // The one that polls may be among them.
      stops.at(static_cast<std::size_t>(i)).request_stop();
      CHECK(eventually([&] { return left == i + 1; }));
    }
    gate.open();
    CHECK(eventually([&] { return got == 1; }));
    for (std::thread& waiter : waiters) waiter.join();
  }
}

TEST_CASE("all who wait for blocks get them when their copies are done at once", "[pinned_pool]") {
  for (int round = 0; round < 20; ++round) {
    Gate gate;
    TestStream stream;
    PinnedPool pool({.max_bytes = 8192, .timeout = std::chrono::milliseconds::max()});
    PinnedBlock one = pool.acquire(4096), two = pool.acquire(4096);
    gate.hold(stream);
    one.release_after(stream);
    two.release_after(stream);
    std::array<PinnedBlock, 2> got;
    std::array<Waiter, 2> waiters;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        waiters.at(i).enter();
        got.at(i) = pool.acquire(4096);
      });
    for (Waiter& waiter : waiters) waiter.wait_until_asleep();
    gate.open();
    for (std::thread& thread : threads) thread.join();
    CHECK(got[0]);
    CHECK(got[1]);
  }
}

TEST_CASE("a time-out: for ever, at once, or not a time at all", "[pinned_pool]") {
  PinnedPool patient({.max_bytes = 4096, .timeout = std::chrono::milliseconds::max()});
  PinnedBlock held = patient.acquire(4096);
  std::atomic<bool> got{false};
  std::thread waiter([&] { got = static_cast<bool>(patient.acquire(4096)); });
  CHECK(penstock::test::eventually([&] { return patient.stats().blocks == 1; }));
  held.release();
  waiter.join();
  CHECK(got);

  PinnedPool impatient({.max_bytes = 4096, .timeout = 0ms});
  held = impatient.acquire(4096);
  CHECK_THROWS_AS(impatient.acquire(4096), PoolExhausted);
  CHECK_THROWS_AS(PinnedPool({.timeout = -1ms}), std::invalid_argument);
}
