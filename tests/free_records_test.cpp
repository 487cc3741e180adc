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
  CHECK(records.try_take(5, taken));
  CHECK(records.try_take(6, taken));
  CHECK_FALSE(records.try_take(7, taken));
  CHECK(records.index(5, taken) == 1);
  CHECK(records.index(6, taken) == 0);
  records.give_back(1);
  CHECK(records.try_take(7, taken));
  CHECK_FALSE(records.try_take(8, taken));
  CHECK(records.index(7, taken) == 1);
  records.restart(0);
  CHECK(records.try_take(1, taken));
  CHECK_FALSE(records.try_take(2, taken));
}

TEST_CASE("as they come, a worker has the record that it took, until it is given back",
          "[free_records]") {
  FreeRecords records(2, false);
  records.restart(0);
  std::uint32_t first = 9, second = 9, third = 9;
  REQUIRE(records.try_take(0, first));
  REQUIRE(records.try_take(1, second));
  CHECK(first + second == 1);  // 0 and 1, in one order or the other
  CHECK_FALSE(records.try_take(2, third));
  CHECK(records.index(1, first) == first);
  records.give_back(second);
  REQUIRE(records.try_take(2, third));
  CHECK(third == second);
  records.put_back(third);
  CHECK(records.try_take(3, third));
  records.restart(7);
  CHECK(records.try_take(7, first));
  CHECK(records.try_take(8, second));
  CHECK_FALSE(records.try_take(9, third));
}
