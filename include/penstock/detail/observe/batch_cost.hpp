// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchCost: what a batch takes at each step of its route; and ConsumerLoop: how the loop works
// that takes the batches.

#include <cstddef>

namespace penstock::detail {

/// What a batch costs, in nanoseconds.
struct BatchCost {
  double fill = 0;      ///< time inside the source, of all workers together
  double handover = 0;  ///< time that its worker needs beside that
  double issue = 0;     ///< from when it could be staged until it was
  double copy = 0;
  double transform = 0;
  double source_work = 0;  ///< of an on_device source: its work on the device
  double device = 0;       ///< the consumer's stream works on it
  double host = 0;         ///< the consumer's thread works, beside its waits
  int stream = 0;          ///< the consumer's
};

/// What the consumer's thread waits for before it asks for the next batch.
enum class LoopWaits {
  for_this_step,  ///< its stream's work on the batch that it has
  for_last_step,  ///< the work on the batch before that
  for_nothing,
};

/// How the consumer's loop works.
struct ConsumerLoop {
  LoopWaits waits = LoopWaits::for_nothing;
  /// Later calls of next() that return before a lease ends: 0 where each turn of the loop ends its
  /// own.
  std::size_t later_calls = 0;
  /// The lease ends as soon as the last of these calls returns, before work on that batch is
  /// queued: `lease = prefetcher.next(stream)`.
  bool ends_early = false;
  double after_lease = 0;  ///< from a lease's end to the next call of next()
  double wake = 0;         ///< from when a batch that next() waits for is staged to its return
};

}  // namespace penstock::detail
