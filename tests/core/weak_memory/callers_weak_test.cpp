// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/sync/callers.hpp>

using penstock::detail::Callers;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;

TEST_CASE("weak: who waits until the callers have left sees what they did", "[callers]") {
  explore([] {
    Callers callers;
    std::atomic<bool> inside{false};
    Plain<int> data{0};
    std::thread caller([&] {
      const Callers::Call call(callers);
      inside.store(true, std::memory_order_release);
      data = 1;
    });
    while (!inside.load(std::memory_order_acquire)) std::this_thread::yield();
    callers.wait_until_left();
    expect(data == 1, "what a caller did before it left is seen");
    caller.join();
  });
}

TEST_CASE("weak: who sees the callers sees what they did before", "[callers]") {
  explore([] {
    Callers callers;
    std::atomic<bool> done{false};
    Plain<int> data{0};
    std::thread caller([&] {
      data = 1;
      const Callers::Call call(callers);
      while (!done.load(std::memory_order_relaxed)) std::this_thread::yield();
    });
    while (!callers.any()) std::this_thread::yield();
    callers.see_entries();
    expect(data == 1, "what a caller did before it came is seen");
    done.store(true, std::memory_order_relaxed);
    caller.join();
  });
}
