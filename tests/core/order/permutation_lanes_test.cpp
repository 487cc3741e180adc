// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/order/divisor.hpp>
#include <penstock/detail/order/feistel.hpp>
#include <penstock/detail/order/feistel_shape.hpp>
#include <penstock/detail/order/permutation.hpp>
#include <penstock/detail/order/permutation_lanes.hpp>
#include <random>
#include <span>
#include <vector>

#include "support/catch.hpp"

namespace penstock::inline PENSTOCK_ABI::detail {
namespace {

/// Of all magnitudes, each about as often.
std::uint64_t some_size(std::mt19937_64& random) {
  return 1 + (random() >> (1 + random() % 63));
}

TEST_CASE("PermutationLanes: each image is that of a Permutation of its own, of any size",
          "[permutation]") {
  std::mt19937_64 random(GENERATE(range(0U, 8U)));
  const bool alike = GENERATE(false, true);  // the same number of rounds in all lanes
  PermutationLanes fast, portable;           // used again and again
  for (int turn = 0; turn < 500; ++turn) {
    const std::size_t count = turn == 0 ? 0 : 1 + random() % PermutationLanes::most;
    std::vector<std::uint64_t> expected;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t size = alike ? 1'000'000 + random() % 1000 : some_size(random);
      const std::uint64_t seed = random();
      std::uint64_t value = i % 8 == 0 ? size - 1 : random() % size;
      REQUIRE_FALSE(fast.full());
      fast.add(feistel_shape(size), seed, value);
      portable.add(feistel_shape(size), seed, value);
      Permutation(size, mix64(seed)).apply_portably(std::span(&value, 1));
      expected.push_back(value);
    }
    CHECK(fast.full() == (count == PermutationLanes::most));
    const auto images = fast.apply(), same = portable.apply_portably();
    if (!std::equal(images.begin(), images.end(), expected.begin(), expected.end()) ||
        !std::equal(same.begin(), same.end(), expected.begin(), expected.end()))
      FAIL_CHECK("turn " << turn << " of " << count);
  }
}

TEST_CASE("Permutation: the images do not depend on the processor", "[permutation]") {
  std::mt19937_64 random(GENERATE(range(0U, 8U)));
  for (int turn = 0; turn < 200; ++turn) {
    const std::uint64_t size =
        turn % 20 == 0 ? Permutation::max_size - random() % 3 : some_size(random);
    const Permutation permutation(size, random());
    std::vector<std::uint64_t> fast;
    for (std::size_t i = random() % 90; i > 0; --i) fast.push_back(random() % size);
    std::vector<std::uint64_t> portable = fast;
    permutation.apply(fast);
    permutation.apply_portably(portable);
    if (fast != portable) FAIL_CHECK("size " << size << ", " << fast.size() << " values");
  }
}

TEST_CASE("Divisor: quotient and remainder are those of a division", "[permutation]") {
  const auto check = [](std::uint64_t number, std::uint64_t by) {
    const auto [quotient, remainder] = Divisor(by).divide(number);
    if (quotient != number / by || remainder != number % by) FAIL_CHECK(number << " / " << by);
  };
  std::mt19937_64 random(3);
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::uint64_t by = some_size(random), times = random() % (kMost / by) * by;
    for (const std::uint64_t number : {random(), random() >> random() % 64, times, times + by - 1})
      check(number, by);
  }
  for (const std::uint64_t by : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 63, kMost})
    for (const std::uint64_t number : {std::uint64_t{0}, by - 1, by, kMost - 1, kMost})
      check(number, by);
}

}  // namespace
}  // namespace penstock::detail
