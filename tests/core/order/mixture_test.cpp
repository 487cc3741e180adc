// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <penstock/any_sampler.hpp>
#include <penstock/mixture.hpp>
#include <penstock/ranks.hpp>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/sampled.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using test::batch_of;
using test::counting;
using test::epoch_of;
using test::Mentions;
using test::Samples;
using test::thrown;

using DataSets = std::vector<MixedDataSet>;

DataSets two(bool shuffle = true) {
  return {{.data = {.samples = 500, .shuffle = shuffle}, .weight = 3},
          {.data = {.samples = 2000, .shuffle = shuffle}, .weight = 1}};
}

/// How many samples of each data set there are.
std::vector<std::uint64_t> counts_of(const Mixture& mixture, const Samples& samples,
                                     std::size_t sets) {
  std::vector<std::uint64_t> counts(sets, 0);
  for (const std::uint64_t sample : samples) ++counts[mixture.place(sample).set];
  return counts;
}

/// The indices of one data set, in order.
Samples of_set(const Mixture& mixture, const Samples& samples, std::size_t set) {
  Samples indices;
  for (const std::uint64_t sample : samples)
    if (mixture.place(sample).set == set) indices.push_back(mixture.place(sample).index);
  return indices;
}

// ---- How many of each data set
// -------------------------------------------------------------------

TEST_CASE("Mixture: any period has each data set's part, and it is never a sample off",
          "[mixture]") {
  std::mt19937 random(GENERATE(range(0U, 12U)));
  const std::size_t sets = 1 + random() % 40;
  const std::uint64_t period = 200 + random() % 2000;
  DataSets data_sets;
  double sum = 0;
  for (std::size_t i = 0; i < sets; ++i) {
    const double weight =
        1 + static_cast<double>(random() % 1000) / static_cast<double>(1 + random() % 50);
    data_sets.push_back(
        {.data = {.samples = 1 + random() % 3000, .shuffle = true}, .weight = weight});
    sum += weight;
  }
  for (MixedDataSet& data_set : data_sets)  // none so small that the period has none of it
    data_set.weight = std::max(data_set.weight, 1.1 * sum / static_cast<double>(period));
  sum = 0;
  for (const MixedDataSet& data_set : data_sets) sum += data_set.weight;
  const Mixture mixture(data_sets, {.samples = 5 * period, .batch_size = 100}, period);

  std::uint64_t all = 0;
  for (std::size_t set = 0; set < sets; ++set) {
    all += mixture.samples_per_period(set);
    CHECK(std::abs(static_cast<double>(mixture.samples_per_period(set)) -
                   data_sets[set].weight / sum * static_cast<double>(period)) < 1);
  }
  CHECK(all == period);
  const Samples samples = epoch_of(mixture, 0);
  REQUIRE(samples.size() == 5 * period);
  std::vector<std::uint64_t> counts(sets, 0);
  double most = 0;
  for (std::uint64_t position = 0; position < samples.size(); ++position) {
    ++counts[mixture.place(samples[position]).set];
    for (std::size_t set = 0; set < sets; ++set)
      most = std::max(
          most, std::abs(static_cast<double>(counts[set]) -
                         static_cast<double>(mixture.samples_per_period(set)) *
                             static_cast<double>(position + 1) / static_cast<double>(period)));
  }
  CHECK(most < 1);
  // The period may begin anywhere.
  const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(random() % (4 * period));
  counts = counts_of(mixture, Samples(begin, begin + static_cast<std::ptrdiff_t>(period)), sets);
  for (std::size_t set = 0; set < sets; ++set)
    CHECK(counts[set] == mixture.samples_per_period(set));
}

TEST_CASE("Mixture: weights are relative, and the period is theirs to the sample", "[mixture]") {
  const Mixture mixture({{.data = {.samples = 10}, .weight = 0.1},
                         {.data = {.samples = 10}, .weight = 0.2},
                         {.data = {.samples = 10}, .weight = 0.7}},
                        {.batch_size = 10});
  CHECK(mixture.samples_per_period(0) == 1000);
  CHECK(mixture.samples_per_period(1) == 2000);
  CHECK(mixture.samples_per_period(2) == 7000);
  CHECK_THROWS_AS(mixture.samples_per_period(3), std::out_of_range);
  CHECK(Mixture({{.data = {.samples = 10}}}, {.batch_size = 10}).samples_per_period(0) == 10'000);
}

TEST_CASE("Mixture: of data sets that lose as much by rounding, the first have a sample more",
          "[mixture]") {
  const DataSets six(6, {.data = {.samples = 10}});
  const Mixture mixture(six, {.batch_size = 10}, 20);
  for (std::size_t set = 0; set < 6; ++set)
    CHECK(mixture.samples_per_period(set) == (set < 2 ? 4u : 3u));
}

TEST_CASE("Mixture: data sets of one sample, a period of one, and 2^63 samples", "[mixture]") {
  const Mixture one({{.data = {.samples = 1}}}, {.samples = 4, .batch_size = 4}, 1);
  CHECK(batch_of(one, 0, 0) == Samples{0, 0, 0, 0});
  const std::uint64_t most = std::uint64_t{1} << 63;
  const DataSets both{{.data = {.samples = most - 1}}, {.data = {.samples = 1}}};
  CHECK(Mixture(both, {.batch_size = 2}).place(most - 1) == Mixture::Place{1, 0});
}

TEST_CASE("Mixture: each rank's batches have the weights, whatever the number of ranks",
          "[mixture]") {
  const int world = GENERATE(2, 3, 4, 10, 100);
  CAPTURE(world);
  for (int rank = 0; rank < world; rank += 3) {
    const Mixture mixture({{.data = {.samples = 1000}}, {.data = {.samples = 1000}}},
                          {.samples = 20'000, .batch_size = 20, .rank = rank, .world_size = world});
    for (std::uint64_t batch = 0; batch + 1 < mixture.batches(); ++batch)
      CHECK(counts_of(mixture, batch_of(mixture, 0, batch), 2)[0] == 10);
  }
}

// ---- Which samples
// -------------------------------------------------------------------------------

TEST_CASE("Mixture without shuffle counts through each data set, and again", "[mixture]") {
  const Mixture mixture(two(false), {.samples = 1000, .batch_size = 7});
  CHECK(mixture.dataset_size() == 2500);
  CHECK(mixture.passes(0) == Approx(1.5));
  CHECK(mixture.passes(1) == Approx(0.125));
  Samples first = counting(500), samples = epoch_of(mixture, 0);
  const Samples again = counting(250);
  first.insert(first.end(), again.begin(), again.end());
  CHECK(of_set(mixture, samples, 0) == first);
  CHECK(of_set(mixture, samples, 1) == counting(250));
  // The next epoch goes on where this one has ended.
  CHECK(of_set(mixture, epoch_of(mixture, 1), 1).front() == 250);
  CHECK(of_set(mixture, epoch_of(mixture, 1), 0).front() == 250);
  CHECK(mixture.place(499) == Mixture::Place{0, 499});
  CHECK(mixture.place(500) == Mixture::Place{1, 0});
  CHECK(mixture.place(2499) == Mixture::Place{1, 1999});
}

TEST_CASE("Mixture: no sample of a data set comes again before all have come", "[mixture]") {
  const std::uint64_t block = GENERATE(0, 16);
  const std::uint64_t window = block == 0 ? 0 : 4;
  DataSets data_sets = two();
  data_sets[0].data.block = block, data_sets[0].data.window = window;
  const Mixture mixture(data_sets, {.samples = 1000, .batch_size = 7, .seed = 5});
  Samples samples;
  for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
    const Samples some = epoch_of(mixture, epoch);
    samples.insert(samples.end(), some.begin(), some.end());
  }
  std::vector<Samples> passes;
  for (std::size_t set = 0; set < 2; ++set) {
    const Samples indices = of_set(mixture, samples, set);
    const std::size_t size = data_sets[set].data.samples;
    for (std::size_t begin = 0; begin + size <= indices.size(); begin += size) {
      const auto from = indices.begin() + static_cast<std::ptrdiff_t>(begin);
      passes.emplace_back(from, from + static_cast<std::ptrdiff_t>(size));
      Samples sorted = passes.back();
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == counting(size));
    }
  }
  REQUIRE(passes.size() == 13);  // 6,000 of 500 and 2,000 of 2,000
  CHECK(std::set<Samples>(passes.begin(), passes.end()).size() == 13);
  const Mixture other(data_sets, {.samples = 1000, .batch_size = 7, .seed = 6});
  CHECK(epoch_of(other, 0) != epoch_of(mixture, 0));
}

TEST_CASE("Mixture: data sets of one size and seed have different orders", "[mixture]") {
  const Mixture mixture(
      {{.data = {.samples = 100, .shuffle = true}}, {.data = {.samples = 100, .shuffle = true}}},
      {.batch_size = 10});
  const Samples samples = epoch_of(mixture, 0);
  CHECK(of_set(mixture, samples, 0) != of_set(mixture, samples, 1));
}

TEST_CASE("Mixture: batches are parts of one list, whatever their size", "[mixture]") {
  // More data sets than a batch has samples, and batches of more than are taken at a time.
  DataSets data_sets;
  for (std::uint64_t i = 0; i < 700; ++i)
    data_sets.push_back({.data = {.samples = 50 + i, .shuffle = i % 2 == 0},
                         .weight = 1 + static_cast<double>(i % 5)});
  const SamplerOptions one{.samples = 6000, .batch_size = 6000};
  const Samples all = epoch_of(Mixture(data_sets, one), 3);
  for (const std::int64_t size : {1, 3, 255, 1999}) {
    SamplerOptions options = one;
    options.batch_size = size;
    CHECK(epoch_of(Mixture(data_sets, options), 3) == all);
  }
}

/// Whether the samples of a data set, as many as it has, are all of them, and not in order.
bool is_shuffle_of(const Mixture& mixture, const Samples& samples, std::size_t set,
                   std::size_t size) {
  Samples indices = of_set(mixture, samples, set);
  REQUIRE(indices.size() >= size);
  indices.resize(size);
  Samples sorted = indices;
  std::sort(sorted.begin(), sorted.end());
  return sorted == counting(size) && indices != sorted;
}

TEST_CASE("Mixture: data sets that are all shuffled in blocks", "[mixture]") {
  const SamplerOptions data{.samples = 300, .shuffle = true, .block = 8, .window = 4};
  const Mixture mixture({{.data = data}, {.data = data}}, {.batch_size = 50});
  const Samples samples = epoch_of(mixture, 0);
  CHECK(is_shuffle_of(mixture, samples, 0, 300));
  CHECK(is_shuffle_of(mixture, samples, 1, 300));
}

TEST_CASE("Mixture: more data sets in blocks than a table of them has room for", "[mixture]") {
  const SamplerOptions data{.samples = 300, .shuffle = true, .block = 8, .window = 4};
  DataSets data_sets(1100, {.data = data});
  for (const std::size_t often : {0u, 1024u}) data_sets[often].weight = 1000;
  const Mixture mixture(data_sets, {.samples = 1000, .batch_size = 500});
  const Samples samples = epoch_of(mixture, 0);
  CHECK(is_shuffle_of(mixture, samples, 0, 300));
  CHECK(is_shuffle_of(mixture, samples, 1024, 300));
}

TEST_CASE("Mixture writes nothing behind the samples of a batch", "[mixture]") {
  DataSets data_sets = two();
  if (GENERATE(false, true))
    for (MixedDataSet& data_set : data_sets) data_set.data.block = 8, data_set.data.window = 4;
  const Mixture mixture(data_sets, {.samples = 1000, .batch_size = 100});
  Samples out(101, 7);
  mixture.samples(0, 0, out);
  REQUIRE(out.size() == 100);
  CHECK(out.data()[100] == 7);  // The memory is still there.
}

// ---- Ranks, and resuming
// -------------------------------------------------------------------------

/// The samples of some batches of all ranks.
std::multiset<std::uint64_t> of_all_ranks(const DataSets& data_sets, SamplerOptions options,
                                          std::uint64_t epoch, std::uint64_t begin,
                                          std::uint64_t end, const State* resumed = nullptr) {
  std::multiset<std::uint64_t> all;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    const Mixture mixture =
        resumed == nullptr ? Mixture(data_sets, options) : Mixture(data_sets, options, *resumed);
    for (std::uint64_t b = begin; b < std::min(end, mixture.batches()); ++b) {
      const Samples samples = batch_of(mixture, epoch, b);
      all.insert(samples.begin(), samples.end());
    }
  }
  return all;
}

TEST_CASE("Mixture: all ranks together have the epoch", "[mixture]") {
  const SamplerOptions alone{.samples = 1200, .batch_size = 1200};
  const Samples epoch = epoch_of(Mixture(two(), alone), 2);
  SamplerOptions options{.samples = 1200, .batch_size = 25};
  options.world_size = GENERATE(1, 2, 3, 8, 16);
  const auto all = of_all_ranks(two(), options, 2, 0, ~0ull);
  CHECK(all == std::multiset<std::uint64_t>(epoch.begin(), epoch.end()));
}

TEST_CASE("Mixture: an epoch that no batch divides is filled up, or cut, as in Sampler",
          "[mixture]") {
  SamplerOptions options{.samples = 100, .batch_size = 8, .world_size = 3};
  options.drop_last = GENERATE(false, true);
  const Sampler sampler(options);
  const Mixture mixture(two(), options);
  CHECK(mixture.batches() == sampler.batches());
  const auto all = of_all_ranks(two(), options, 0, 0, ~0ull);
  CHECK(all.size() == 3 * sampler.samples_per_epoch());
  const Samples epoch = epoch_of(Mixture(two(), {.samples = 100, .batch_size = 100}), 0);
  const std::set<std::uint64_t> different(all.begin(), all.end());
  const std::size_t wanted = options.drop_last ? 96 : 100;
  for (std::size_t i = 0; i < wanted; ++i) CHECK(different.count(epoch[i]) == 1);
}

TEST_CASE("Mixture resumes within an epoch on any number of ranks, each sample once", "[mixture]") {
  const int before = GENERATE(1, 2, 4), after = GENERATE(1, 3, 8);
  CAPTURE(before, after);
  SamplerOptions options{.samples = 2400, .batch_size = 10, .seed = 3, .world_size = before};
  State state = Mixture(two(), options).start();
  state.epoch = 1, state.batch = 24 / static_cast<std::uint64_t>(before);
  auto all = of_all_ranks(two(), options, 1, 0, state.batch);
  CHECK(all.size() == 240);
  options.world_size = after;
  const Mixture rest(two(), options, Ranks{.rank = 0, .world_size = after}, state);
  CHECK(rest.start().epoch == 1);
  CHECK(rest.start().order == state.order);
  const auto others = of_all_ranks(two(), options, 1, rest.start().batch, ~0ull, &state);
  all.insert(others.begin(), others.end());
  const Samples epoch =
      epoch_of(Mixture(two(), {.samples = 2400, .batch_size = 2400, .seed = 3}), 1);
  CHECK(all == std::multiset<std::uint64_t>(epoch.begin(), epoch.end()));
}

TEST_CASE("Mixture: a run with other weights is not resumed within an epoch", "[mixture]") {
  const SamplerOptions options{.samples = 1000, .batch_size = 10};
  const Mixture mixture(two(), options);
  State state = mixture.start();
  state.batch = 7;
  CHECK(Mixture(two(), options, state).start() == state);
  const auto refused = [&](const DataSets& data_sets, std::uint64_t period) {
    return thrown<std::invalid_argument>([&] { Mixture(data_sets, options, state, period); });
  };
  DataSets others = two();
  others[0].weight = 4;
  CHECK_THAT(refused(others, Mixture::default_period), Mentions("order"));
  others = two();
  others[1].data.samples = 2001;
  CHECK_THAT(refused(others, Mixture::default_period), Mentions("order"));
  CHECK_THAT(refused(two(), 1000), Mentions("order"));
  CHECK_THAT(why_incompatible(state, Sampler(options).start()), Mentions("order"));
  state.batch = 0, state.epoch = 4;  // Between epochs the weights may change.
  CHECK(Mixture(others, options, state).start().epoch == 4);
}

TEST_CASE("Mixture at position 10^12 is as at its beginning", "[mixture]") {
  const Mixture mixture(two(), {.samples = 1'000'000'000'000'000, .batch_size = 100});
  const Samples far = batch_of(mixture, 0, 10'000'000'000);
  CHECK(counts_of(mixture, far, 2) == std::vector<std::uint64_t>{75, 25});
}

// ---- How it is used
// ------------------------------------------------------------------------------

TEST_CASE("Mixture: samples allocates nothing after the first batch", "[mixture]") {
  const Mixture mixture(two(), {.batch_size = 64});
  Samples out = batch_of(mixture, 0, 0);
  const std::uint64_t before = test::allocations_of_this_thread();
  for (std::uint64_t batch = 0; batch < mixture.batches(); ++batch) mixture.samples(1, batch, out);
  CHECK(test::allocations_of_this_thread() == before);
  const AnySampler any = mixture;
  CHECK(any.start() == mixture.start());
  CHECK(batch_of(any, 1, 2) == batch_of(mixture, 1, 2));
}

TEST_CASE("Mixture refuses what it cannot mix, and says what to change", "[mixture]") {
  const auto refused = [](const DataSets& data_sets, SamplerOptions options = {.batch_size = 1},
                          std::uint64_t period = Mixture::default_period) {
    return thrown<std::invalid_argument>([&] { Mixture(data_sets, options, period); });
  };
  DataSets sets = two();
  CHECK_THAT(refused({}), Mentions("Mixture: there is no data set"));
  CHECK_THAT(refused(sets, {.batch_size = 1, .shuffle = true}),
             Mentions("belong to each data set"));
  CHECK_THAT(refused(sets, {.batch_size = 1}, 0), Mentions("period is 0"));
  CHECK_THAT(refused(sets, {}), Mentions("batch_size is 0"));
  for (const double weight : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    sets[1].weight = weight;
    CHECK_THAT(refused(sets), Mentions("data set 1: weight is"));
  }
  sets[1].weight = 1e-5;
  CHECK_THAT(refused(sets), Mentions("data set 1: its weight is") &&
                                Mentions("a period of 10000 has no sample of it"));
  sets = two();
  sets[1].data.samples = 0;
  CHECK_THAT(refused(sets), Mentions("data set 1: samples is 0"));
  sets[1].data.samples = std::uint64_t{1} << 63;
  CHECK_THAT(refused(sets), Mentions("data set 1: samples is 9223372036854775808"));
  sets = two();
  sets[0].data.batch_size = 5;
  CHECK_THAT(refused(sets), Mentions("data set 0: batch_size, drop_last, rank"));
  sets = two();
  sets[0].data.window = 4;
  CHECK_THAT(refused(sets), Mentions("data set 0: Sampler: block is 0"));
}

}  // namespace
}  // namespace penstock
