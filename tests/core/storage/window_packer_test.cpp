// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <penstock/detail/storage/window_packer.hpp>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::detail {
namespace {

TEST_CASE("NumberSet finds the first number from a number on", "[window_packer]") {
  std::mt19937 random(GENERATE(range(0U, 4U)));
  const std::size_t size = GENERATE(1u, 63u, 64u, 65u, 4096u, 4097u, 300'000u);
  NumberSet numbers(size);
  std::set<std::size_t> expected;
  std::size_t wrong = 0;
  for (int step = 0; step < 3000; ++step) {
    const std::size_t number = random() % size;
    // Few numbers in the first half, many in the second.
    if (random() % 3 != 0 && (step > 1500 || expected.size() < 3)) {
      numbers.insert(number);
      expected.insert(number);
    } else {
      numbers.erase(number);
      expected.erase(number);
    }
    for (const std::size_t from : {random() % size, number, number + 1, size - 1, size}) {
      const auto at = expected.lower_bound(from);
      wrong += numbers.first_from(from) != (at == expected.end() ? NumberSet::npos : *at) ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("DocumentBins says what is in the bins", "[window_packer]") {
  WindowPacker packer(true, 10, 5);
  DocumentBins bins, more;
  packer.pack(std::vector<std::uint64_t>{4, 23, 6, 0, 9}, bins);
  packer.pack(std::vector<std::uint64_t>{20, 7}, more);
  bins.append(more);
  CHECK(bins.size() == 8);  // {9}, {4, 6}, {3}, and two pieces of 23; {7}, and two pieces of 20
  CHECK(bins.bins == std::vector<std::uint16_t>{0, 1, 3, 0});
  CHECK(bins.members == std::vector<std::uint16_t>{4, 0, 2, 1, 1});
  CHECK(bins.longs == std::vector<std::uint16_t>{1, 0});
  CHECK(bins.pieces == std::vector<std::uint32_t>{0, 0});
  REQUIRE(bins.windows.size() == 3);
  CHECK(bins.windows[1].sequences == 5);
  CHECK(bins.windows[1].bins == 3);
  CHECK(bins.windows[1].members == 4);
  CHECK(bins.windows[2].bins == 4);
  CHECK(bins.windows[2].members == 5);
  CHECK(bins.windows[2].longs == 2);
}

TEST_CASE("WindowPacker refuses a window of more than 2^32 whole pieces", "[window_packer]") {
  WindowPacker packer(false, 1, 2);
  DocumentBins bins;
  const std::vector<std::uint64_t> documents{std::uint64_t{1} << 32, 5};
  CHECK_THAT(test::thrown<std::invalid_argument>([&] { packer.pack(documents, bins); }),
             test::Mentions("Packing: a window has more than 2^32 sequences"));
}

}  // namespace
}  // namespace penstock::detail
