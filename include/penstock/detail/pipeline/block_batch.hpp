// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockBatch: a filled batch that lies in a pinned block with all that belongs to it.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <penstock/layout.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/source.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// A type-erased batch in a pinned block: `batch` and the ticket's samples lie in it, too, behind
/// the part that is copied to the device.
struct BlockBatch {
  /// Queues the copy of the used part, and releases the block after it, also if a call fails.
  void copy_to(const BlockLayout& layout, std::byte* device, cudaStream_t stream);

  PinnedBlock block;
  const void* batch = nullptr;
  Ticket ticket;
  std::int64_t rows = 0;
};

/// Bytes of pinned memory that a batch takes.
std::size_t block_bytes(const BlockLayout& layout);

}  // namespace penstock::detail
