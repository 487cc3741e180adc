// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/sync/event_count.hpp>

using penstock::detail::EventCount;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;
using penstock::test::weak::wait_until_others_wait;

TEST_CASE("weak: no wake-up is lost between a change and a wait", "[event_count]") {
  explore([] {
    EventCount changed[2];
    std::atomic<int> turn{0};
    Plain<int> data{0};
    const auto play = [&](int me) {
      for (int i = me; i < 4; i += 2) {
        changed[me].wait([&] { return turn.load(std::memory_order_acquire) == i; });
        expect(data == i, "the change is seen whole");
        data = i + 1;
        turn.store(i + 1, std::memory_order_release);
        changed[1 - me].notify_one();
      }
    };
    std::thread other([&] { play(1); });
    play(0);
    other.join();
  });
}

TEST_CASE("weak: each notification finds a waiter", "[event_count]") {
  explore([] {
    EventCount made;
    std::atomic<int> things{0};
    const auto take = [&] {
      made.wait([&] {
        int left = things.load(std::memory_order_relaxed);
        while (left > 0)
          if (things.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return true;
        return false;
      });
    };
    std::thread first(take), second(take);
    for (int i = 0; i < 2; ++i) {
      things.fetch_add(1, std::memory_order_relaxed);
      made.notify_one();
    }
    first.join();
    second.join();
    expect(things.load(std::memory_order_relaxed) == 0, "each has taken one");
  });
}

TEST_CASE("weak: notify_all wakes everybody", "[event_count]") {
  explore([] {
    EventCount opened;
    std::atomic<bool> open{false};
    const auto wait = [&] { opened.wait([&] { return open.load(std::memory_order_acquire); }); };
    std::thread first(wait), second(wait);
    open.store(true, std::memory_order_release);
    opened.notify_all();
    first.join();
    second.join();
  });
}

TEST_CASE("weak: a thread that waits for long sleeps", "[event_count]") {
  explore([] {
    EventCount opened;
    std::atomic<bool> open{false};
    std::thread waiter([&] { opened.wait([&] { return open.load(std::memory_order_acquire); }); });
    wait_until_others_wait();
    open.store(true, std::memory_order_release);
    opened.notify_one();
    waiter.join();
  });
}
