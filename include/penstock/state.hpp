// SPDX-License-Identifier: Apache-2.0
#pragma once

// State: where a run stands. A few numbers, whatever the size of the data set, and one line as
// text:
//
//   std::ofstream(file) << prefetcher.state() << '\n';
//
//   std::getline(std::ifstream(file), line);                    // in another process, days later
//   prefetcher.restore(penstock::State::parse(line));

#include <cstdint>
#include <iosfwd>
#include <penstock/detail/inline.hpp>
#include <string>
#include <string_view>

namespace penstock {

/// The next batch that will be delivered, and what it is a batch of. Says nothing about the rank:
/// ranks that have taken equally many batches are in the same state. What a sampler does not say
/// is 0.
struct State {
  std::uint64_t epoch = 0, batch = 0;  ///< the next one
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;     ///< in the data set
  std::uint64_t order = 0;       ///< the rule that orders them (Sampler::order)
  std::uint64_t batches = 0;     ///< of an epoch, on each rank
  std::uint64_t batch_size = 0;  ///< on each rank
  std::uint64_t world_size = 0;

  bool operator==(const State&) const = default;

  /// Reads what to_string wrote, and nothing else: no other spacing, no line break, no part of it.
  /// Throws std::invalid_argument, which says what is wrong and shows the text.
  static State parse(std::string_view text);
};

/// One line without its end, at most 300 characters: penstock-state 1 epoch=0 batch=17 ... end
std::string to_string(const State& state);
std::ostream& operator<<(std::ostream& out, const State& state);

/// Why a run that began with `start` cannot go on at `state`; empty: it can. Seed and data set are
/// the same for the whole run. At the edge of an epoch (batch 0) it may go on with another batch
/// size, on other ranks, in another order. In the middle of one it may not: the batches that are
/// left would not be made of the samples that are left.
std::string misfit(const State& state, const State& start);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/pipeline/state.hpp>
#endif
