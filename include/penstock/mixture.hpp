// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mixture: a sampler that mixes data sets by weights. Like Sampler it is a pure function and stores
// no order: any thread may ask for any batch.
//
//   const penstock::Mixture mixture{
//       {{.data = {.samples = records.size(), .shuffle = true}, .weight = 0.7},
//        {.data = {.samples = 5000, .shuffle = true}, .weight = 0.3}},
//       {.samples = 100'000, .batch_size = 256, .seed = 7}};
//   std::vector<std::uint64_t> out;
//   mixture.samples(0, 2, out);                       // the samples of batch 2 of epoch 0
//   const auto [set, index] = mixture.place(out[0]);  // set 0: sample `index` of the records
//
// docs/recipes/mixing-data-sets.md has a pipeline over a mixture.
//
// A run is resumed as with a Sampler: on the same ranks by Prefetcher::restore, on others by
// Mixture(data_sets, options, ranks, state).

#include <cstddef>
#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <penstock/detail/order/divisor.hpp>
#include <penstock/detail/order/feistel_shape.hpp>
#include <penstock/sampler.hpp>
#include <penstock/state.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

struct Ranks;  // ranks.hpp

/// One of the data sets that a Mixture mixes.
struct MixedDataSet {
  /// Its size and its order: samples, shuffle, seed, block and window. The other members belong to
  /// the mixture, and must have their default values.
  SamplerOptions data;
  double weight = 1;  ///< its part of the samples, relative to the sum of all weights; above 0
};

/// Says which samples of which data set make up a batch.
///
/// The mixture is one endless list of positions, which all ranks use; an epoch of it is
/// `options.samples` positions. In any `period` successive positions each data set has the same
/// number of samples, `samples_per_period`: its weight's part of the period, rounded so that the
/// sum is the period. Within a period it is at any position less than one sample ahead of that rate
/// or behind it. Method: each sample gets the interval of positions in which its rate would have
/// it, and of those whose interval has begun the one whose interval ends first is next (Baruah,
/// Cohen, Plaxton, Varvel: "Proportionate progress", Algorithmica 1996).
///
/// Each data set is read in its own order from its beginning to its end, and then again in another
/// order, if `shuffle` is set: no sample of it comes a second time before all have come once. That
/// goes on across epochs of the mixture. passes() says how often an epoch reads a data set.
///
/// A batch of all ranks together is a part of the list, and each rank gets a part of it that lies
/// together, so the samples of each rank are mixed by the same weights. Where `options.samples` is
/// no multiple of such a batch, the last one is as in Sampler.
class Mixture {
 public:
  static constexpr std::uint64_t default_period = 10'000;  ///< in samples

  /// `options`: samples, the positions of an epoch over all ranks (0: as many as all data sets have
  /// together); batch_size, seed, drop_last, rank and world_size as in a Sampler. The order belongs
  /// to the data sets, so shuffle, block and window must have their default values. Takes time and
  /// memory proportional to `period`. Throws std::invalid_argument for other numbers, for more than
  /// 2^63 samples, and for a weight so small that the period has no sample of it.
  Mixture(const std::vector<MixedDataSet>& data_sets, SamplerOptions options,
          std::uint64_t period = default_period);
  /// The same with rank and world size of `ranks`.
  Mixture(const std::vector<MixedDataSet>& data_sets, SamplerOptions options, const Ranks& ranks,
          std::uint64_t period = default_period);
  /// Continues the run that `resumed` is of, on any number of ranks, as Sampler does.
  Mixture(const std::vector<MixedDataSet>& data_sets, SamplerOptions options, const State& resumed,
          std::uint64_t period = default_period);
  /// The same with rank and world size of `ranks`.
  Mixture(const std::vector<MixedDataSet>& data_sets, SamplerOptions options, const Ranks& ranks,
          const State& resumed, std::uint64_t period = default_period);

  /// A sample of one data set.
  struct Place {
    std::size_t set = 0;      ///< number of the data set
    std::uint64_t index = 0;  ///< number of the sample in it
    bool operator==(const Place&) const = default;
  };
  /// Says what a number of samples() names: the data sets are numbered one after the other. Takes
  /// time proportional to the logarithm of the number of data sets. Any thread.
  Place place(std::uint64_t sample) const noexcept;

  /// Batches of one epoch on this rank, at least 1; all ranks have the same number.
  std::uint64_t batches() const noexcept { return positions_.batches(); }
  /// Samples of all data sets together.
  std::uint64_t dataset_size() const noexcept { return ends_.back(); }
  /// Samples in a full batch of one rank.
  std::int64_t batch_size() const noexcept { return positions_.batch_size(); }
  /// Number of ranks.
  int world_size() const noexcept { return positions_.world_size(); }
  /// The run's seed.
  std::uint64_t seed() const noexcept { return positions_.seed(); }
  /// The state of a run over this mixture before its first batch.
  const State& start() const noexcept { return start_; }
  /// Samples of data set `set` in each period.
  std::uint64_t samples_per_period(std::size_t set) const { return sets_.at(set).per_period; }
  /// How often an epoch of the mixture reads each sample of data set `set` on average: above 1, it
  /// is repeated (upsampled); below 1, an epoch leaves a part of it to the next one.
  double passes(std::size_t set) const;

  /// Replaces the contents of `out` by the samples of a batch, in order, as Sampler::samples does.
  /// Any number of threads may call it, each with its own `out`.
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const;

 private:
  /// What is needed for each sample is in one cache line.
  struct alignas(64) Set {
    std::uint64_t key = 0;         // of its orders
    std::uint64_t per_period = 0;  // samples
    std::uint64_t first = 0;       // number of its first sample among all
    detail::Divisor by_size;       // divides by data.samples
    detail::FeistelShape shape;    // of the permutations of its samples
    bool is_shuffled = false;      // by a permutation; not in blocks
    bool is_in_blocks = false;
    SamplerOptions data;
  };
  /// What is at one position of each period.
  struct Turn {
    std::uint32_t set = 0, number = 0;  // `number` samples of the set come before, in the period
  };

  // At construction
  void take(const std::vector<MixedDataSet>& data_sets, std::uint64_t period);
  void share_period(const std::vector<MixedDataSet>& data_sets);
  void fill_period();
  // The samples of a batch
  void put(std::uint64_t position, std::uint64_t* out, std::size_t count) const;
  void put_blocks(std::uint64_t position, std::uint64_t* out, std::size_t count) const;
  void put_run(const Set& set, std::uint64_t number, std::uint64_t* out, std::size_t count) const;

  std::vector<Set> sets_;
  std::vector<std::uint64_t> ends_;  // numbers behind the last samples of the sets
  bool in_blocks_ = false;           // a set has blocks and a window
  std::vector<Turn> period_;
  Sampler positions_;  // of an epoch, in their order
  State start_;
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/order/mixture.hpp>
#endif
