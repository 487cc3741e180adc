// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/sync/serial_task.hpp>

using penstock::detail::SerialTask;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;

TEST_CASE("weak: what is asked for is done, by one thread at a time", "[serial_task]") {
  explore([] {
    SerialTask task;
    task.end_pause();
    std::atomic<int> asked{0};
    Plain<int> done{0};
    const auto ask = [&] {
      for (int i = 0; i < 2; ++i) {
        asked.fetch_add(1, std::memory_order_relaxed);
        task.run([&] {
          if (done == asked.load(std::memory_order_relaxed)) return false;
          done = done + 1;
          return true;
        });
      }
    };
    std::thread first(ask), second(ask);
    ask();
    first.join();
    second.join();
    expect(done == 6, "all of it was done");
  });
}

TEST_CASE(
    "weak: a pause has what the steps write to itself, and what is done in it is seen behind it",
    "[serial_task]") {
  explore([] {
    SerialTask task;
    Plain<int> made{0}, stepped{0};
    const auto step = [&] {
      expect(made == 1, "what was made in the first pause");
      stepped = stepped + 1;
      return false;
    };
    std::thread asker([&] {
      for (int i = 0; i < 3; ++i) task.run(step);
    });
    made = 1;
    task.end_pause();
    task.pause();
    stepped = 0;
    task.end_pause();
    task.run(step);
    asker.join();
    expect(stepped >= 1, "it was asked for behind the pause");
  });
}
