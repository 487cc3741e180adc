// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sampler: which samples make up batch b of epoch e on rank r. A pure function: nothing is stored,
// so that a data set of 10^12 samples costs what one of 10 does, and any batch can be asked for at
// any time, in any order, on any thread.
//
//   penstock::Sampler sampler{
//       {.samples = records.size(), .batch_size = 256, .shuffle = true, .seed = 7}};
//   std::vector<std::uint64_t> out;
//   sampler.samples(0, 2, out);           // of epoch 0 the batch 2
//
// Ranks are served by the rules of PyTorch's DistributedSampler and DataLoader: see SamplerOptions.

#include <cstdint>
#include <penstock/detail/inline.hpp>
#include <vector>

namespace penstock {

/// The samples 0, 1, ..., `samples` - 1, shuffled anew in each epoch or not, form one list that all
/// ranks agree on. Rank r takes the list's places r, r + world_size, r + 2 * world_size, ...
///
/// Where `samples` does not divide by `world_size`, the list is first continued from its own
/// beginning, as often as it takes, so that all ranks get the same number: some samples come twice.
/// With `drop_last` it is cut short instead, and a last batch that would not be full is left out
/// too.
struct SamplerOptions {
  std::uint64_t samples = 0;    ///< size of the data set, 1 to 2^63
  std::int64_t batch_size = 0;  ///< samples in a batch of one rank, at least 1
  bool shuffle = false;
  std::uint64_t seed = 0;  ///< the same on all ranks
  bool drop_last = false;
  int rank = 0;  ///< of this process, 0 to world_size - 1
  int world_size = 1;
};

class Sampler {
 public:
  /// Throws std::invalid_argument for numbers outside the ranges of SamplerOptions, and where
  /// drop_last leaves no batch.
  explicit Sampler(SamplerOptions options);

  /// Batches of one epoch on this rank, at least 1; all ranks have the same number.
  std::uint64_t batches() const noexcept { return batches_; }

  /// Samples of one epoch on this rank: the sum over its batches.
  std::uint64_t samples_per_epoch() const noexcept {
    return options_.drop_last ? batches_ * batch_samples() : rank_samples_;
  }

  std::uint64_t dataset_size() const noexcept { return options_.samples; }
  std::int64_t batch_size() const noexcept { return options_.batch_size; }
  int world_size() const noexcept { return options_.world_size; }
  std::uint64_t seed() const noexcept { return options_.seed; }
  /// Names the rule that orders the samples: a release that orders them otherwise has another
  /// number, so that no run goes on within an epoch under a rule that it did not begin with.
  std::uint64_t order() const noexcept { return options_.shuffle ? 2 : 1; }
  const SamplerOptions& options() const noexcept { return options_; }

  /// Puts the samples of a batch into `out`, in order; what `out` held is gone. Only the last batch
  /// of an epoch may be shorter than batch_size(). Takes time in proportion to the batch, and
  /// allocates only where the capacity of `out` is less. Any number of threads may call it, each
  /// with its own `out`. Throws std::out_of_range unless batch < batches().
  void samples(std::uint64_t epoch, std::uint64_t batch, std::vector<std::uint64_t>& out) const;

 private:
  std::uint64_t batch_samples() const noexcept {
    return static_cast<std::uint64_t>(options_.batch_size);
  }

  void put_places(std::uint64_t first, std::vector<std::uint64_t>& out) const noexcept;
  void validate() const;

  SamplerOptions options_;
  std::uint64_t rank_samples_ = 0;  // places of the list that are this rank's
  std::uint64_t batches_ = 0;
};

/// The seed of one batch (Ticket::seed): a pure function, without collisions within an epoch, and
/// unrelated to the order of the samples.
std::uint64_t batch_seed(std::uint64_t run_seed, std::uint64_t epoch, std::uint64_t batch) noexcept;

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/sampler.hpp>
#endif
