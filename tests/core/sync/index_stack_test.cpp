// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/sync/index_stack.hpp>

#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::IndexStack;

TEST_CASE("a stack of numbers gives back the last one first, each once", "[index_stack]") {
  IndexStack stack(3);
  CHECK(stack.pop() == IndexStack::kNone);
  for (const std::uint32_t i : {2u, 0u, 1u}) stack.push(i);
  CHECK(stack.pop() == 1);
  CHECK(stack.pop() == 0);
  stack.push(1);
  CHECK(stack.pop() == 1);
  CHECK(stack.pop() == 2);
  CHECK(stack.pop() == IndexStack::kNone);
  CHECK(stack.pop() == IndexStack::kNone);
}

TEST_CASE("many threads pop and push: no number is lost, none is with two of them",
          "[index_stack]") {
  constexpr std::uint32_t kNumbers = 5;
  constexpr int kThreads = 4, kRounds = 20'000;
  IndexStack stack(kNumbers);
  for (std::uint32_t i = 0; i < kNumbers; ++i) stack.push(i);
  std::vector<int> uses(kNumbers, 0);  // Whoever has popped a number writes its count.
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::uint32_t one = stack.pop(), other = stack.pop();
        for (const std::uint32_t index : {one, other})
          if (index != IndexStack::kNone) ++uses[index];
        for (const std::uint32_t index : {one, other})
          if (index != IndexStack::kNone) stack.push(index);
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<bool> seen(kNumbers, false);
  for (std::uint32_t i = 0; i < kNumbers; ++i) {
    const std::uint32_t index = stack.pop();
    REQUIRE(index < kNumbers);
    CHECK_FALSE(seen[index]);
    seen[index] = true;
  }
  CHECK(stack.pop() == IndexStack::kNone);
  int sum = 0;
  for (const int count : uses) sum += count;
  CHECK(sum > kThreads * kRounds);
}
