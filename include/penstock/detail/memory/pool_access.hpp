// SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstddef>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/pinned_pool.hpp>
#include <stop_token>

namespace penstock::inline PENSTOCK_ABI::detail {
/// What the library does with a pool that its users cannot.
struct PoolAccess {
  /// Does the same as PinnedPool::acquire(), but `ahead` decides when the time-out begins.
  static PinnedBlock acquire(PinnedPool& pool, std::size_t bytes, const std::stop_token& stop,
                             WaitAhead& ahead) {
    return pool.acquire(bytes, stop, ahead);
  }
  /// Does the same as PinnedBlock::release_after(), for a stream that is resolved.
  static void release_after(PinnedBlock& block, const ResolvedStream& stream) {
    block.release_after(stream);
  }
};
}  // namespace penstock::detail
