// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tune: a Prefetcher finds while it runs how many workers it needs, and how many batches ahead.
//
//   penstock::Prefetcher<Images> prefetcher{layout, sampler, source,
//                                           {.tune = penstock::Tune{.workers = 16}}};
//
// What it has changed, and why, is in Stats::tuning (tuning.hpp).
//
// Every few batches a worker replays the last ones with other settings, and the cheapest that are
// about as fast as the best are used. What follows is compared with what was predicted: a change
// that does not do half of it is put back. docs/tuning.md has the method.

#include <cstddef>
#include <penstock/version.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// The bounds within which a Prefetcher tunes itself (PrefetcherOptions::tune). Everything within
/// them is reserved at construction: that many threads are started, of which those that are not
/// needed are parked, and that much memory is allocated, of which only a part is in use. Later
/// nothing is allocated, and no thread created. What is delivered, and its order, do not depend on
/// it.
struct Tune {
  /// Threads that run the source, at most. 0: the cores that this process may use. Give a larger
  /// number to a source that waits (for a disk, a network). An Unbounded sampler has one worker.
  int workers = 0;
  /// Limit on pinned memory, in bytes; of it, at most 1,024 batches are used. 0: room for
  /// device_depth + 2 * workers batches (a per_sample source: device_depth + 6), within
  /// max_host_bytes. Ignored for an on_device source.
  std::size_t host_bytes = 0;
  /// Device slots, at most; at least device_depth. 0: device_depth + 1, or for an on_device source
  /// two more than there are workers if that is more.
  std::size_t device_slots = 0;
};

}  // namespace penstock
