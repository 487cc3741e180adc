// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/sync/index_stack.hpp>

using penstock::detail::IndexStack;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;

namespace {

/// What the numbers stand for: whoever has popped one has it alone.
template <std::size_t count>
struct Things {
  Things() {
    for (std::uint32_t i = 0; i < count; ++i) stack.push(i);
  }
  /// Each is in the stack once, and was used so often in all.
  void expect_all(int all) {
    int sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t index = stack.pop();
      expect(index < count, "no number is lost");
      sum += uses[index];
      uses[index] = -1000;  // Popped twice, it would show.
    }
    expect(stack.pop() == IndexStack::kNone, "no number is there twice");
    expect(sum == all, "every use was seen");
  }

  IndexStack stack{count};
  Plain<int> uses[count];
};

}  // namespace

TEST_CASE("weak: what was done before a push is seen by the thread that pops", "[index_stack]") {
  explore([] {
    Things<1> things;
    const auto use = [&] {
      for (int i = 0; i < 2; ++i) {
        std::uint32_t index = IndexStack::kNone;
        while ((index = things.stack.pop()) == IndexStack::kNone) std::this_thread::yield();
        things.uses[index] = things.uses[index] + 1;
        things.stack.push(index);
      }
    };
    std::thread first(use), second(use);
    first.join();
    second.join();
    things.expect_all(4);
  });
}

TEST_CASE("weak: a number that was popped and pushed again meanwhile does not lose the others",
          "[index_stack]") {
  explore([] {
    Things<3> things;
    std::atomic<int> used{0};
    const auto use = [&](int at_once) {
      for (int i = 0; i < 2; ++i) {
        std::uint32_t taken[2] = {IndexStack::kNone, IndexStack::kNone};
        for (int n = 0; n < at_once; ++n) taken[n] = things.stack.pop();
        for (const std::uint32_t index : taken)
          if (index != IndexStack::kNone) {
            things.uses[index] = things.uses[index] + 1;
            used.fetch_add(1, std::memory_order_relaxed);
          }
        for (const std::uint32_t index : taken)  // In the order in which they were popped.
          if (index != IndexStack::kNone) things.stack.push(index);
      }
    };
    std::thread first([&] { use(2); }), second([&] { use(1); });
    use(2);
    first.join();
    second.join();
    things.expect_all(used.load(std::memory_order_relaxed));
  });
}

TEST_CASE("weak: a thread that pops sees every push before the one whose number it gets",
          "[index_stack]") {
  explore([] {
    IndexStack stack(2);
    Plain<int> first{0}, second{0};
    std::thread pusher([&] {
      first = 1;
      stack.push(0);
      second = 2;
      stack.push(1);
    });
    std::uint32_t index = IndexStack::kNone;
    int popped = 0;
    while (popped < 2) {
      if ((index = stack.pop()) == IndexStack::kNone) {
        std::this_thread::yield();
        continue;
      }
      ++popped;
      if (index == 0)
        expect(first == 1, "what came before the push");
      else
        expect(first == 1 && second == 2, "what came before both");
    }
    pusher.join();
  });
}
