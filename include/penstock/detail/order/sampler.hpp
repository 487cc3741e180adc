// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/order/block_order.hpp>
#include <penstock/detail/order/permutation.hpp>
#include <penstock/detail/order/state.hpp>
#include <penstock/ranks.hpp>
#include <penstock/sampler.hpp>
#include <penstock/state.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

PENSTOCK_INLINE SamplerOptions with_ranks(SamplerOptions options, const Ranks& ranks) {
  options.rank = ranks.rank;
  options.world_size = ranks.world_size;
  return options;
}

}  // namespace detail

PENSTOCK_INLINE Sampler::Sampler(SamplerOptions options, const Ranks& ranks)
    : Sampler(detail::with_ranks(options, ranks)) {}

PENSTOCK_INLINE Sampler::Sampler(SamplerOptions options) : options_(options) {
  validate();
  rank_samples_ = share_of(options.samples);
  batches_ = batches_of(rank_samples_);
  start_ = {.seed = options.seed,
            .samples = options.samples,
            .order = order(),
            .batches = batches_,
            .batch_size = batch_samples(),
            .world_size = static_cast<std::uint64_t>(options.world_size)};
  if (batches_ == 0)
    throw std::invalid_argument("Sampler: no batch is full, and drop_last leaves out the others: " +
                                std::to_string(options.samples) + " samples over world_size " +
                                std::to_string(options.world_size) + " make " +
                                std::to_string(rank_samples_) + " for a rank, and batch_size is " +
                                std::to_string(options.batch_size) +
                                ": lower batch_size, or set drop_last to false");
}

PENSTOCK_INLINE Sampler::Sampler(SamplerOptions options, const State& resumed) : Sampler(options) {
  const auto require_none = [&](const std::string& why) {
    if (!why.empty()) throw std::invalid_argument("Sampler: " + why);
  };
  State at_its_start = resumed;
  at_its_start.batch = at_its_start.part_batch = at_its_start.part_samples = 0;
  require_none(why_incompatible(at_its_start, start_));
  start_.epoch = resumed.epoch;
  if (!detail::is_within_epoch(resumed)) return;

  if (options.window != 0 || resumed.order != start_.order) {
    if (const std::string why = why_incompatible(resumed, start_); !why.empty())
      require_none(
          "within an epoch, the order must stay, and with a window the ranks and batches: " + why);
    start_.batch = resumed.batch;
    return;
  }
  if (resumed.batches == batches_ && resumed.batch_size == start_.batch_size &&
      resumed.world_size == start_.world_size &&
      begins_at(resumed.part_samples) == resumed.part_batch) {
    require_none(why_incompatible(resumed, resumed));
    start_ = resumed;
    return;
  }
  const std::uint64_t delivered = detail::delivered(resumed);
  if (resumed.batch < resumed.part_batch || delivered == 0 || delivered >= options.samples)
    require_none("within an epoch of " + std::to_string(options.samples) + " samples, " +
                 std::to_string(delivered) + " cannot have been delivered; the state is " +
                 to_string(resumed));
  start_.part_batch = start_.batch = begins_at(delivered);
  start_.part_samples = delivered;
  if (start_.batch == batches_) start_ = detail::state_at(start_, resumed.epoch + 1, 0);
}

PENSTOCK_INLINE Sampler::Sampler(SamplerOptions options, const Ranks& ranks, const State& resumed)
    : Sampler(detail::with_ranks(options, ranks), resumed) {}

/// Returns the first batch of the part of an epoch that follows `delivered` samples.
PENSTOCK_INLINE std::uint64_t Sampler::begins_at(std::uint64_t delivered) const noexcept {
  const std::uint64_t left = options_.samples - std::min(delivered, options_.samples);
  return batches_ - batches_of(share_of(left));
}

/// Returns the samples of one rank if all ranks together have `samples`.
PENSTOCK_INLINE std::uint64_t Sampler::share_of(std::uint64_t samples) const noexcept {
  const std::uint64_t world = static_cast<std::uint64_t>(options_.world_size);
  return samples / world + (samples % world != 0 && !options_.drop_last ? 1 : 0);
}

PENSTOCK_INLINE std::uint64_t Sampler::batches_of(std::uint64_t rank_samples) const noexcept {
  const bool partial = rank_samples % batch_samples() != 0 && !options_.drop_last;
  return rank_samples / batch_samples() + (partial ? 1 : 0);
}

PENSTOCK_INLINE void Sampler::samples(std::uint64_t epoch, std::uint64_t batch,
                                      std::vector<std::uint64_t>& out) const {
  // In the epoch that is continued, the list begins after the samples that were delivered, and the
  // batches begin at start_.
  const bool continued = epoch == start_.epoch && options_.window == 0;
  const std::uint64_t delivered = continued ? start_.part_samples : 0;
  const std::uint64_t begin = continued ? start_.part_batch : 0;
  if (batch < begin || batch >= batches_)
    throw std::out_of_range("Sampler: batch " + std::to_string(batch) + " of an epoch of " +
                            std::to_string(batches_) + " batches" +
                            (begin == 0 ? "" : ", which continues at " + std::to_string(begin)));
  const std::uint64_t first = (batch - begin) * batch_samples();
  const std::uint64_t rank_samples =
      delivered == 0 ? rank_samples_ : share_of(options_.samples - delivered);
  out.resize(static_cast<std::size_t>(std::min(batch_samples(), rank_samples - first)));
  if (options_.window != 0) return put_blocks(epoch, first, out);
  put_places(delivered, first, out);
  if (options_.shuffle) {
    const std::uint64_t key = detail::mix64(detail::mix64(options_.seed) + epoch);
    detail::Permutation(options_.samples, key).apply(out);
  }
}

PENSTOCK_INLINE std::uint64_t Sampler::order() const noexcept {
  constexpr std::uint64_t kInBlocks = 3;
  if (options_.window == 0) return options_.shuffle ? 2 : 1;
  return detail::mix64(detail::mix64(kInBlocks + detail::mix64(options_.block)) + options_.window);
}

/// The share of this rank begins at rank / world_size of the list. All shares have the same size.
/// If `samples` is not a multiple of `world_size`, shares overlap by a sample, or leave one out
/// with drop_last.
PENSTOCK_INLINE void Sampler::put_blocks(std::uint64_t epoch, std::uint64_t first,
                                         std::vector<std::uint64_t>& out) const {
  const SamplerOptions& o = options_;
  const std::uint64_t world = static_cast<std::uint64_t>(o.world_size);
  const std::uint64_t rank = static_cast<std::uint64_t>(o.rank);
  const std::uint64_t begin = o.samples / world * rank + o.samples % world * rank / world;
  const std::uint64_t key = detail::mix64(detail::mix64(o.seed) + epoch);
  detail::BlockOrder(o.samples, o.block, o.window, {begin, rank_samples_}, key).put(first, out);
}

/// Puts the positions of this rank in the rest of the list, after the delivered ones, beginning
/// with the rank's `first`-th. At the end of the list they continue at its beginning: they are
/// counted modulo its length.
PENSTOCK_INLINE void Sampler::put_places(std::uint64_t delivered, std::uint64_t first,
                                         std::vector<std::uint64_t>& out) const noexcept {
  const std::uint64_t length = options_.samples;
  const std::uint64_t world = static_cast<std::uint64_t>(options_.world_size);
  const std::uint64_t rank = static_cast<std::uint64_t>(options_.rank);
  std::uint64_t place = (delivered + rank + first * world) % length;
  for (std::uint64_t& sample : out) {
    sample = place;
    place += world;  // A rank has more than one position only if world < length.
    if (place >= length) place -= length;
  }
}

PENSTOCK_INLINE void Sampler::validate() const {
  const auto require = [](bool valid, const char* name, const std::string& value,
                          const char* range) {
    if (!valid)
      throw std::invalid_argument(std::string("Sampler: ") + name + " is " + value + ", must be " +
                                  range);
  };
  const SamplerOptions& o = options_;
  require(o.samples >= 1 && o.samples <= detail::Permutation::max_size, "samples",
          std::to_string(o.samples), "1 to 2^63");
  require(o.batch_size >= 1, "batch_size", std::to_string(o.batch_size),
          o.batch_size == 0 ? "at least 1 (where a Prefetcher is given the options in place of a "
                              "Sampler, 0 stands for its layout's)"
                            : "at least 1");
  require(o.world_size >= 1, "world_size", std::to_string(o.world_size), "at least 1");
  require(o.rank >= 0 && o.rank < o.world_size, "rank", std::to_string(o.rank),
          ("0 to world_size - 1 = " + std::to_string(o.world_size - 1)).c_str());
  if (o.block == 0 && o.window == 0) return;
  require(
      o.window >= 1, "window", "0, and block is " + std::to_string(o.block),
      "at least 1: the number of blocks among which samples are shuffled (or set block to 0 too)");
  require(o.block >= 1, "block", "0, and window is " + std::to_string(o.window),
          "at least 1: the number of samples that are read together (or set window to 0 too)");
  require(o.block <= o.samples, "block", std::to_string(o.block),
          ("1 to samples = " + std::to_string(o.samples)).c_str());
  require(o.shuffle, "shuffle", "false, and window is " + std::to_string(o.window),
          "true for a window (or set block and window to 0: samples then come in their order)");
}

PENSTOCK_INLINE std::uint64_t batch_seed(std::uint64_t run_seed, std::uint64_t epoch,
                                         std::uint64_t batch) noexcept {
  const std::uint64_t run = detail::mix64(run_seed ^ detail::golden_ratio);
  return detail::mix64(detail::mix64(run + epoch) + batch);
}

}  // namespace penstock
