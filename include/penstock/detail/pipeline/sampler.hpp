// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/pipeline/block_order.hpp>
#include <penstock/detail/pipeline/permutation.hpp>
#include <penstock/sampler.hpp>
#include <stdexcept>
#include <string>

namespace penstock {

PENSTOCK_INLINE Sampler::Sampler(SamplerOptions options) : options_(options) {
  validate();
  const std::uint64_t world = static_cast<std::uint64_t>(options.world_size);
  const bool pad = options.samples % world != 0 && !options.drop_last;
  rank_samples_ = options.samples / world + (pad ? 1 : 0);
  const std::uint64_t batch = batch_samples();
  batches_ = rank_samples_ / batch + (rank_samples_ % batch != 0 && !options.drop_last ? 1 : 0);
  if (batches_ == 0)
    throw std::invalid_argument("Sampler: no batch is full, and drop_last leaves out the others: " +
                                std::to_string(options.samples) + " samples over world_size " +
                                std::to_string(options.world_size) + " make " +
                                std::to_string(rank_samples_) + " for a rank, and batch_size is " +
                                std::to_string(options.batch_size) +
                                ": lower batch_size, or set drop_last to false");
}

PENSTOCK_INLINE void Sampler::samples(std::uint64_t epoch, std::uint64_t batch,
                                      std::vector<std::uint64_t>& out) const {
  if (batch >= batches_)
    throw std::out_of_range("Sampler: batch " + std::to_string(batch) + " of an epoch of " +
                            std::to_string(batches_) + " batches");
  const std::uint64_t first = batch * batch_samples();
  out.resize(static_cast<std::size_t>(std::min(batch_samples(), rank_samples_ - first)));
  if (options_.window != 0) return put_blocks(epoch, first, out);
  put_places(first, out);
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

/// The share of this rank begins at its fraction of the list. All shares have the same size, so
/// shares overlap by a sample where `samples` is not a multiple of `world_size`, or leave one out
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

/// The positions of this rank in the list, from its `first`-th on. Repeating the list from its
/// beginning means counting modulo its length.
PENSTOCK_INLINE void Sampler::put_places(std::uint64_t first,
                                         std::vector<std::uint64_t>& out) const noexcept {
  const std::uint64_t length = options_.samples;
  const std::uint64_t world = static_cast<std::uint64_t>(options_.world_size);
  std::uint64_t place = (static_cast<std::uint64_t>(options_.rank) + first * world) % length;
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
  require(o.batch_size >= 1, "batch_size", std::to_string(o.batch_size), "at least 1");
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
