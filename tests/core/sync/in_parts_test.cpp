// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/sync/in_parts.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/thrown.hpp"

namespace penstock::inline PENSTOCK_ABI::detail {
namespace {

using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

TEST_CASE("in_parts cuts the work into parts that differ by one at most", "[in_parts]") {
  Ranges ranges(3);
  in_parts(11, 3, [&](std::size_t part, std::uint64_t begin, std::uint64_t end) {
    ranges[part] = {begin, end};
  });
  CHECK(ranges == Ranges{{0, 4}, {4, 8}, {8, 11}});
  in_parts(2, 3, [&](std::size_t part, std::uint64_t begin, std::uint64_t end) {
    ranges[part] = {begin, end};
  });
  CHECK(ranges == Ranges{{0, 1}, {1, 2}, {2, 2}});
}

TEST_CASE("in_parts throws what the first part has thrown, when all are done", "[in_parts]") {
  std::atomic<int> done{0};
  const auto work = [&](std::size_t part, std::uint64_t, std::uint64_t) {
    ++done;
    if (part != 0) throw std::runtime_error("part " + std::to_string(part));
  };
  CHECK(test::thrown<std::runtime_error>([&] { in_parts(8, 4, work); }) == "part 1");
  CHECK(done == 4);
}

}  // namespace
}  // namespace penstock::detail
