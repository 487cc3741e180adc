// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/sync/pending_error.hpp>

#include <atomic>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::PendingError;

TEST_CASE("the call that an error is for throws it once, and no other call does",
          "[pending_error]") {
  PendingError pending;
  CHECK_FALSE(pending.any(3));
  pending.throw_error(3);
  pending.set(3, std::make_exception_ptr(std::runtime_error("the first")));
  pending.set(3, std::make_exception_ptr(std::runtime_error("the second")));
  pending.set(2, std::make_exception_ptr(std::runtime_error("late")));
  CHECK(pending.any(3));
  CHECK_FALSE(pending.any(4));
  pending.throw_error(4);
  CHECK_THROWS_WITH(pending.throw_error(3), "the first");
  CHECK_FALSE(pending.any(3));
  pending.throw_error(3);
  pending.set(4, std::make_exception_ptr(std::runtime_error("another one")));
  CHECK_THROWS_WITH(pending.throw_error(4), "another one");
}

TEST_CASE("two errors at once: where there is one, the next call throws it", "[pending_error]") {
  // next() would take news with nothing behind it for the end of the data.
  constexpr int kRounds = 2'000;
  PendingError pending;
  const auto error = std::make_exception_ptr(std::runtime_error("two releases failed"));
  std::atomic<int> round{0}, through{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      for (int mine = 1; mine <= kRounds; ++mine) {
        while (round < mine) std::this_thread::yield();
        pending.set(error);
        ++through;
      }
    });
  int thrown = 0, nothing = 0;
  const auto look = [&] {
    if (!pending.any()) return;
    try {
      pending.throw_error();
      ++nothing;
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  };
  for (int i = 1; i <= kRounds; ++i) {
    round = i;
    while (through < 2 * i) {
      look();
      std::this_thread::yield();
    }
    look();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(nothing == 0);
  CHECK(thrown >= kRounds);
}
