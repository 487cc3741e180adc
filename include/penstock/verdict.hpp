// SPDX-License-Identifier: Apache-2.0
#pragma once

// Verdict: the stage that limits a pipeline's rate, and what to change, with numbers. The result of
// Stats::verdict(); docs/stats.md says how it is found.
//
//   const penstock::Verdict verdict = prefetcher.stats().verdict();
//   if (verdict.kind == penstock::VerdictKind::more_workers) use(verdict.enough_workers);
//   std::cout << verdict.sentence << '\n';

#include <array>
#include <chrono>
#include <cstddef>
#include <penstock/detail/inline.hpp>
#include <string>

namespace penstock::inline PENSTOCK_ABI {

/// The stage that limits the rate of a pipeline: the largest part of what the time from batch to
/// batch is made of.
enum class Bottleneck {
  source,     ///< the workers are busy (or what an on_device source queued is): others wait for it
  copy,       ///< the copies to the device: batches wait for them, and so does the consumer
  transform,  ///< the DeviceTransform, which runs in the copy stream
  consumer,   ///< the user's loop or kernels: the pipeline is full and waits for them
  waiting_for_slot,  ///< the consumer while the copies wait for its slots: they take turns
  waiting_for_data,  ///< the source of an Unbounded stream, which waits for its data to come in
  balanced,  ///< no stage waits noticeably for another, or each waits for over half of its time
};

/// What to change.
enum class VerdictKind {
  too_early,  ///< too few batches were delivered, or what was recorded does not explain their rate
  nothing,    ///< nothing: the consumer hardly waits, or no change would gain 5 %
  more_workers,   ///< `workers`, and the depths that more of them need
  more_depth,     ///< `host_depth` or `device_depth`
  faster_source,  ///< no setting helps: the source itself has to take less time
  faster_copy,    ///< the same of the copy (fewer bytes), or of the DeviceTransform: `stage` tells
};

/// What a change would give, as a replay of the last batches tells.
struct Gain {
  VerdictKind kind = VerdictKind::nothing;  ///< what is changed
  // The settings then; as they are where the change is another one.
  int workers = 0;               ///< threads that run the source
  std::size_t host_depth = 0;    ///< batches in pinned memory
  std::size_t device_depth = 0;  ///< batches on the device
  std::size_t more_bytes = 0;    ///< memory that they take beyond the present ones
  double times_faster = 1;       ///< present time from batch to batch, over that with the change
};

/// The stage that limits the rate of a pipeline, and what to change.
struct Verdict {
  Bottleneck stage = Bottleneck::balanced;    ///< which stage limits the rate
  VerdictKind kind = VerdictKind::too_early;  ///< what to change
  std::string sentence;                       ///< the same as text

  /// Times for one batch: from one batch to the next, and what each stage takes without its waits.
  /// `source` is over all workers. 0: unknown.
  std::chrono::nanoseconds period{0}, source{0}, copy{0}, transform{0}, consumer{0};
  double starved = 0;  ///< fraction of its time that the consumer waits for input, 0 ... 1

  // Settings that would suffice; 0: no change needed, or unknown.
  /// Workers with which the source keeps up; 0: no change needed, or unknown.
  int enough_workers = 0;
  std::size_t enough_host_depth = 0, enough_device_depth = 0;  ///< the same for the depths
  std::size_t more_bytes = 0;  ///< memory that these settings take beyond the present ones
  double times_smaller = 0;    ///< factor by which a batch has to shrink to be copied in time
  double times_faster = 1;     ///< what the advice would give; 1: there is none
  /// What the best change of each kind would give, the largest gain first: more workers, deeper
  /// queues, a source and a copy (or transform) that are twice as fast.
  std::array<Gain, 4> gains{};
};

/// The enumerator's name: "source".
const char* to_string(Bottleneck bottleneck);
/// The enumerator's name: "more_workers".
const char* to_string(VerdictKind kind);

}  // namespace penstock

#ifdef PENSTOCK_HEADER_ONLY
#include <penstock/detail/observe/verdict.hpp>
#endif
