// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/pinned_pool.hpp>

namespace penstock::detail {

/// Calls `queue`, which queues copies of `block` on `stream`, and releases the block after them;
/// also if it throws, since some of the copies may be queued. Call it on the thread that has
/// resolved the stream.
template <class Queue>
void copy_from(PinnedBlock& block, const ResolvedStream& stream, Queue queue) {
  try {
    queue();
  } catch (...) {
    try {
      block.release_after(stream);
    } catch (const CudaError&) {
      // The pool never reuses the block; the first error is the one to report.
    }
    throw;
  }
  block.release_after(stream);
}

}  // namespace penstock::detail
