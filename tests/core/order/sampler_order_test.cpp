// SPDX-License-Identifier: Apache-2.0

// The order that a Sampler shuffles the samples to, and the seeds of its batches.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <penstock/sampler.hpp>
#include <set>
#include <vector>

#include "support/catch.hpp"
#include "support/sampled.hpp"
#include "support/uniformity.hpp"

namespace penstock {
namespace {

using test::batch_of;
using test::chi_square;
using test::counting;
using test::draws;
using test::epoch_of;
using test::Samples;
using test::score;
using test::uniformity;

/// The first `count` places of the shuffled order of `size` samples.
Samples shuffled(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch, std::int64_t count) {
  return batch_of(Sampler({.samples = size, .batch_size = count, .shuffle = true, .seed = seed}),
                  epoch, 0);
}

// ---- Every epoch is a permutation ---------------------------------------------------------------

TEST_CASE("Sampler: a shuffled epoch has every sample once, for all small sizes", "[sampler]") {
  for (std::uint64_t n = 1; n <= 600; ++n) {
    Samples order = shuffled(n, 1, n, static_cast<std::int64_t>(n));
    std::sort(order.begin(), order.end());
    if (order != counting(n)) FAIL_CHECK("size " << n);
  }
}

TEST_CASE("Sampler: a shuffled epoch has every sample once, for larger sizes", "[sampler]") {
  Samples sizes{1009, 7919, 10000, 31337, 65537, 99991, 100000};  // primes, round numbers
  for (int bits = 10; bits <= 17; ++bits)
    for (const std::uint64_t more : {0u, 1u, 2u})
      sizes.push_back((std::uint64_t{1} << bits) - 1 + more);
  for (const std::uint64_t n : sizes) {
    Samples order = shuffled(n, 2, n, static_cast<std::int64_t>(n));
    std::sort(order.begin(), order.end());
    if (order != counting(n)) FAIL_CHECK("size " << n);
  }
}

TEST_CASE("Sampler: of huge data sets, different places are different samples", "[sampler]") {
  const std::uint64_t n = GENERATE((std::uint64_t{1} << 32) - 1, (std::uint64_t{1} << 32) + 1,
                                   std::uint64_t{1'000'000'000'000}, (std::uint64_t{1} << 40) + 1,
                                   (std::uint64_t{1} << 62) + 12345, std::uint64_t{1} << 63);
  const Sampler sampler({.samples = n, .batch_size = 1000, .shuffle = true, .seed = 3});
  Samples seen;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::uint64_t batch = i < 50 ? i : sampler.batches() - 1 - (i - 50);  // head and tail
    const Samples samples = batch_of(sampler, 0, batch);
    seen.insert(seen.end(), samples.begin(), samples.end());
  }
  CHECK(*std::max_element(seen.begin(), seen.end()) < n);
  const std::size_t count = seen.size();
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  CHECK(seen.size() == count);
}

TEST_CASE("Sampler: the order does not depend on the batch size or on what was asked before",
          "[sampler]") {
  const Samples whole = shuffled(5000, 9, 4, 5000);
  for (const std::int64_t batch_size : {1, 4, 5, 7, 8, 9, 13, 31, 32, 33, 44, 45, 256}) {
    const Sampler sampler({.samples = 5000, .batch_size = batch_size, .shuffle = true, .seed = 9});
    CHECK(epoch_of(sampler, 4) == whole);
  }
  const Sampler sampler({.samples = 5000, .batch_size = 100, .shuffle = true, .seed = 9});
  for (const std::uint64_t batch : {49u, 0u, 7u, 7u, 48u}) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(batch * 100);
    CHECK(batch_of(sampler, 4, batch) == Samples(first, first + 100));
  }
}

TEST_CASE("Sampler: epochs and seeds have orders of their own", "[sampler]") {
  std::set<Samples> orders;
  for (std::uint64_t seed : {0u, 1u, 2u, 1u << 20u})
    for (std::uint64_t epoch = 0; epoch < 50; ++epoch)
      orders.insert(shuffled(1000, seed, epoch, 1000));
  CHECK(orders.size() == 4 * 50);
}

// Checkpoints hold a position, and the order is computed anew: another order would give a resumed
// run some samples twice and others never.
TEST_CASE("Sampler: the order and the seeds are the same in every version", "[sampler]") {
  CHECK(shuffled(5, 7, 0, 5) == Samples{2, 0, 1, 3, 4});
  CHECK(shuffled(1000, 7, 3, 4) == Samples{421, 759, 152, 774});
  CHECK(shuffled(1'000'000'000'000, 7, 3, 4) ==
        Samples{627106669950, 236887350649, 747373875421, 401688298395});
  CHECK(shuffled(std::uint64_t{1} << 63, 7, 3, 2) ==
        Samples{8932316870860745857, 8456908883372307801});
  CHECK(batch_seed(7, 3, 11) == 13212803196738371987u);
}

// ---- The order is as good as a random one -------------------------------------------------------
// Seeds are fixed, so each test always gives the same numbers.

TEST_CASE("Sampler: of 2 to 6 samples, every order is as likely as any other", "[sampler]") {
  for (const std::uint64_t n : {2u, 3u, 4u, 5u, 6u}) {
    std::map<Samples, double> orders;
    for (std::uint64_t seed = 0; seed < draws(100'000); ++seed)
      ++orders[shuffled(n, seed, 0, static_cast<std::int64_t>(n))];
    const auto all = static_cast<std::size_t>(std::tgamma(n + 1) + 0.5);
    std::vector<double> counts;
    for (const auto& [order, count] : orders) counts.push_back(count);
    CAPTURE(n);
    CHECK(orders.size() == all);
    CHECK(std::abs(uniformity(counts, all)) < 4);
  }
}

TEST_CASE("Sampler: even and odd orders are equally likely", "[sampler]") {
  for (const std::uint64_t n :
       {9u, 16u, 64u, 256u}) {  // whole squares: nothing walks, or hardly anything
    double odd = 0;
    for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
      Samples order = shuffled(n, seed, 1, static_cast<std::int64_t>(n));
      bool swaps_odd = false;
      for (std::uint64_t i = 0; i < n; ++i)
        for (; order[i] != i; swaps_odd = !swaps_odd) std::swap(order[i], order[order[i]]);
      odd += swaps_odd ? 1 : 0;
    }
    CAPTURE(n);
    CHECK(std::abs(odd - 5000) < 4 * 50);
  }
}

TEST_CASE("Sampler: every sample is as likely at every place, over the epochs", "[sampler]") {
  for (const std::uint64_t n : {7u, 8u, 17u, 31u, 64u, 100u}) {
    const std::uint64_t epochs = draws(20'000);
    std::vector<double> counts(n * n);
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const Samples order = shuffled(n, 11, epoch, static_cast<std::int64_t>(n));
      for (std::uint64_t place = 0; place < n; ++place) ++counts[place * n + order[place]];
    }
    const double expected = static_cast<double>(epochs) / static_cast<double>(n);
    // Rows and columns have fixed sums: (n - 1)^2 degrees, and a sum n / (n - 1) times too large.
    const auto m = static_cast<double>(n - 1);
    CAPTURE(n);
    CHECK(std::abs(score(chi_square(counts, expected) * m / static_cast<double>(n), m * m)) < 4);
  }
}

TEST_CASE("Sampler: every pair of samples is as likely to come first, over the seeds",
          "[sampler]") {
  for (const std::uint64_t n : {5u, 8u, 9u, 12u, 16u, 31u}) {
    std::map<Samples, double> pairs;
    for (std::uint64_t seed = 0; seed < draws(100'000); ++seed) ++pairs[shuffled(n, seed, 5, 2)];
    std::vector<double> counts;
    for (const auto& [pair, count] : pairs) counts.push_back(count);
    CAPTURE(n);
    CHECK(std::abs(uniformity(counts, n * (n - 1))) < 4);
  }
}

TEST_CASE("Sampler: neighbours in a rank's order are strangers in the data set", "[sampler]") {
  struct Places {
    std::uint64_t samples;
    int ranks;  // Neighbours of one rank are so many places apart.
  };
  const auto [n, ranks] = GENERATE(
      Places{4096, 1}, Places{10'000, 1}, Places{1'000'003, 1}, Places{1'000'000'000'000, 1},
      Places{16'000'000, 8}, Places{1'000'000'000'000, 1024}, Places{1'000'000'000'000, 1 << 20});
  const Sampler sampler({.samples = n,
                         .batch_size = 2001,
                         .shuffle = true,
                         .seed = 1,
                         .rank = ranks - 1,
                         .world_size = ranks});
  constexpr std::size_t cells = 64;
  const auto cell = [n = static_cast<double>(n)](std::uint64_t value) {
    return static_cast<std::size_t>(static_cast<double>(value) / n * cells);
  };
  std::vector<double> distances(cells), pairs(cells * cells);
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    const Samples order = batch_of(sampler, epoch, 0);
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      ++distances[cell((order[i + 1] + n - order[i]) % n)];
      ++pairs[cell(order[i]) * cells + cell(order[i + 1])];
    }
  }
  CAPTURE(ranks);
  CHECK(std::abs(uniformity(distances, cells)) < 4);
  CHECK(std::abs(uniformity(pairs, cells * cells)) < 4);
}

TEST_CASE("Sampler: a sample's places in successive epochs are unrelated", "[sampler]") {
  const std::uint64_t n = 10'000'000;
  constexpr std::size_t cells = 32;
  std::vector<double> counts(cells * cells);
  for (std::uint64_t epoch = 0; epoch < 400; ++epoch) {
    const Samples now = shuffled(n, 77, epoch, 500), next = shuffled(n, 77, epoch + 1, 500);
    for (std::size_t i = 0; i < now.size(); ++i)
      ++counts[now[i] * cells / n * cells + next[i] * cells / n];
  }
  CHECK(std::abs(uniformity(counts, cells * cells)) < 4);
}

// ---- batch_seed ---------------------------------------------------------------------------------

TEST_CASE("batch_seed: no two batches share a seed", "[sampler]") {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t run = 0; run < 4; ++run)
    for (std::uint64_t epoch = 0; epoch < 25; ++epoch)
      for (std::uint64_t batch = 0; batch < 1000; ++batch)
        seeds.insert(batch_seed(run, epoch, batch));
  CHECK(seeds.size() == 4 * 25 * 1000);
}

TEST_CASE("batch_seed: each bit of each number flips half of the bits", "[sampler]") {
  const std::uint64_t seed = batch_seed(12, 34, 56);
  double flipped = 0;
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t flip = std::uint64_t{1} << bit;
    for (const std::uint64_t other : {batch_seed(12 ^ flip, 34, 56), batch_seed(12, 34 ^ flip, 56),
                                      batch_seed(12, 34, 56 ^ flip)}) {
      const int changed = std::popcount(seed ^ other);
      CHECK(changed >= 12);
      CHECK(changed <= 52);
      flipped += changed;
    }
  }
  CHECK(std::abs(flipped / (3 * 64) - 32) < 1.2);  // 4 standard deviations
}

}  // namespace
}  // namespace penstock
