// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/pipeline/pump.hpp>

using penstock::detail::Pump;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;

TEST_CASE("weak: what is asked for is done, by one thread at a time", "[pump]") {
  explore([] {
    Pump pump;
    pump.end_pause();
    std::atomic<int> asked{0};
    Plain<int> done{0};
    const auto ask = [&] {
      for (int i = 0; i < 2; ++i) {
        asked.fetch_add(1, std::memory_order_relaxed);
        pump.run([&] {
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

TEST_CASE("weak: a pause has what is pumped to itself, and what is done in it is seen behind it",
          "[pump]") {
  explore([] {
    Pump pump;
    Plain<int> made{0}, pumped{0};
    const auto step = [&] {
      expect(made == 1, "what was made in the first pause");
      pumped = pumped + 1;
      return false;
    };
    std::thread asker([&] {
      for (int i = 0; i < 3; ++i) {
        pump.run(step);
        if (!pump.paused()) expect(made == 1, "what was made in the first pause");
      }
    });
    made = 1;
    pump.end_pause();
    pump.pause();
    pumped = 0;
    pump.end_pause();
    pump.run(step);
    asker.join();
    expect(pumped >= 1, "it was asked for behind the pause");
  });
}
