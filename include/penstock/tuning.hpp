// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tuning: what a Prefetcher with PrefetcherOptions::tune has changed while it ran, and why.
//
//   const penstock::Stats stats = prefetcher.stats();
//   if (stats.tuning)  // only with PrefetcherOptions::tune
//     for (const penstock::TuneDecision& decision : stats.tuning->last)
//       std::cout << decision << '\n';

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <penstock/detail/inline.hpp>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

/// What a TuneDecision has changed.
enum class TuneKnob {
  workers,       ///< threads that run the source
  host_depth,    ///< blocks of pinned memory in use
  device_depth,  ///< device slots in use
};

/// Why a TuneDecision was made.
enum class TuneReason {
  faster,    ///< up: a replay of the last batches is faster with it
  cheaper,   ///< down: a replay is as fast; with fewer workers, more batches ahead may be needed
  reverted,  ///< back: the change before did not do half of what was predicted, or cost time
  leases,    ///< up: the consumer holds more leases at a time
  lost,      ///< up: memory was lost to a CUDA error
};

/// A change of a setting, with the measurements that it was made on.
struct TuneDecision {
  std::uint64_t batch = 0;                          ///< batches that were delivered before
  TuneKnob knob = TuneKnob::workers;                ///< what was changed
  TuneReason reason = TuneReason::faster;           ///< why
  std::size_t from = 0, to = 0;                     ///< the number before and after
  std::chrono::nanoseconds source{0}, consumer{0};  ///< a worker's, the consumer's time a batch
  std::chrono::nanoseconds period{0};               ///< from one batch to the next
  /// What `period` should become, as predicted: of `faster` and `cheaper`; else 0. A change of
  /// several knobs has it once for all.
  std::chrono::nanoseconds predicted{0};
  std::chrono::nanoseconds measured{0};  ///< what it became, once that is known; else 0
};

/// The enumerator's name: "workers".
const char* to_string(TuneKnob knob);
/// The enumerator's name: "faster".
const char* to_string(TuneReason reason);
/// Writes one line without a line break: "batch 12: workers 1 -> 4: batches come faster (...)"
std::ostream& operator<<(std::ostream& out, const TuneDecision& decision);

namespace detail {
const char* in_words(TuneReason reason);
}  // namespace detail

/// The decisions of a Prefetcher with PrefetcherOptions::tune, as Stats::tuning returns them.
struct Tuning {
  int most_workers = 0;                                    ///< the bounds, as numbers
  std::size_t most_host_depth = 0, most_device_depth = 0;  ///< of batches; 0: no pinned memory
  std::uint64_t decisions = 0;                             ///< changes since the construction
  std::vector<TuneDecision> last;                          ///< of them the last 32, oldest first
};

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/observe/tuning.hpp>
#endif
