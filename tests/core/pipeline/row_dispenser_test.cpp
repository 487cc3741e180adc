// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/row_dispenser.hpp>

#include <cstdint>

#include "support/catch.hpp"

using penstock::detail::BatchRows;
using penstock::detail::RowDispenser;

namespace {

struct RowsAlone {
  BatchRows to_fill;
};

void must_not_wait(const auto&) {
  FAIL("nobody opens");
}

}  // namespace

TEST_CASE("rows come in pieces of at most so many, the oldest batch's first", "[row_dispenser]") {
  RowDispenser<RowsAlone> dispenser;
  RowsAlone records[2];
  int opened = 0;
  const auto open_next = [&]() -> RowsAlone* {
    if (opened == 2) return nullptr;
    records[opened].to_fill.open(5);
    return &records[opened++];
  };
  const auto next = [&](std::int64_t most) {
    return dispenser.next(most, open_next, [](auto&& wait) { must_not_wait(wait); });
  };
  for (RowsAlone& record : records) {
    const auto first = next(2), second = next(10);
    CHECK(first.record == &record);
    CHECK(first.first == 0);
    CHECK(first.rows == 2);
    CHECK(second.record == &record);
    CHECK(second.first == 2);
    CHECK(second.rows == 3);  // No more than are left.
    CHECK_FALSE(record.to_fill.any_left());
    CHECK_FALSE(record.to_fill.count_filled(3));
    CHECK(record.to_fill.count_filled(2));
  }
  CHECK_FALSE(next(1));
  CHECK(opened == 2);
}

TEST_CASE("a batch without rows is one piece, and so is one that a worker fills alone",
          "[row_dispenser]") {
  RowDispenser<RowsAlone> dispenser;
  RowsAlone record;
  record.to_fill.open(0);
  const auto piece = dispenser.next(
      3, [&] { return &record; }, [](auto&& wait) { must_not_wait(wait); });
  CHECK(piece.record == &record);
  CHECK(piece.rows == 0);
  CHECK(record.to_fill.count_filled(piece.rows));

  record.to_fill.open(1);
  const auto whole = RowDispenser<RowsAlone>::whole(record);
  CHECK(whole.record == &record);
  CHECK(whole.first == 0);
  CHECK(whole.rows == 1);
  CHECK(record.to_fill.count_filled(1));
}
