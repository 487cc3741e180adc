// SPDX-License-Identifier: Apache-2.0
#pragma once

// BlockParts: where the parts of a batch lie in its pinned block; and the copy of it to the device.

#include <cstddef>
#include <cstdint>
#include <penstock/detail/memory/pool_access.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/detail/pipeline/block_batch.hpp>
#include <penstock/error.hpp>
#include <stdexcept>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Where the parts of a BlockBatch begin in its block, in bytes: behind the fields lies what is not
/// copied to the device.
struct BlockParts {
  explicit BlockParts(const BlockLayout& layout) {
    const auto rows = static_cast<std::size_t>(layout.batch_size());
    samples = aligned(layout.bytes(), alignof(std::uint64_t));
    batch = aligned(samples + rows * sizeof(std::uint64_t), layout.batch_alignment());
    end = batch + layout.batch_bytes();
  }
  static std::size_t aligned(std::size_t bytes, std::size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
  }

  std::size_t samples;  // that the ticket names
  std::size_t batch;    // the object
  std::size_t end;
};

PENSTOCK_INLINE std::size_t block_bytes(const BlockLayout& layout) {
  constexpr std::size_t kGranule = 256;  // the pool's
  return BlockParts::aligned(BlockParts(layout).end, kGranule);
}

/// Queues the copies of a batch of `rows` rows from its block. Returns the bytes.
inline std::size_t queue_copies(const std::byte* block, const void* batch, std::int64_t rows,
                                const BlockLayout& layout, std::byte* device, cudaStream_t stream) {
  std::size_t sum = 0;
  layout.for_each_range(batch, rows, [&](std::size_t offset, std::size_t bytes) {
    check(cudaMemcpyAsync(device + offset, block + offset, bytes, cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync", bytes);
    sum += bytes;
  });
  return sum;
}

PENSTOCK_INLINE void BlockBatch::copy_to(const BlockLayout& layout, std::byte* device,
                                         cudaStream_t stream) {
  if (!block) throw std::logic_error("HostBatch::copy_to: the batch was released");
  const ResolvedStream resolved = resolve_usable(stream, "HostBatch::copy_to");
  release_behind([&] { queue_copies(block.data(), batch, rows, layout, device, stream); },
                 [&] { PoolAccess::release_after(block, resolved); });
}

/// What has to be copied of a batch of `rows` rows.
inline std::size_t copied_bytes(const void* batch, std::int64_t rows, const BlockLayout& layout) {
  std::size_t sum = 0;
  layout.for_each_range(batch, rows, [&](std::size_t, std::size_t part) { sum += part; });
  return sum;
}

}  // namespace penstock::detail
