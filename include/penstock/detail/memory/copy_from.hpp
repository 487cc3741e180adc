// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/pinned_pool.hpp>

namespace penstock::detail {

/// Calls `queue`, which queues copies of a block, and returns what `release` does, which releases
/// the block after them; that is also called if `queue` throws, since some may be queued.
template <class Queue, class Release>
auto release_behind(Queue queue, Release release) {
  try {
    queue();
  } catch (...) {
    try {
      release();
    } catch (const CudaError&) {
      // The block is never reused; the first error is the one to report.
    }
    throw;
  }
  return release();
}

/// The same for a block of a pool. Call it on the thread that has resolved the stream.
template <class Queue>
void copy_from(PinnedBlock& block, const ResolvedStream& stream, Queue queue) {
  release_behind(queue, [&] { block.release_after(stream); });
}

}  // namespace penstock::detail
