// SPDX-License-Identifier: Apache-2.0
#pragma once

// State: the position of a run, from which it can be resumed. It has a few numbers, whatever the
// size of the data set. As text, it is one line:
//
//   prefetcher.state().save("state.txt");
//
//   prefetcher.restore(penstock::State::load("state.txt"));  // in another process, days later,
//                                                            // made with the same `epochs`

#include <cstdint>
#include <iosfwd>
#include <penstock/detail/inline.hpp>
#include <string>
#include <string_view>

namespace penstock::inline PENSTOCK_ABI {

/// The next batch to be delivered, and the configuration of the run. Ranks that have taken the same
/// number of batches have equal states. A number that the sampler does not provide is 0.
struct State {
  std::uint64_t epoch = 0, batch = 0;  ///< numbers of the next batch
  std::uint64_t seed = 0;              ///< seed of the sampler
  std::uint64_t samples = 0;           ///< samples in the data set
  std::uint64_t order = 0;             ///< the rule that orders them (Sampler::order)
  std::uint64_t batches = 0;           ///< batches of an epoch, on each rank
  std::uint64_t batch_size = 0;        ///< samples in a batch of one rank
  std::uint64_t world_size = 0;        ///< number of ranks
  /// Where the epoch was continued with other ranks or batches (see Sampler): the batch at which
  /// that part of it began, and the samples of the epoch before that batch, over all ranks.
  std::uint64_t part_batch = 0, part_samples = 0;

  bool operator==(const State&) const = default;

  /// Accepts exactly what to_string writes. Throws std::invalid_argument, with the reason and the
  /// text.
  static State parse(std::string_view text);

  /// Writes to_string and a line break to `file` (a std::filesystem::path converts), which it
  /// replaces whole: it writes another file beside it, waits until that is on the disk (fsync),
  /// renames it, and waits for the directory too. A process that is killed meanwhile leaves the old
  /// state or the new one, and maybe a file whose name goes on with `.partial-`. Any thread. Throws
  /// std::system_error that names the file.
  void save(const std::string& file) const;
  /// Reads what save has written, or a file with the one line that to_string writes. Any thread.
  /// Throws std::system_error for a file that cannot be read, and std::invalid_argument, with the
  /// reason and the text, for another one. Both name the file.
  static State load(const std::string& file);
};

/// One line without a line break, at most 320 characters: penstock-state 2 epoch=0 batch=17 ... end
std::string to_string(const State& state);
/// Writes to_string(state).
std::ostream& operator<<(std::ostream& out, const State& state);

/// Reason why `state` cannot be resumed by a run configured as `start`; empty if it can. Seed and
/// data set must be the same. At the start of an epoch the batch size, the number of ranks and the
/// order may differ. In the middle of an epoch they may not: the remaining batches would not
/// consist of the remaining samples. Sampler(options, state) makes a run whose batches do.
std::string why_incompatible(const State& state, const State& start);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/order/state.hpp>
#endif
