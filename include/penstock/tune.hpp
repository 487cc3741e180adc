// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tune: a Prefetcher finds while it runs how many workers it needs, and how many batches ahead.
//
//   penstock::Prefetcher<Images> prefetcher{layout, sampler, source,
//                                           {.tune = penstock::Tune{.workers = 16}}};
//
// What it has changed, and why, is in Stats::tuning (tuning.hpp).
//
// The method. Every few batches the consumer's thread looks at the times that stats() is made of.
// Workers: a source that takes S of a worker's time for a batch, and a consumer that takes C, need
// S / C workers (the utilisation law of operational analysis); so the number is computed and not
// searched, as in Plumber (Kuchnik et al., MLSys 2022), which allocates by resource-accounted
// rates. S and C are averages of the last windows. CPU time of the workers that would exceed the
// cores of the process is not planned for. Where each batch takes longer after a step up, as many
// workers as would be useful if they shared something (the cores, a disk) are tried as a control;
// they remain if they do as much, and later steps from there add a quarter. Depth: grows if workers
// wait for memory and the consumer for batches, which is the condition of the prefetch buffer of
// tf.data (Murray et al., VLDB 2021): full at one time, empty at another; here by as many batches
// as the longest wait cost. Steps down need longer evidence than steps up, twice as long after each
// one that had to be taken back: so the settings do not oscillate. Workers that are busy only when
// the consumer is fast are replaced by batches ahead.

#include <cstddef>

namespace penstock {

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
