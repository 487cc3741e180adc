// SPDX-License-Identifier: Apache-2.0

#include <deque>
#include <optional>
#include <penstock/detail/observe/name_number.hpp>
#include <string>

#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::detail {
namespace {

struct Thing;
using Number = NameNumber<Thing>;

TEST_CASE("NameNumber: the first has no number, the next ones count from 2", "[name_number]") {
  std::optional<Number> first(std::in_place);
  const Number second;
  CHECK(first->name("things") == std::string("things"));
  CHECK(second.name("things") == std::string("things 2"));
  first.reset();
  const Number again, third;
  CHECK(again.name("things") == std::string("things"));
  CHECK(third.name("things") == std::string("things 3"));
}

TEST_CASE("NameNumber: beyond 64 they share a number", "[name_number]") {
  std::deque<Number> many;
  for (int i = 0; i < 64; ++i) many.emplace_back();
  CHECK(many.back().name("things") == std::string("things 64"));
  many.emplace_back();
  many.emplace_back();
  CHECK(many.back().name("things") == std::string("things 65"));
  many.pop_back();
  many.pop_back();
  CHECK(Number().name("things") == std::string("things 65"));
}

}  // namespace
}  // namespace penstock::detail
