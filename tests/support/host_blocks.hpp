// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the tests of HostBlocks share.

#include <penstock/cuda.hpp>
#include <penstock/detail/memory/host_blocks.hpp>

#include <cstddef>
#include <cstdint>

namespace penstock::test {

inline constexpr std::size_t host_block_bytes = 4096;

/// Blocks that are allocated, for one thread at a time where nothing else is said.
struct AllocatedBlocks : detail::HostBlocks {
  explicit AllocatedBlocks(std::size_t count) : HostBlocks(count, host_block_bytes, {}) {
    allocate([] {});
  }

  using HostBlocks::acquire;
  std::uint32_t acquire() {
    return HostBlocks::acquire(CaptureModeGuard(), [] { return false; });
  }

  using HostBlocks::copy;
  /// Queues nothing.
  std::uint64_t copy(std::uint32_t block, const Stream& stream) {
    return copy(block, stream, [] {});
  }
  template <class Queue>
  std::uint64_t copy(std::uint32_t block, const Stream& stream, Queue queue) {
    return HostBlocks::copy(block, detail::ResolvedStream{stream.get(), 0}, queue);
  }
};

}  // namespace penstock::test
