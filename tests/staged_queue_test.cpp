// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/staged_queue.hpp>

#include <atomic>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::StagedQueue;

TEST_CASE("two failures at once: news without a batch or the end is always a failure to throw",
          "[staged_queue]") {
  // next() would take news with nothing behind it for the end of the data.
  constexpr int kRounds = 2'000;
  StagedQueue line(2);
  const auto error = std::make_exception_ptr(std::runtime_error("two releases failed"));
  std::atomic<int> round{0}, through{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      for (int mine = 1; mine <= kRounds; ++mine) {
        while (round < mine) std::this_thread::yield();
        line.fail(error);
        ++through;
      }
    });
  int thrown = 0, nothing = 0;
  const auto look = [&] {
    if (!line.has_news()) return;
    try {
      line.throw_failure();
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
