// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <penstock/detail/storage/document_table.hpp>
#include <random>
#include <vector>

#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::detail {
namespace {

TEST_CASE("DocumentTable finds documents across multiples of 2^32", "[document_table]") {
  std::mt19937_64 random(GENERATE(range(0U, 10U)));
  const std::uint64_t step = GENERATE(1ull, 1000ull, 1ull << 29, 1ull << 33, 1ull << 40);
  std::vector<std::uint64_t> begins{0};
  while (begins.size() < 300) begins.push_back(begins.back() + random() % (2 * step));
  DocumentTable table;
  for (const std::uint64_t begin : begins) table.add(begin);
  REQUIRE(table.size() == begins.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < begins.size(); ++i) wrong += table.begin(i) != begins[i] ? 1 : 0;
  const auto of = [&](std::uint64_t token) {
    return static_cast<std::uint64_t>(std::upper_bound(begins.begin(), begins.end(), token) -
                                      begins.begin()) -
           1;
  };
  for (const std::uint64_t begin : begins) {
    const std::vector<std::uint64_t> tokens{begin,
                                            begin + 1,
                                            begin + step,
                                            begin | 0xFFFF'FFFFu,
                                            begin >> 32 << 32,
                                            begin == 0 ? 0 : begin - 1};
    for (const std::uint64_t token : tokens) wrong += table.of(token) != of(token) ? 1 : 0;
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace penstock::detail
