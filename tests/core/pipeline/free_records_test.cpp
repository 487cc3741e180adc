// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/pipeline/free_records.hpp>

#include <cstdint>
#include <optional>

#include "support/catch.hpp"

using penstock::detail::FreeRecords;

TEST_CASE("in order, a turn waits for the record that it comes round to", "[free_records]") {
  FreeRecords records(2, true);
  records.restart(5);
  std::uint32_t taken = 0;
  CHECK(records.try_take(taken));
  CHECK(records.has_room(5));
  CHECK(records.has_room(6));
  CHECK_FALSE(records.has_room(7));
  CHECK(records.index(5, taken) == 1);
  CHECK(records.index(6, taken) == 0);
  records.give_back(1);
  CHECK(records.has_room(7));
  CHECK_FALSE(records.has_room(8));
  CHECK(records.index(7, taken) == 1);
  records.restart(0);
  CHECK(records.has_room(1));
  CHECK_FALSE(records.has_room(2));
}

TEST_CASE("in any order, a worker has the record that it took, until it is given back",
          "[free_records]") {
  FreeRecords records(2, false);
  std::uint32_t first = 9, second = 9, third = 9;
  REQUIRE(records.try_take(first));
  REQUIRE(records.try_take(second));
  CHECK(first + second == 1);  // 0 and 1, in one order or the other
  CHECK_FALSE(records.try_take(third));
  CHECK(records.index(1, first) == first);
  records.give_back(second);
  REQUIRE(records.try_take(third));
  CHECK(third == second);
  records.put_back(third);
  CHECK(records.try_take(third));
  records.restart(7);  // What is taken stays so until it comes back.
  CHECK_FALSE(records.try_take(second));
  records.give_back(first);
  CHECK(records.try_take(second));
}
