// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/sync/event_count.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using namespace std::chrono_literals;
using penstock::detail::EventCount;

TEST_CASE("no wake-up is lost between a change and a wait", "[event_count]") {
  // Two threads hand a number to and fro, each sleeping until it is its turn: one lost wake-up
  // hangs.
  constexpr std::uint64_t kTurns = 20'000;
  EventCount changed[2];
  std::atomic<std::uint64_t> turn{0};
  const auto play = [&](std::uint64_t me) {
    for (std::uint64_t i = me; i < kTurns; i += 2) {
      changed[me].wait([&] { return turn.load(std::memory_order_acquire) == i; });
      turn.store(i + 1, std::memory_order_release);
      changed[1 - me].notify_one();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  CHECK(turn == kTurns);
}

TEST_CASE("notify_all wakes everybody", "[event_count]") {
  EventCount opened;
  std::atomic<bool> open{false};
  std::atomic<int> through{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 8; ++i)
    waiters.emplace_back([&] {
      opened.wait([&] { return open.load(); });
      ++through;
    });
  open = true;
  opened.notify_all();
  for (std::thread& waiter : waiters) waiter.join();
  CHECK(through == 8);
}

TEST_CASE("a wait with a deadline says whether the condition holds", "[event_count]") {
  EventCount never;
  const auto begin = EventCount::Clock::now();
  CHECK_FALSE(never.wait_until(begin + 5ms, [] { return false; }));
  CHECK(EventCount::Clock::now() - begin >= 5ms);
  CHECK(never.wait_until(begin, [] { return true; }));
}
