// SPDX-License-Identifier: Apache-2.0

#include "replace_std.hpp"
//
#include <penstock/detail/pipeline/free_records.hpp>
#include <penstock/detail/pipeline/record_ring.hpp>
#include <penstock/detail/sync/event_count.hpp>

using penstock::detail::EventCount;
using penstock::detail::FreeRecords;
using penstock::detail::RecordRing;
using penstock::test::weak::expect;
using penstock::test::weak::explore;
using penstock::test::weak::Plain;

namespace {

/// Workers write the number of a batch into its record, and one consumer reads it. That a record is
/// written before its last batch is over is a race.
void hand_over(std::size_t count, bool ordered, std::uint64_t numbers) {
  RecordRing<std::uint32_t> ring(count, ordered);
  FreeRecords free(count, ordered);
  EventCount room, news;
  Plain<std::uint64_t> records[2];
  free.restart(0);
  ring.reopen(0, numbers);
  const auto work = [&] {
    while (true) {
      std::uint32_t taken = 0;
      bool has_turn = false, has_record = false;
      room.wait([&] {
        has_turn =
            has_turn || ring.reserve([&](std::uint64_t turn) { return free.has_room(turn); });
        has_record = has_turn && free.try_take(taken);
        return has_record || (!has_turn && ring.all_reserved());
      });
      if (!has_record) return room.notify_one();
      const auto number = ring.claim();
      const auto record = static_cast<std::uint32_t>(free.index(*number, taken));
      records[record] = *number;
      ring.publish(*number, record);
      news.notify_one();
    }
  };
  std::thread first(work), second(work);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < numbers; ++i) {
    news.wait([&] { return ring.has_filled(); });
    const std::uint32_t record = ring.filled_head();
    const std::uint64_t number = records[record];
    if (ordered) expect(number == i, "batches come in order");
    sum += number;
    records[record] = 99;
    ring.stage();
    ring.take();
    free.give_back(record);
    room.notify_one();
  }
  first.join();
  second.join();
  expect(sum == numbers * (numbers - 1) / 2, "each batch came once");
}

}  // namespace

TEST_CASE("weak: in order, a record is free before its next batch is written", "[free_records]") {
  explore([] { hand_over(2, true, 4); });
}

TEST_CASE("weak: as they come, a record is free before its next batch is written",
          "[free_records]") {
  explore([] { hand_over(2, false, 4); });
}

TEST_CASE("weak: one record goes round", "[free_records]") {
  explore([] { hand_over(1, true, 3); });
}
