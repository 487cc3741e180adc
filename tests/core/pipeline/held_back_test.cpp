// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/held_back.hpp>

#include <atomic>
#include <barrier>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::HeldBack;

TEST_CASE("what is wanted is held back, and what is beyond comes back", "[held_back]") {
  const auto alive = std::make_shared<int>(0);
  const auto used = [&] { return alive.use_count() - 1; };
  HeldBack<std::shared_ptr<int>> held(4);
  auto memory = alive;
  CHECK(!held.takes(memory));  // Nothing is wanted.
  CHECK(memory != nullptr);
  CHECK(!held.want(2));
  CHECK(held.takes(memory));
  CHECK(memory == nullptr);
  memory = alive;
  CHECK(held.takes(memory));
  memory = alive;
  CHECK(!held.takes(memory));  // Two are enough.
  memory.reset();
  CHECK(used() == 2);
  CHECK(!held.want(3));
  CHECK(used() == 2);
  CHECK(held.want(1));
  CHECK(used() == 1);
  CHECK(!held.want(1));
  CHECK(held.want(0));
  CHECK(used() == 0);
}

TEST_CASE("many threads hand over, one changes its mind: nothing is lost or held twice",
          "[held_back]") {
  constexpr std::size_t kMost = 8;
  constexpr int kThreads = 3, kRounds = 3'000;
  std::atomic<int> alive{0};
  struct Counted {
    explicit Counted(std::atomic<int>& counter) : count(&counter) { ++*count; }
    Counted(Counted&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
    Counted& operator=(Counted&& other) noexcept {
      std::swap(count, other.count);
      return *this;
    }
    ~Counted() {
      if (count != nullptr) --*count;
    }
    std::atomic<int>* count;
  };
  {
    HeldBack<Counted> held(kMost);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] {
        for (int round = 0; round < kRounds; ++round) {
          Counted memory(alive);
          held.takes(memory);
        }
      });
    for (int round = 0; round < kRounds; ++round)
      held.want(static_cast<std::size_t>(round) % (kMost + 1));
    held.want(3);
    for (auto& thread : threads) thread.join();
    CHECK(alive <= 3);
    held.want(0);
    CHECK(alive == 0);
  }
}

TEST_CASE("of two that come at once, one is held back", "[held_back]") {
  constexpr int kRounds = 3'000;
  HeldBack<std::unique_ptr<int>> held(2);
  std::atomic<int> taken{0};
  int twice = 0;
  const auto next_round = [&]() noexcept {
    if (taken.exchange(0) > 1) ++twice;
    held.want(0);
    held.want(1);
  };
  next_round();
  std::barrier together(2, next_round);
  const auto come = [&] {
    for (int round = 0; round < kRounds; ++round) {
      auto memory = std::make_unique<int>(round);
      if (held.takes(memory)) ++taken;
      together.arrive_and_wait();
    }
  };
  std::thread other(come);
  come();
  other.join();
  CHECK(twice == 0);
}
