// SPDX-License-Identifier: Apache-2.0

// Which samples a Sampler gives to whom. The order that it shuffles them to:
// sampler_order_test.cpp.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <penstock/detail/mix.hpp>
#include <penstock/sampler.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/sampled.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::allocations_of_this_thread;
using test::batch_of;
using test::counting;
using test::epoch_of;
using test::Mentions;
using test::Samples;
using test::thrown;

// ---- Which samples -----------------------------------------------------------------------------

TEST_CASE("Sampler without shuffle counts through the data set", "[sampler]") {
  const Sampler sampler({.samples = 10, .batch_size = 4});
  CHECK(sampler.batches() == 3);
  CHECK(sampler.samples_per_epoch() == 10);
  CHECK(batch_of(sampler, 0, 0) == Samples{0, 1, 2, 3});
  CHECK(batch_of(sampler, 0, 1) == Samples{4, 5, 6, 7});
  CHECK(batch_of(sampler, 0, 2) == Samples{8, 9});
  CHECK(epoch_of(sampler, 5) == counting(10));
}

TEST_CASE("Sampler with drop_last leaves out the short batch", "[sampler]") {
  const Sampler sampler({.samples = 10, .batch_size = 4, .drop_last = true});
  CHECK(sampler.batches() == 2);
  CHECK(sampler.samples_per_epoch() == 8);
  CHECK(epoch_of(sampler, 0) == counting(8));
  CHECK(Sampler({.samples = 8, .batch_size = 4, .drop_last = true}).batches() == 2);
}

TEST_CASE("Sampler pads the list from its head so that all ranks get the same", "[sampler]") {
  const auto rank = [](int r, bool drop_last) {
    return epoch_of(
        Sampler(
            {.samples = 10, .batch_size = 1, .drop_last = drop_last, .rank = r, .world_size = 4}),
        0);
  };
  CHECK(rank(0, false) == Samples{0, 4, 8});
  CHECK(rank(1, false) == Samples{1, 5, 9});
  CHECK(rank(2, false) == Samples{2, 6, 0});
  CHECK(rank(3, false) == Samples{3, 7, 1});
  CHECK(rank(0, true) == Samples{0, 4});
  CHECK(rank(3, true) == Samples{3, 7});
}

TEST_CASE("Sampler repeats the whole list where ranks outnumber samples", "[sampler]") {
  for (int rank = 0; rank < 5; ++rank) {
    const SamplerOptions options{.samples = 2, .batch_size = 3, .rank = rank, .world_size = 5};
    CHECK(epoch_of(Sampler(options), 0) == Samples{static_cast<std::uint64_t>(rank % 2)});
  }
}

/// The rules of PyTorch's DistributedSampler, step by step on a stored list: pad or cut to a
/// multiple of the number of ranks, then take every `ranks`-th place.
Samples distributed(Samples list, std::uint64_t rank, std::uint64_t ranks, bool drop_last) {
  const auto ceil_divide = [](std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; };
  const std::uint64_t n = list.size();
  std::uint64_t total = 0;
  if (drop_last && n % ranks != 0)
    total = n < ranks ? 0 : ceil_divide(n - ranks, ranks) * ranks;
  else
    total = ceil_divide(n, ranks) * ranks;
  const Samples head = list;
  while (list.size() < total) {
    const std::uint64_t missing = std::min(total - list.size(), n);
    list.insert(list.end(), head.begin(), head.begin() + static_cast<std::ptrdiff_t>(missing));
  }
  list.resize(total);
  Samples mine;
  for (std::uint64_t place = rank; place < total; place += ranks) mine.push_back(list[place]);
  return mine;
}

TEST_CASE("Sampler shards as PyTorch's DistributedSampler, batches as its DataLoader",
          "[sampler]") {
  const bool shuffle = GENERATE(false, true);
  const bool drop_last = GENERATE(false, true);
  for (std::uint64_t n = 1; n <= 30; ++n) {
    SamplerOptions options{.samples = n, .batch_size = 1, .shuffle = shuffle, .seed = n};
    const Samples list = epoch_of(Sampler(options), 3);
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (int rank = 0; rank < ranks; ++rank) {
        for (const std::int64_t batch_size : {1, 2, 3, 7, 40}) {
          options.batch_size = batch_size;
          options.drop_last = drop_last;
          options.rank = rank;
          options.world_size = ranks;
          Samples expected = distributed(list, static_cast<std::uint64_t>(rank),
                                         static_cast<std::uint64_t>(ranks), drop_last);
          const auto size = static_cast<std::uint64_t>(batch_size);
          if (drop_last) expected.resize(expected.size() / size * size);
          if (expected.empty()) continue;  // Sampler refuses: see below.
          const Sampler sampler(options);
          const bool same = epoch_of(sampler, 3) == expected &&
                            sampler.samples_per_epoch() == expected.size() &&
                            sampler.batches() == (expected.size() + size - 1) / size;
          if (!same) {
            CAPTURE(n, ranks, rank, batch_size);
            CHECK(epoch_of(sampler, 3) == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("Sampler fills every batch but the last", "[sampler]") {
  const Sampler sampler({.samples = 1003, .batch_size = 10, .shuffle = true, .world_size = 4});
  REQUIRE(sampler.batches() == 26);
  for (std::uint64_t batch = 0; batch < 25; ++batch)
    CHECK(batch_of(sampler, 1, batch).size() == 10);
  CHECK(batch_of(sampler, 1, 25).size() == 1);
}

// ---- Its cost and its edges ---------------------------------------------------------------------

TEST_CASE("Sampler::samples reuses the memory of its result", "[sampler]") {
  const Sampler sampler({.samples = 1'000'000'000'000, .batch_size = 256, .shuffle = true});
  Samples out;
  out.reserve(256);
  const std::uint64_t before = allocations_of_this_thread();
  for (std::uint64_t batch = 0; batch < 100; ++batch) sampler.samples(1, batch, out);
  CHECK(allocations_of_this_thread() == before);
  CHECK(out == batch_of(sampler, 1, 99));

  out.assign(1000, 7);  // More than the batch: the rest is gone.
  sampler.samples(1, 99, out);
  CHECK(out == batch_of(sampler, 1, 99));
}

TEST_CASE("Sampler may be asked by many threads at once", "[sampler]") {
  const Sampler sampler({.samples = 100'000, .batch_size = 100, .shuffle = true, .seed = 5});
  std::vector<Samples> results(4);
  std::vector<std::thread> threads;
  for (Samples& result : results) threads.emplace_back([&] { result = epoch_of(sampler, 2); });
  for (std::thread& thread : threads) thread.join();
  for (const Samples& result : results) CHECK(result == epoch_of(sampler, 2));
}

TEST_CASE("Sampler reaches the last sample of the largest data set", "[sampler]") {
  const std::uint64_t n = std::uint64_t{1} << 63;
  const Sampler one({.samples = n, .batch_size = 2});
  CHECK(one.batches() == n / 2);
  CHECK(batch_of(one, 0, n / 2 - 1) == Samples{n - 2, n - 1});

  // The padded list is longer than the data set: 2^63 = 2 modulo 3, so the last rank's last is 0.
  const Sampler last({.samples = n, .batch_size = 2, .rank = 2, .world_size = 3});
  CHECK(last.samples_per_epoch() == n / 3 + 1);
  CHECK(batch_of(last, 0, last.batches() - 1).back() == 0);

  constexpr int ranks = std::numeric_limits<int>::max();
  const Sampler crowd({.samples = n, .batch_size = 1, .rank = ranks - 1, .world_size = ranks});
  const std::uint64_t place = (crowd.batches() - 1) * std::uint64_t{ranks} + ranks - 1;
  CHECK(batch_of(crowd, 0, crowd.batches() - 1) == Samples{place % n});
}

TEST_CASE("Sampler allows a batch larger than the data set", "[sampler]") {
  const Sampler sampler(
      {.samples = 5, .batch_size = std::numeric_limits<std::int64_t>::max(), .shuffle = true});
  CHECK(sampler.batches() == 1);
  CHECK(batch_of(sampler, 0, 0).size() == 5);
}

std::string rejection(SamplerOptions options) {
  return thrown<std::invalid_argument>([&] { Sampler{options}; });
}

TEST_CASE("Sampler rejects options outside their ranges, with the numbers", "[sampler]") {
  CHECK_THAT(rejection({.samples = 0, .batch_size = 1}), Mentions("samples is 0"));
  CHECK_THAT(rejection({.samples = (std::uint64_t{1} << 63) + 1, .batch_size = 1}),
             Mentions("samples is 9223372036854775809, must be 1 to 2^63"));
  CHECK_THAT(rejection({.samples = 1, .batch_size = 0}),
             Mentions("batch_size is 0") && Mentions("0 stands for its layout's"));
  CHECK_THAT(rejection({.samples = 1, .batch_size = -4}), Mentions("batch_size is -4"));
  CHECK_THAT(rejection({.samples = 1, .batch_size = 1, .world_size = 0}),
             Mentions("world_size is 0"));
  CHECK_THAT(rejection({.samples = 1, .batch_size = 1, .rank = -1, .world_size = 2}),
             Mentions("rank is -1, must be 0 to world_size - 1 = 1"));
  CHECK_THAT(rejection({.samples = 1, .batch_size = 1, .rank = 2, .world_size = 2}),
             Mentions("rank is 2, must be 0 to world_size - 1 = 1"));
}

TEST_CASE("Sampler::samples rejects a batch that the epoch does not have", "[sampler]") {
  const Sampler sampler({.samples = 10, .batch_size = 4});
  CHECK_THAT(thrown<std::out_of_range>([&] { batch_of(sampler, 0, 3); }),
             Mentions("batch 3 of an epoch of 3 batches"));
}

TEST_CASE("Sampler rejects a drop_last that leaves no batch", "[sampler]") {
  CHECK_THAT(rejection({.samples = 3, .batch_size = 4, .drop_last = true}),
             Mentions("3 samples over world_size 1 make 3 for a rank, and batch_size is 4") &&
                 Mentions("set drop_last to false"));
  CHECK_THAT(rejection({.samples = 2, .batch_size = 1, .drop_last = true, .world_size = 5}),
             Mentions("2 samples over world_size 5 make 0 for a rank"));
  CHECK(Sampler({.samples = 3, .batch_size = 4}).batches() == 1);
}

TEST_CASE("Sampler tells its options", "[sampler]") {
  const Sampler sampler({.samples = 10, .batch_size = 4, .seed = 99, .rank = 1, .world_size = 2});
  CHECK(sampler.batch_size() == 4);
  CHECK(sampler.seed() == 99);
  CHECK(sampler.options().rank == 1);
}

// ---- Continued with other ranks or batches ------------------------------------------------------

/// The state of a run that began at `start`, when each rank has taken `count` batches more.
State behind(State state, std::uint64_t count) {
  state.batch += count;
  if (state.batch < state.batches) return state;
  state.epoch += state.batch / state.batches;
  state.batch %= state.batches;
  state.part_batch = state.part_samples = 0;
  return state;
}

/// What `count` batches of each rank have, from where the samplers begin; and the state behind
/// them.
struct Part {
  Samples samples;
  State behind;
};

Part part_of(SamplerOptions options, const State& resumed, std::uint64_t count) {
  Part part;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    const Sampler sampler(options, resumed);
    const State& start = sampler.start();
    if (start.epoch != resumed.epoch) return {{}, start};  // Nothing was left.
    const std::uint64_t end = std::min(sampler.batches(), start.batch + count);
    for (std::uint64_t batch = start.batch; batch < end; ++batch) {
      const Samples samples = batch_of(sampler, start.epoch, batch);
      part.samples.insert(part.samples.end(), samples.begin(), samples.end());
    }
    part.behind = behind(start, end - start.batch);
  }
  return part;
}

/// Numbers for tests that look at many.
struct Drawn {
  std::uint64_t state;
  std::uint64_t below(std::uint64_t end) { return (state = detail::mix64(state)) % end; }
};

TEST_CASE("Sampler: parts of an epoch on any ranks have each sample once", "[sampler]") {
  Drawn draw{20240301};
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t size = 1 + draw.below(90), seed = draw.below(100);
    const bool shuffle = draw.below(4) != 0, drop_last = draw.below(2) == 0;
    const auto drawn_options = [&] {
      return SamplerOptions{.samples = size,
                            .batch_size = 1 + static_cast<std::int64_t>(draw.below(5)),
                            .shuffle = shuffle,
                            .seed = seed,
                            .world_size = 1 + static_cast<int>(draw.below(4))};
    };
    State state = Sampler(drawn_options()).start();
    state.epoch = draw.below(5);
    const std::uint64_t epoch = state.epoch;
    std::uint64_t delivered = 0;
    std::map<std::uint64_t, int> times;
    SamplerOptions options;
    while (state.epoch == epoch) {
      options = drawn_options();
      options.drop_last = drop_last;
      const auto group = static_cast<std::uint64_t>(options.batch_size * options.world_size);
      if (drop_last && size < group) continue;  // It is refused: no batch is full.
      const Part part = part_of(options, state, 1 + draw.below(4));
      for (const std::uint64_t sample : part.samples) ++times[sample];
      REQUIRE(State::parse(to_string(part.behind)) == part.behind);
      delivered += part.samples.size();
      state = part.behind;
    }
    // The last part alone repeats samples, or leaves them out.
    std::uint64_t repeated = 0;
    for (const auto& [sample, count] : times) repeated += static_cast<std::uint64_t>(count - 1);
    const auto world = static_cast<std::uint64_t>(options.world_size);
    const auto group = static_cast<std::uint64_t>(options.batch_size) * world;
    REQUIRE(repeated < world);
    REQUIRE((drop_last ? repeated == 0 && size - times.size() < group : times.size() == size));
    REQUIRE(delivered == times.size() + repeated);
    REQUIRE(state == behind(Sampler(options, state).start(), 0));
    REQUIRE(state.batch + state.part_samples == 0);
  }
}

TEST_CASE("Sampler: continued with the same ranks and batches, the rest is the same", "[sampler]") {
  const auto [block, window] = GENERATE(table<std::uint64_t, std::uint64_t>({{0, 0}, {7, 2}}));
  const bool drop_last = GENERATE(false, true);
  SamplerOptions options{.samples = 101,
                         .batch_size = 4,
                         .shuffle = true,
                         .seed = 5,
                         .drop_last = drop_last,
                         .rank = 2,
                         .world_size = 3,
                         .block = block,
                         .window = window};
  const Sampler whole(options);
  for (std::uint64_t batch = 0; batch < whole.batches(); ++batch) {
    const State state = behind(whole.start(), 2 * whole.batches() + batch);
    const Sampler rest(options, state);
    REQUIRE(rest.start() == state);
    REQUIRE(rest.batches() == whole.batches());
    for (std::uint64_t later = batch; later < whole.batches(); ++later)
      REQUIRE(batch_of(rest, 2, later) == batch_of(whole, 2, later));
    REQUIRE(epoch_of(rest, 3) == epoch_of(whole, 3));
  }
}

TEST_CASE("Sampler refuses a state that it cannot continue, and says why", "[sampler]") {
  const SamplerOptions options{
      .samples = 40, .batch_size = 4, .shuffle = true, .seed = 5, .world_size = 2};
  const State state = behind(Sampler(options).start(), 3);
  const auto refusal = [&](auto change) {
    SamplerOptions other = options;
    State there = state;
    change(other, there);
    return thrown<std::invalid_argument>([&] { Sampler(other, there); });
  };
  using O = SamplerOptions;
  CHECK_THAT(refusal([](O& o, State&) { o.seed = 6; }), Mentions("seed is 5 there, and 6 here"));
  CHECK_THAT(refusal([](O& o, State&) { o.samples = 41; }), Mentions("samples is 40 there"));
  CHECK_THAT(refusal([](O& o, State&) { o.shuffle = false; }), Mentions("order is 2 there"));
  CHECK_THAT(refusal([](O& o, State&) { o.block = 4, o.window = 2; }),
             Mentions("order is 2 there"));
  CHECK_THAT(refusal([](O&, State& s) { s.batch = 5; }), Mentions("batch 5 of an epoch of 5"));
  CHECK_THAT(refusal([](O& o, State& s) { o.batch_size = 8, s.batch = 5; }),
             Mentions("of 40 samples, 40 cannot have been delivered"));
  CHECK_THAT(refusal([](O&, State& s) { s.part_batch = 4, s.part_samples = 10; }),
             Mentions("cannot have been delivered"));
  CHECK_THAT(refusal([](O& o, State&) { o.rank = 2; }), Mentions("rank is 2"));
  // Numbers of samples that are 8 modulo 2^64.
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  CHECK_THAT(refusal([](O&, State& s) { s.batch = 1, s.batch_size = kHalf + 4; }),
             Mentions("cannot have been delivered"));
  CHECK_THAT(refusal([](O&, State& s) { s.part_samples = 0 - std::uint64_t{16}; }),
             Mentions("cannot have been delivered"));

  SamplerOptions blocks = options;
  blocks.block = 4, blocks.window = 2;
  const State within = behind(Sampler(blocks).start(), 3);
  blocks.world_size = 1;
  CHECK_THAT(thrown<std::invalid_argument>([&] { Sampler(blocks, within); }),
             Mentions("with a window the ranks and batches: the state is in the middle"));

  SamplerOptions halves = options;
  halves.batch_size = 2;  // 16 samples are left: 4 of 10 batches.
  const Sampler rest(halves, state);
  CHECK(batch_of(rest, state.epoch, 6).size() == 2);
  CHECK_THAT(thrown<std::out_of_range>([&] { batch_of(rest, state.epoch, 5); }),
             Mentions("batch 5") && Mentions("continues at 6"));
}

TEST_CASE("Sampler: where drop_last leaves nothing of an epoch, the next one begins", "[sampler]") {
  SamplerOptions options{.samples = 10, .batch_size = 2, .drop_last = true, .world_size = 2};
  const State state = behind(Sampler(options).start(), 1);  // Behind 4 of 8.
  options.world_size = 3;                                   // 6 at once, and 6 are left.
  CHECK(Sampler(options, state).start().epoch == 0);
  options.batch_size = 3;
  const Sampler next(options, state);
  CHECK(next.start().epoch == 1);
  CHECK(next.start().batch == 0);
  CHECK(next.start().part_samples == 0);
  CHECK(epoch_of(next, 1) == epoch_of(Sampler(options), 1));
}

}  // namespace
}  // namespace penstock
