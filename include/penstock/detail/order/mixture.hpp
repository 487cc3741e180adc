// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <penstock/detail/mix.hpp>
#include <penstock/detail/order/block_order.hpp>
#include <penstock/detail/order/divisor.hpp>
#include <penstock/detail/order/feistel.hpp>
#include <penstock/detail/order/permutation.hpp>
#include <penstock/detail/order/permutation_lanes.hpp>
#include <penstock/mixture.hpp>
#include <penstock/ranks.hpp>
#include <penstock/sampler.hpp>
#include <queue>
#include <stdexcept>
#include <string>
#include <tuple>

namespace penstock::inline PENSTOCK_ABI {
namespace detail {

[[noreturn]] inline void refuse_mixture(const std::string& why) {
  throw std::invalid_argument("Mixture: " + why);
}
[[noreturn]] inline void refuse_data_set(std::size_t set, const std::string& why) {
  refuse_mixture("data set " + std::to_string(set) + ": " + why);
}

/// Returns the options of the list of positions.
inline SamplerOptions positions_of(const std::vector<MixedDataSet>& data_sets,
                                   SamplerOptions options) {
  if (options.shuffle || options.block != 0 || options.window != 0)
    refuse_mixture("shuffle, block and window belong to each data set, not to the mixture");
  std::uint64_t all = 0;
  for (std::size_t set = 0; set < data_sets.size(); ++set) {
    const std::uint64_t samples = data_sets[set].data.samples;
    if (samples < 1 || samples > Permutation::max_size - all)
      refuse_data_set(set, "samples is " + std::to_string(samples) +
                               ", must be at least 1, and all together at most 2^63");
    all += samples;
  }
  if (all == 0) refuse_mixture("there is no data set");
  if (options.samples == 0) options.samples = all;
  return options;
}

}  // namespace detail

PENSTOCK_INLINE Mixture::Mixture(const std::vector<MixedDataSet>& data_sets, SamplerOptions options,
                                 std::uint64_t period)
    : positions_(detail::positions_of(data_sets, options)) {
  take(data_sets, period);
}

PENSTOCK_INLINE Mixture::Mixture(const std::vector<MixedDataSet>& data_sets, SamplerOptions options,
                                 const Ranks& ranks, std::uint64_t period)
    : Mixture(data_sets, detail::with_ranks(options, ranks), period) {}

PENSTOCK_INLINE Mixture::Mixture(const std::vector<MixedDataSet>& data_sets, SamplerOptions options,
                                 const State& resumed, std::uint64_t period)
    : Mixture(data_sets, options, period) {
  // The list of positions has one order, whatever is mixed.
  const std::uint64_t of_positions = positions_.order();
  State state = resumed;
  state.order = resumed.order == start_.order ? of_positions : ~of_positions;
  const std::uint64_t order = start_.order;
  positions_ = Sampler(detail::positions_of(data_sets, options), state);
  start_ = positions_.start();
  start_.order = order;
}

PENSTOCK_INLINE Mixture::Mixture(const std::vector<MixedDataSet>& data_sets, SamplerOptions options,
                                 const Ranks& ranks, const State& resumed, std::uint64_t period)
    : Mixture(data_sets, detail::with_ranks(options, ranks), resumed, period) {}

PENSTOCK_INLINE void Mixture::take(const std::vector<MixedDataSet>& data_sets,
                                   std::uint64_t period) {
  constexpr std::uint64_t kMostPeriod = std::uint64_t{1} << 28;
  if (period < 1 || period > kMostPeriod)
    detail::refuse_mixture("period is " + std::to_string(period) + ", must be 1 to 2^28");
  period_.resize(static_cast<std::size_t>(period));
  std::uint64_t end = 0;
  for (std::size_t set = 0; set < data_sets.size(); ++set) {
    const SamplerOptions& data = data_sets[set].data;
    if (data.batch_size != 0 || data.drop_last || data.rank != 0 || data.world_size != 1)
      detail::refuse_data_set(set, "batch_size, drop_last, rank and world_size are the mixture's");
    SamplerOptions whole = data;
    whole.batch_size = 1;
    try {
      (void)Sampler(whole);
    } catch (const std::invalid_argument& error) {
      detail::refuse_data_set(set, error.what());
    }
    const std::uint64_t key =
        detail::mix64(detail::mix64(seed() + set * detail::golden_ratio) + data.seed);
    const bool is_in_blocks = data.window != 0;
    sets_.push_back({.key = key,
                     .first = end,
                     .by_size = detail::Divisor(data.samples),
                     .shape = detail::feistel_shape(data.samples),
                     .is_shuffled = data.shuffle && !is_in_blocks,
                     .is_in_blocks = is_in_blocks,
                     .data = data});
    in_blocks_ = in_blocks_ || is_in_blocks;
    ends_.push_back(end += data.samples);
  }
  share_period(data_sets);
  fill_period();

  constexpr std::uint64_t kMixed = 4;
  std::uint64_t order = kMixed;
  for (const Set& set : sets_)
    for (const std::uint64_t number :
         {set.data.samples, std::uint64_t{set.data.shuffle}, set.data.seed, set.data.block,
          set.data.window, set.per_period})
      order = detail::mix64(order) + number;
  start_ = positions_.start();
  start_.order = detail::mix64(order);
}

/// Gives each data set its samples of a period: its part rounded down, and one more for those that
/// lose most by that.
PENSTOCK_INLINE void Mixture::share_period(const std::vector<MixedDataSet>& data_sets) {
  double sum = 0;
  for (std::size_t set = 0; set < sets_.size(); ++set) {
    const double weight = data_sets[set].weight;
    if (!(weight > 0) || !std::isfinite(weight))
      detail::refuse_data_set(
          set, "weight is " + std::to_string(weight) + ", must be above 0 and finite");
    sum += weight;
  }
  const double period = static_cast<double>(period_.size());
  std::uint64_t left = period_.size();
  std::vector<double> lost(sets_.size());
  for (std::size_t set = 0; set < sets_.size(); ++set) {
    const double part = data_sets[set].weight / sum * period;
    // A part that is a whole number but for the rounding of doubles is that number.
    const double whole = std::floor(part + 1e-9 * part);
    sets_[set].per_period = std::min(static_cast<std::uint64_t>(whole), left);
    lost[set] = part - whole;
    left -= sets_[set].per_period;
  }
  std::vector<std::size_t> order(sets_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lost[a] > lost[b]; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left)
    ++sets_[order[i]].per_period;
  for (std::size_t set = 0; set < sets_.size(); ++set)
    if (sets_[set].per_period == 0)
      detail::refuse_data_set(set, "its weight is " + std::to_string(data_sets[set].weight) +
                                       " of " + std::to_string(sum) + ", and a period of " +
                                       std::to_string(period_.size()) +
                                       " has no sample of it: raise the weight or the period");
}

/// Sample j of a set that has c samples in a period of n may be at the positions from
/// floor(j * n / c) to ceil((j + 1) * n / c) - 1. Of those that may, the one whose last position
/// comes first is next; that order always exists, as the sets fill the period.
PENSTOCK_INLINE void Mixture::fill_period() {
  const std::uint64_t n = period_.size();
  using DueSet = std::tuple<std::uint64_t, std::uint32_t>;  // position, set
  using Queue = std::priority_queue<DueSet, std::vector<DueSet>, std::greater<>>;
  Queue waiting, ready;  // by first position, by the position behind the last one
  std::vector<std::uint32_t> numbers(sets_.size(), 0);
  for (std::uint32_t set = 0; set < sets_.size(); ++set) waiting.emplace(0, set);
  for (std::uint64_t position = 0; position < n; ++position) {
    while (!waiting.empty() && std::get<0>(waiting.top()) <= position) {
      const std::uint32_t set = std::get<1>(waiting.top());
      waiting.pop();
      const std::uint64_t count = sets_[set].per_period;
      ready.emplace(((numbers[set] + std::uint64_t{1}) * n + count - 1) / count, set);
    }
    const std::uint32_t set = std::get<1>(ready.top());
    ready.pop();
    const std::uint32_t number = numbers[set]++;
    period_[static_cast<std::size_t>(position)] = {set, number};
    const std::uint64_t count = sets_[set].per_period;
    if (number + 1 < count) waiting.emplace((number + std::uint64_t{1}) * n / count, set);
  }
}

PENSTOCK_INLINE double Mixture::passes(std::size_t set) const {
  const Set& that = sets_.at(set);
  return static_cast<double>(positions_.dataset_size()) / static_cast<double>(period_.size()) *
         static_cast<double>(that.per_period) / static_cast<double>(that.data.samples);
}

PENSTOCK_INLINE Mixture::Place Mixture::place(std::uint64_t sample) const noexcept {
  const auto set = std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
  const std::size_t number = std::min(static_cast<std::size_t>(set), sets_.size() - 1);
  return {number, sample - sets_[number].first};
}

PENSTOCK_INLINE void Mixture::samples(std::uint64_t epoch, std::uint64_t batch,
                                      std::vector<std::uint64_t>& out) const {
  positions_.samples(epoch, batch, out);
  // The list of positions gives this rank every world_size-th position of the batch of all ranks.
  // It takes as many that lie together.
  const std::uint64_t length = positions_.dataset_size();
  const auto rank = static_cast<std::uint64_t>(positions_.options().rank);
  const std::uint64_t begin = (out.front() % length + length - rank % length) % length;
  std::uint64_t first = (begin + rank * out.size() % length) % length;
  for (std::size_t done = 0; done < out.size();) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size() - done, length - first));
    put(epoch * length + first, out.data() + done, count);
    done += count;
    first = 0;  // At its end the list continues at its beginning.
  }
}

/// Writes the samples at successive positions.
PENSTOCK_INLINE void Mixture::put(std::uint64_t position, std::uint64_t* out,
                                  std::size_t count) const {
  detail::PermutationLanes lanes;
  std::array<std::uint64_t*, detail::PermutationLanes::most> samples;  // of the lanes
  std::size_t used = 0;
  const auto apply = [&] {
    const std::uint64_t* image = lanes.apply().data();
    for (std::size_t lane = 0; lane < used; ++lane) *samples[lane] += *image++;
    used = 0;
  };
  std::uint64_t turn = position % period_.size(), round = position / period_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Turn at = period_[static_cast<std::size_t>(turn)];
    const Set& set = sets_[at.set];
    const std::uint64_t number = round * set.per_period + at.number;
    if (++turn == period_.size()) turn = 0, ++round;
    if (set.is_in_blocks) {
      out[i] = number;  // put_blocks() goes on.
      continue;
    }
    const auto [pass, place] = set.by_size.divide(number);
    if (!set.is_shuffled) {
      out[i] = set.first + place;
      continue;
    }
    out[i] = set.first;
    samples[used++] = out + i;
    lanes.add(set.shape, set.key + pass, place);
    if (lanes.full()) apply();
  }
  apply();
  if (in_blocks_) put_blocks(position, out, count);
}

/// Replaces the numbers of samples of sets in blocks by these samples. They are taken in groups, of
/// which each has samples of one set in its order, because a BlockOrder is costly to make.
PENSTOCK_INLINE void Mixture::put_blocks(std::uint64_t position, std::uint64_t* out,
                                         std::size_t count) const {
  constexpr std::size_t kMost = 512, kHeads = 1024;
  constexpr std::uint16_t kNone = 0xffff;
  std::array<std::uint64_t, kMost> run;
  std::array<std::uint32_t, kMost> set_of;
  std::array<std::uint16_t, kMost> next, firsts;
  std::array<std::uint16_t, kHeads> last;
  while (count > 0) {
    const std::size_t some = std::min(count, kMost);
    last.fill(kNone);
    std::size_t groups = 0;
    std::uint64_t turn = position % period_.size();
    for (std::size_t i = 0; i < some; ++i) {
      const std::uint32_t set = period_[static_cast<std::size_t>(turn)].set;
      if (++turn == period_.size()) turn = 0;
      if (!sets_[set].is_in_blocks) continue;
      set_of[i] = set;
      std::size_t head = set * std::size_t{0x9e3779b1} % kHeads;
      while (last[head] != kNone && set_of[last[head]] != set) head = (head + 1) % kHeads;
      next[i] = kNone;
      if (last[head] == kNone)
        firsts[groups++] = static_cast<std::uint16_t>(i);
      else
        next[last[head]] = static_cast<std::uint16_t>(i);
      last[head] = static_cast<std::uint16_t>(i);
    }
    for (std::size_t group = 0; group < groups; ++group) {
      const Set& set = sets_[set_of[firsts[group]]];
      std::size_t size = 0;
      for (std::size_t i = firsts[group]; i != kNone; i = next[i]) ++size;
      put_run(set, out[firsts[group]], run.data(), size);
      const std::uint64_t* value = run.data();
      for (std::size_t i = firsts[group]; i != kNone; i = next[i]) out[i] = set.first + *value++;
    }
    position += some;
    out += some;
    count -= some;
  }
}

/// Writes which samples of a data set in blocks come as the `number`-th of it and after that.
PENSTOCK_INLINE void Mixture::put_run(const Set& set, std::uint64_t number, std::uint64_t* out,
                                      std::size_t count) const {
  const SamplerOptions& data = set.data;
  while (count > 0) {
    const auto [pass, place] = set.by_size.divide(number);
    const auto some =
        static_cast<std::size_t>(std::min<std::uint64_t>(count, data.samples - place));
    detail::BlockOrder(data.samples, data.block, data.window, {0, data.samples},
                       detail::mix64(set.key + pass))
        .put(place, {out, some});
    number += some;
    out += some;
    count -= some;
  }
}

}  // namespace penstock
