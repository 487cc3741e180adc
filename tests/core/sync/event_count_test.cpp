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

TEST_CASE("each of many notifications finds a waiter", "[event_count]") {
  // Each waiter takes one thing and is gone: a notification that wakes nobody, and that nobody
  // passes on, leaves a waiter asleep for ever.
  constexpr int kThings = 6;
  for (int round = 0; round < 300; ++round) {
    EventCount made;
    std::atomic<int> things{0};
    const auto try_take = [&] {
      int left = things.load();
      while (left > 0)
        if (things.compare_exchange_weak(left, left - 1)) return true;
      return false;
    };
    std::vector<std::thread> takers;
    for (int i = 0; i < kThings; ++i) takers.emplace_back([&] { made.wait(try_take); });
    if (round % 2 == 0) std::this_thread::sleep_for(1ms);  // They sleep, or most of them do.
    for (int i = 0; i < kThings; ++i) {
      ++things;
      made.notify_one();
    }
    for (std::thread& taker : takers) taker.join();
    CHECK(things == 0);
  }
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
