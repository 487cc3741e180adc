// SPDX-License-Identifier: Apache-2.0
#pragma once

// FilledBatch: where its parts lie in a pinned block, and the copy that takes it to the device.

#include <penstock/batch_producer.hpp>

#include <cstddef>
#include <cstdint>
#include <penstock/detail/memory/copy_from.hpp>
#include <penstock/detail/memory/resolved_stream.hpp>
#include <penstock/error.hpp>
#include <stdexcept>

namespace penstock::detail {

// A block holds the batch's fields, then what is not copied to the device: the ticket's sample
// numbers, the batch itself, and what was assigned to ragged fields.
inline std::size_t ticket_offset(const BlockLayout& layout) {
  return (layout.bytes() + 7) / 8 * 8;
}
inline std::size_t batch_offset(const BlockLayout& layout) {
  const std::size_t samples = static_cast<std::size_t>(layout.batch_size());
  const std::size_t end = ticket_offset(layout) + samples * sizeof(std::uint64_t);
  return (end + layout.batch_alignment() - 1) / layout.batch_alignment() * layout.batch_alignment();
}

inline std::size_t scratch_offset(const BlockLayout& layout) {
  return (batch_offset(layout) + layout.batch_bytes() + 7) / 8 * 8;
}

PENSTOCK_INLINE std::size_t block_bytes(const BlockLayout& layout) {
  constexpr std::size_t kGranule = 256;  // the pool's
  const std::size_t end = scratch_offset(layout) + layout.scratch_bytes();
  return (end + kGranule - 1) / kGranule * kGranule;
}

/// Queues the copy of `batch`, and gives its block back behind it. On the thread that has resolved
/// the stream. Returns the bytes.
inline std::size_t copy_to(FilledBatch& batch, const BlockLayout& layout, std::byte* device,
                           const ResolvedStream& stream) {
  std::size_t sum = 0;
  copy_from(batch.block, stream, [&] {
    layout.for_each_range(batch.batch, batch.samples, [&](std::size_t offset, std::size_t bytes) {
      check(cudaMemcpyAsync(device + offset, batch.block.data() + offset, bytes,
                            cudaMemcpyHostToDevice, stream.handle),
            "cudaMemcpyAsync", bytes);
      sum += bytes;
    });
  });
  return sum;
}

PENSTOCK_INLINE void copy_to(FilledBatch& batch, const BlockLayout& layout, std::byte* device,
                             cudaStream_t stream) {
  if (!batch.block) throw std::logic_error("HostBatch::copy_to: the batch was released");
  copy_to(batch, layout, device, resolve_usable(stream, "HostBatch::copy_to"));
}

/// What has to be copied of `batch`.
inline std::size_t copied_bytes(const FilledBatch& batch, const BlockLayout& layout) {
  std::size_t sum = 0;
  layout.for_each_range(batch.batch, batch.samples,
                        [&](std::size_t, std::size_t part) { sum += part; });
  return sum;
}

}  // namespace penstock::detail
