// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/storage/watched_ranges.hpp>

using penstock::detail::WatchedRange;
using penstock::detail::WatchedRanges;
using penstock::test::weak::expect;
using penstock::test::weak::explore;

namespace {

/// Ranges outlive their list, and an execution is not the end of them.
void free_all(WatchedRanges& ranges) {
  for (WatchedRange* range = ranges.all_.load(); range != nullptr;)
    delete std::exchange(range, range->next_.load());
}

}  // namespace

TEST_CASE("weak: a search finds the range of its address, whatever becomes of others",
          "[watched_ranges]") {
  const bool upwards = GENERATE(true, false);
  explore([=] {
    WatchedRanges ranges;
    WatchedRange& mine = ranges.add(240, 260);
    WatchedRange& other = upwards ? ranges.add(100, 200) : ranges.add(300, 400);
    std::thread changes([&] {
      ranges.remove(other);
      WatchedRange& again = upwards ? ranges.add(300, 400) : ranges.add(100, 200);
      expect(&again == &other, "a range that was given back is used again");
    });
    expect(ranges.find(250) == &mine, "neither torn nor mixed up");
    expect(ranges.find(270) == nullptr, "what nobody watches is not found");
    changes.join();
    free_all(ranges);
  });
}

TEST_CASE("weak: a range reaches from its first address to before its end", "[watched_ranges]") {
  explore([] {
    WatchedRanges ranges;
    WatchedRange& range = ranges.add(240, 260);
    expect(ranges.find(240) == &range && ranges.find(259) == &range, "inside");
    expect(ranges.find(239) == nullptr && ranges.find(260) == nullptr, "outside");
    free_all(ranges);
  });
}

TEST_CASE("weak: a search beside the first use of a range sees it whole or not at all",
          "[watched_ranges]") {
  explore([] {
    WatchedRanges ranges;
    WatchedRange& mine = ranges.add(240, 260);
    std::thread adds([&] { ranges.add(300, 400); });
    expect(ranges.find(250) == &mine, "it is found behind a new one");
    adds.join();
    expect(ranges.find(350) != nullptr, "the new one is there");
    free_all(ranges);
  });
}

TEST_CASE("weak: the first of the pages that several threads lose is the one that is told",
          "[watched_ranges]") {
  explore([] {
    WatchedRanges ranges;
    WatchedRange& range = ranges.add(1000, 2000);
    std::thread first([&] { range.lose(1300); }), second([&] { range.lose(1100); });
    range.lose(1200);
    first.join();
    second.join();
    expect(range.lost_from() == 100, "the first page");
    free_all(ranges);
  });
}
