// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sampler: which samples make up batch b of epoch e on rank r. It is a pure function and stores no
// permutation: its memory does not depend on the size of the data set, and any thread may ask for
// any batch, in any order.
//
//   penstock::Sampler sampler{
//       {.samples = records.size(), .batch_size = 256, .shuffle = true, .seed = 7}};
//   std::vector<std::uint64_t> out;
//   sampler.samples(0, 2, out);           // the samples of batch 2 of epoch 0
//
// A run is resumed on the same ranks by Prefetcher::restore, and on others, or with other batches,
// by a sampler of the rest:
//
//   const penstock::State saved = prefetcher.state();  // on 8 ranks, in the middle of an epoch
//   penstock::Sampler rest{{.samples = 600, .batch_size = 64}, ranks, saved};  // on 6
//   penstock::Prefetcher<Images> resumed(layout, rest, source, {.epochs = 10});  // of all the run
//
// The resumed pipeline begins where the others ended. Its `epochs` counts from epoch 0, so it is
// that of the run before.
//
// Samples are divided among ranks as PyTorch's DistributedSampler and DataLoader do: see
// SamplerOptions.

#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <penstock/state.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

struct Ranks;  // ranks.hpp

/// Which samples a rank gets, in which order, in batches of which size. All ranks use the same list
/// of the samples 0, 1, ..., `samples` - 1, which is shuffled again for each epoch if `shuffle` is
/// set. Rank r takes the positions r, r + world_size, r + 2 * world_size, ... of the list.
///
/// If `samples` is not a multiple of `world_size`, the list is extended by repeating it from its
/// beginning until it is: every rank gets the same number of samples, and some samples occur twice.
/// With `drop_last` the list is truncated instead, and so is a last batch that is not full.
///
/// With `block` and `window`, storage is read in runs: samples that lie together in storage must
/// have neighbouring numbers. Blocks of `block` samples come in a random order, and samples are
/// shuffled within windows of at most `window` blocks (a rank's windows have equal numbers of
/// blocks, give or take one). So a batch comes from `window` blocks, and a reader that announces
/// `window * block` samples ahead reads whole blocks (docs/shuffle.md says how far this is from a
/// full shuffle). Ranks have the same numbers of samples as without, but each rank has a part of
/// the blocks of its own. A block between two ranks is cut in two. Where a rank needs a sample more
/// to have as many as the others, it repeats the first one of the next rank's list.
struct SamplerOptions {
  std::uint64_t samples = 0;  ///< size of the data set, 1 to 2^63
  /// Samples in a batch of one rank, at least 1. 0: that of the layout, where a Prefetcher or a
  /// BatchProducer is given these options; a Sampler that is made by itself needs a number.
  std::int64_t batch_size = 0;
  bool shuffle = false;    ///< another random order in each epoch; false: the order of the numbers
  std::uint64_t seed = 0;  ///< of the shuffle and of Ticket::seed; the same on all ranks
  bool drop_last = false;  ///< leaves out what does not fill a batch on every rank
  int rank = 0;            ///< number of this process, 0 to world_size - 1
  int world_size = 1;      ///< number of ranks, at least 1
  /// Samples in a block, 1 to `samples`; 0 without `window`: shuffles all samples.
  std::uint64_t block = 0;
  std::uint64_t window = 0;  ///< blocks in a window, at least 1; needs `shuffle`
};

/// Says which samples make up a batch, by the rules of SamplerOptions. A value: copies are cheap
/// and independent, and any number of threads may call its members.
class Sampler {
 public:
  /// Throws std::invalid_argument for numbers outside the ranges of SamplerOptions, and where
  /// drop_last leaves no batch.
  explicit Sampler(SamplerOptions options);
  /// The same with rank and world size of `ranks`; what `options` say of them is not used.
  Sampler(SamplerOptions options, const Ranks& ranks);

  /// Continues the run that `resumed` is of: a producer or a prefetcher over this sampler begins
  /// there. In the middle of an epoch the ranks and the batch size may differ from those of the run
  /// before. Both parts of the epoch together then have each of its samples once, but for those
  /// that SamplerOptions repeats or leaves out at the end of the second. The batches that are left
  /// are the last of the epoch: they are numbered up to batches() - 1. Where drop_last leaves no
  /// batch, it begins at the next epoch. `epochs` of the pipeline counts those before, too. Throws
  /// std::invalid_argument, too, if seed or samples are not those of `resumed`, and in the middle
  /// of an epoch if the order is another, or if block and window are set and ranks or batch size
  /// differ.
  Sampler(SamplerOptions options, const State& resumed);
  /// The same with rank and world size of `ranks`.
  Sampler(SamplerOptions options, const Ranks& ranks, const State& resumed);

  /// Batches of one epoch on this rank, at least 1; all ranks have the same number.
  std::uint64_t batches() const noexcept { return batches_; }

  /// Samples of one epoch on this rank: the sum over its batches.
  std::uint64_t samples_per_epoch() const noexcept {
    return options_.drop_last ? batches_ * batch_samples() : rank_samples_;
  }

  /// Samples in the data set, over all ranks.
  std::uint64_t dataset_size() const noexcept { return options_.samples; }
  /// Samples in a full batch of one rank.
  std::int64_t batch_size() const noexcept { return options_.batch_size; }
  /// Number of ranks.
  int world_size() const noexcept { return options_.world_size; }
  /// The run's seed.
  std::uint64_t seed() const noexcept { return options_.seed; }
  /// Identifies the algorithm that orders the samples. A release that changes the order changes
  /// this number, and a run cannot be resumed in the middle of an epoch under another order.
  std::uint64_t order() const noexcept;
  /// The options that it was made with; rank and world size are those of `ranks` if these were
  /// given.
  const SamplerOptions& options() const noexcept { return options_; }
  /// The state of a run over this sampler before its first batch.
  const State& start() const noexcept { return start_; }

  /// Replaces the contents of `out` by the samples of a batch, in order. Only the last batch of an
  /// epoch may be shorter than batch_size(). Takes time proportional to the batch, and allocates
  /// only if the capacity of `out` is too small. Any number of threads may call it, each with its
  /// own `out`. Throws std::out_of_range unless batch < batches(), and for batches of the epoch
  /// that is continued that are before start().part_batch.
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const;

 private:
  std::uint64_t batch_samples() const noexcept {
    return static_cast<std::uint64_t>(options_.batch_size);
  }

  void put_blocks(std::uint64_t epoch, std::uint64_t first, std::vector<std::uint64_t>& out) const;
  void put_places(std::uint64_t delivered, std::uint64_t first,
                  std::vector<std::uint64_t>& out) const noexcept;
  void validate() const;
  std::uint64_t share_of(std::uint64_t samples) const noexcept;
  std::uint64_t batches_of(std::uint64_t rank_samples) const noexcept;
  std::uint64_t begins_at(std::uint64_t delivered) const noexcept;

  SamplerOptions options_;
  std::uint64_t rank_samples_ = 0;  // positions of the list that belong to this rank
  std::uint64_t batches_ = 0;
  State start_;
};

/// The seed of one batch (Ticket::seed). A pure function, without collisions within an epoch, and
/// independent of the order of the samples.
std::uint64_t batch_seed(std::uint64_t run_seed, std::uint64_t epoch, std::uint64_t batch) noexcept;

namespace detail {
/// Returns `options` with rank and world size of `ranks`.
SamplerOptions with_ranks(SamplerOptions options, const Ranks& ranks);
}  // namespace detail

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/order/sampler.hpp>
#endif
