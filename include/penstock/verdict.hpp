// SPDX-License-Identifier: Apache-2.0
#pragma once

// Verdict: the stage that limits a pipeline's rate, and what to change, with numbers. The result of
// Stats::verdict(); docs/stats.md has the rules and their thresholds.
//
//   const penstock::Verdict verdict = prefetcher.stats().verdict();
//   if (verdict.kind == penstock::VerdictKind::more_workers) use(verdict.enough_workers);
//   std::cout << verdict.sentence << '\n';

#include <chrono>
#include <cstddef>
#include <penstock/detail/inline.hpp>
#include <string>

namespace penstock {

/// The stage that limits the rate of a pipeline: the one with the largest part of busy time.
enum class Bottleneck {
  source,     ///< the workers are busy (or what an on_device source queued is): others wait for it
  copy,       ///< the copies to the device: batches wait for them, and so does the consumer
  transform,  ///< the DeviceTransform, which runs in the copy stream
  consumer,   ///< the user's loop or kernels: the pipeline is full and waits for them
  waiting_for_slot,  ///< all slots are leased, so that no copy can run beside the consumer
  waiting_for_data,  ///< the source of an Unbounded stream, which waits for its data to come in
  balanced,  ///< no stage waits noticeably for another, or each waits for over half of its time
};

/// What to change.
enum class VerdictKind {
  too_early,         ///< fewer than 8 batches were delivered: not enough to judge by
  more_workers,      ///< the source cannot keep up
  deeper_ring,       ///< no stage is at its limit, yet the consumer waits: queue more batches
  more_slots,        ///< the same, and the copies (or an on_device source) lack slots: device_depth
  smaller_bytes,     ///< the copy cannot keep up: copy fewer bytes
  bus_bound,         ///< the copy is too slow by a factor over 4
  compute_bound,     ///< nothing: the consumer never waits for input
  balanced,          ///< nothing: the consumer hardly waits, and another stage is also at its limit
  cheaper_source,    ///< the source cannot keep up, and more workers would not help
  faster_transform,  ///< the DeviceTransform cannot keep up
  waiting_for_data,  ///< nothing: the source of a stream waits for its data to come in
  one_late_batch,    ///< nothing: but for a single wait the consumer has input whenever it asks
  varies,  ///< nothing: another stage is the slowest in each part of the run (see Stats::since)
};

/// The stage that limits the rate of a pipeline, and what to change.
struct Verdict {
  Bottleneck stage = Bottleneck::balanced;    ///< which stage limits the rate
  VerdictKind kind = VerdictKind::too_early;  ///< what to change
  std::string sentence;                       ///< the same as text

  /// Times for one batch: from one batch to the next, and what each stage takes without its waits.
  /// `source` is over all workers. That of the consumer needs device times; 0 without.
  std::chrono::nanoseconds period{0}, source{0}, copy{0}, transform{0}, consumer{0};
  double starved = 0;  ///< fraction of its time that the consumer waits for input, 0 ... 1

  // Settings that would suffice; 0: no change needed, or unknown.
  /// Workers with which the source keeps up; 0: no change needed, or unknown.
  int enough_workers = 0;
  std::size_t enough_host_depth = 0, enough_device_depth = 0;  ///< the same for the depths
  std::size_t more_bytes = 0;  ///< memory that these settings take beyond the present ones
  double times_smaller = 0;    ///< factor by which a batch has to shrink to be copied in time
};

/// The enumerator's name: "source".
const char* to_string(Bottleneck bottleneck);
/// The enumerator's name: "more_workers".
const char* to_string(VerdictKind kind);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/observe/verdict.hpp>
#endif
