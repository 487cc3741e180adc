// SPDX-License-Identifier: Apache-2.0

// Sampler with SamplerOptions::block and window, whose order detail/order/block_order.hpp makes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <penstock/any_sampler.hpp>
#include <penstock/sampler.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/sampled.hpp"
#include "support/thrown.hpp"
#include "support/uniformity.hpp"

namespace penstock {
namespace {

using test::allocations_of_this_thread;
using test::batch_of;
using test::draws;
using test::epoch_of;
using test::Mentions;
using test::Samples;
using test::thrown;
using test::uniformity;

/// All samples of a rank in an epoch.
Samples order_of(const SamplerOptions& options, std::uint64_t epoch) {
  return epoch_of(Sampler(options), epoch);
}

/// Blocks of the shortest pieces of `order` that have whole blocks: what is left after such a piece
/// has no sample of its blocks.
std::vector<std::size_t> blocks_of_pieces(const Samples& order, std::uint64_t block) {
  std::map<std::uint64_t, std::size_t> left;
  for (const std::uint64_t sample : order) ++left[sample / block];
  std::vector<std::size_t> pieces;
  std::size_t open = 0, blocks = 0;
  std::set<std::uint64_t> seen;
  for (const std::uint64_t sample : order) {
    if (seen.insert(sample / block).second) ++open, ++blocks;
    if (--left[sample / block] == 0) --open;
    if (open != 0) continue;
    pieces.push_back(blocks);
    blocks = 0;
  }
  return pieces;
}

struct Case {
  std::uint64_t samples, block, window;
  int world;
  bool drop_last;
};

SamplerOptions options_of(const Case& c, int rank, std::int64_t batch_size = 7) {
  return {.samples = c.samples,
          .batch_size = batch_size,
          .shuffle = true,
          .seed = c.samples + c.block,
          .drop_last = c.drop_last,
          .rank = rank,
          .world_size = c.world,
          .block = c.block,
          .window = c.window};
}

/// Reason why the epoch of all ranks is wrong; empty if it is right.
std::string fault_of(const Case& c) {
  const auto world = static_cast<std::uint64_t>(c.world);
  const std::uint64_t each = c.samples / world + (c.samples % world != 0 && !c.drop_last ? 1 : 0);
  std::map<std::uint64_t, std::uint64_t> times;
  std::map<std::uint64_t, std::set<int>> readers;
  for (int rank = 0; rank < c.world; ++rank) {
    const Samples order = order_of(options_of(c, rank, 1), 5);
    if (order.size() != each) return "a rank has another number of samples";
    for (const std::uint64_t sample : order) {
      ++times[sample];
      readers[sample / c.block].insert(rank);
    }
    for (const std::size_t blocks : blocks_of_pieces(order, c.block))
      if (blocks > c.window) return "a window has too many blocks";
  }
  if (times.rbegin()->first >= c.samples) return "there is no such sample";
  if (!c.drop_last && times.size() != c.samples) return "a sample is missing";
  if (c.drop_last && times.size() != each * world) return "a sample occurs twice";
  const std::uint64_t most = (each * world - 1) / c.samples + 1;  // where ranks outnumber samples
  for (const auto& [sample, count] : times)
    if (count > most) return "a sample is repeated too often";
  std::size_t shared = 0;  // A border between two ranks cuts one block, or repeats a sample of one.
  for (const auto& [block, ranks] : readers) shared += ranks.size() - 1;
  return shared < world ? "" : "ranks share too many blocks";
}

TEST_CASE("Sampler in blocks: every sample once, ranks apart, windows of few blocks", "[blocks]") {
  const auto drop_last = GENERATE(false, true);
  const auto samples = GENERATE(1u, 2u, 3u, 7u, 12u, 30u, 31u, 64u, 97u, 101u);
  for (const std::uint64_t block : {1u, 2u, 3u, 5u, 8u, 31u, 97u})
    for (const std::uint64_t window : {1u, 2u, 3u, 4u, 7u, 1000u})
      for (const int world : {1, 2, 3, 5, 8, 13}) {
        const Case c{samples, block, window, world, drop_last};
        if (block > samples || (drop_last && static_cast<std::uint64_t>(world) > samples)) continue;
        const std::string fault = fault_of(c);
        CAPTURE(samples, block, window, world);
        if (!fault.empty()) FAIL_CHECK(fault);
      }
}

TEST_CASE("Sampler in blocks: the same for larger sizes that divide nothing", "[blocks]") {
  for (const Case& c : {Case{10'007, 64, 16, 1, false}, Case{10'007, 64, 16, 3, false},
                        Case{10'007, 100, 7, 8, true}, Case{4'999, 4'999, 1, 4, false},
                        Case{4'999, 4'998, 2, 2, false}, Case{20'000, 1, 100, 7, false}}) {
    CAPTURE(c.samples, c.block, c.window, c.world);
    CHECK(fault_of(c) == "");
  }
}

TEST_CASE("Sampler in blocks: the windows of a rank have equally many blocks", "[blocks]") {
  const auto pieces = [](std::uint64_t samples, std::uint64_t window) {
    return blocks_of_pieces(order_of(options_of({samples, 50, window, 1, false}, 0), 1), 50);
  };
  CHECK(pieces(20 * 50, 4) == std::vector<std::size_t>{4, 4, 4, 4, 4});
  CHECK(pieces(21 * 50, 4) == std::vector<std::size_t>{4, 4, 4, 3, 3, 3});
  CHECK(pieces(20 * 50 + 1, 4) == std::vector<std::size_t>{4, 4, 4, 3, 3, 3});
  CHECK(pieces(9 * 50 - 1, 8) == std::vector<std::size_t>{5, 4});
  CHECK(pieces(3 * 50, 1) == std::vector<std::size_t>{1, 1, 1});
  CHECK(pieces(3 * 50, 1000) == std::vector<std::size_t>{3});
}

TEST_CASE("Sampler in blocks: the order does not depend on the batch size, or on what was asked",
          "[blocks]") {
  const Case c{5'003, 37, 5, 2, false};
  const Samples whole = order_of(options_of(c, 1, 5'003), 3);
  for (const std::int64_t batch_size : {1, 63, 64, 65, 256})
    CHECK(order_of(options_of(c, 1, batch_size), 3) == whole);
  const Sampler sampler(options_of(c, 1, 100));
  for (const std::uint64_t batch : {24u, 0u, 7u, 7u, 23u}) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(batch * 100);
    CHECK(batch_of(sampler, 3, batch) == Samples(first, first + 100));
  }
}

TEST_CASE("Sampler in blocks: epochs, seeds, blocks and windows have orders of their own",
          "[blocks]") {
  std::set<Samples> orders;
  SamplerOptions options = options_of({1'000, 10, 10, 1, false}, 0);
  for (options.seed = 0; options.seed < 3; ++options.seed)
    for (options.block = 9; options.block < 12; ++options.block)
      for (options.window = 4; options.window < 7; ++options.window)
        for (std::uint64_t epoch = 0; epoch < 5; ++epoch) orders.insert(order_of(options, epoch));
  CHECK(orders.size() == 3 * 3 * 3 * 5);
}

TEST_CASE("Sampler in blocks: of huge data sets, different places are different samples",
          "[blocks]") {
  const std::uint64_t n = GENERATE((std::uint64_t{1} << 40) + 1, std::uint64_t{1} << 63);
  const std::uint64_t block = GENERATE(1u, 1000u, 1u << 20u);
  Samples seen;
  for (const int rank : {0, 1, 500, 1022}) {
    const Sampler sampler(options_of({n, block, 1 << 16, 1023, false}, rank, 500));
    for (const std::uint64_t batch : {std::uint64_t{0}, std::uint64_t{1}, sampler.batches() - 2}) {
      const Samples samples = batch_of(sampler, 0, batch);
      seen.insert(seen.end(), samples.begin(), samples.end());
    }
  }
  CHECK(*std::max_element(seen.begin(), seen.end()) < n);
  const std::size_t count = seen.size();
  std::sort(seen.begin(), seen.end());
  CHECK(static_cast<std::size_t>(std::unique(seen.begin(), seen.end()) - seen.begin()) == count);

  const Sampler whole(options_of({n, n, std::uint64_t{1} << 63, 1, false}, 0, 500));
  for (const std::uint64_t sample : batch_of(whole, 0, whole.batches() - 1)) CHECK(sample < n);
}

// ---- As random as it can be --------------------------------------------------------------------

/// `orders`: how many there should be.
double uniformity_of_orders(SamplerOptions options, std::size_t orders) {
  std::map<Samples, double> times;
  options.batch_size = static_cast<std::int64_t>(options.samples);
  for (options.seed = 0; options.seed < draws(50'000); ++options.seed) {
    Samples order = batch_of(Sampler(options), 0, 0);
    if (options.window == 1) {  // The order of the blocks is what is random.
      for (std::uint64_t& sample : order) sample /= options.block;
      order.erase(std::unique(order.begin(), order.end()), order.end());
    }
    ++times[order];
  }
  CHECK(times.size() == orders);
  std::vector<double> counts;
  for (const auto& [order, count] : times) counts.push_back(count);
  return uniformity(counts);
}

TEST_CASE("Sampler in blocks: within a window every order is as likely, and so of the blocks",
          "[blocks]") {
  const auto options = [](std::uint64_t samples, std::uint64_t block, std::uint64_t window) {
    return options_of({samples, block, window, 1, false}, 0);
  };
  CHECK(std::abs(uniformity_of_orders(options(6, 2, 3), 720)) < 4);
  CHECK(std::abs(uniformity_of_orders(options(5, 2, 3), 120)) < 4);
  CHECK(std::abs(uniformity_of_orders(options(8, 2, 1), 24)) < 4);
  CHECK(std::abs(uniformity_of_orders(options(9, 2, 1), 120)) < 4);  // the short block too
}

TEST_CASE("Sampler in blocks: a sample is as likely at every place, over the epochs", "[blocks]") {
  for (const auto& [block, window] : {std::pair{4u, 3u}, std::pair{6u, 2u}, std::pair{12u, 3u}}) {
    const Sampler sampler(options_of({48, block, window, 1, false}, 0, 48));
    std::vector<std::vector<double>> places(3, std::vector<double>(48));
    for (std::uint64_t epoch = 0; epoch < draws(20'000); ++epoch) {
      const Samples order = batch_of(sampler, epoch, 0);
      for (std::size_t place = 0; place < 48; ++place)
        if (order[place] % 22 == 0) ++places[order[place] / 22][place];  // samples 0, 22, 44
    }
    CAPTURE(block, window);
    for (const auto& counts : places) CHECK(std::abs(uniformity(counts)) < 4);
  }
}

// ---- What belongs to a run ---------------------------------------------------------------------

TEST_CASE("Sampler in blocks: the order is the same in every version", "[blocks]") {
  const auto first = [](std::uint64_t samples, std::uint64_t block, std::uint64_t window) {
    return batch_of(Sampler({.samples = samples,
                             .batch_size = 4,
                             .shuffle = true,
                             .seed = 7,
                             .rank = 1,
                             .world_size = 3,
                             .block = block,
                             .window = window}),
                    3, 0);
  };
  CHECK(first(1'000, 10, 4) == Samples{838, 223, 837, 834});
  CHECK(first(1'003, 10, 4) == Samples{227, 998, 907, 429});
  CHECK(first(1'000'000'000'000, 4096, 64) ==
        Samples{994772426073, 120208124946, 341221957082, 918830100724});
}

TEST_CASE("Sampler in blocks: a state of another block or window is of another order", "[blocks]") {
  const auto start = [](std::uint64_t block, std::uint64_t window) {
    return AnySampler(Sampler(options_of({1'000, block, window, 1, false}, 0))).start();
  };
  std::set<std::uint64_t> orders{Sampler({.samples = 9, .batch_size = 1}).order()};
  for (const auto& [block, window] :
       {std::pair{0u, 0u}, std::pair{1u, 1u}, std::pair{1u, 2u}, std::pair{2u, 1u}})
    orders.insert(start(block, window).order);
  CHECK(orders.size() == 5);

  State state = start(10, 4);
  state.batch = 3;
  state.seed = start(10, 4).seed;
  CHECK(why_incompatible(state, start(10, 4)).empty());
  State other = start(10, 5);
  CHECK_THAT(why_incompatible(state, other), Mentions("order is"));
  state.batch = 0;
  CHECK(why_incompatible(state, other).empty());
}

TEST_CASE("Sampler in blocks allocates nothing", "[blocks]") {
  const Sampler sampler(options_of({std::uint64_t{1} << 40, 1000, 64, 8, false}, 3, 256));
  Samples out;
  out.reserve(256);
  const std::uint64_t before = allocations_of_this_thread();
  for (std::uint64_t batch = 0; batch < 100; ++batch) sampler.samples(1, batch, out);
  CHECK(allocations_of_this_thread() == before);
}

TEST_CASE("Sampler rejects a block or a window that makes no sense", "[blocks]") {
  const auto rejection = [](std::uint64_t block, std::uint64_t window, bool shuffle = true) {
    SamplerOptions options = options_of({100, block, window, 1, false}, 0);
    options.shuffle = shuffle;
    return thrown<std::invalid_argument>([&] { Sampler{options}; });
  };
  CHECK_THAT(rejection(10, 0), Mentions("window is 0, and block is 10, must be at least 1"));
  CHECK_THAT(rejection(0, 10), Mentions("block is 0, and window is 10, must be at least 1"));
  CHECK_THAT(rejection(101, 1), Mentions("block is 101, must be 1 to samples = 100"));
  CHECK_THAT(rejection(10, 10, false),
             Mentions("shuffle is false, and window is 10") && Mentions("set block and window"));
}

}  // namespace
}  // namespace penstock
