// SPDX-License-Identifier: Apache-2.0
#pragma once

// How often a thread has called operator new:
//
//   const std::uint64_t before = allocations_of_this_thread();
//   ... what must not allocate ...
//   CHECK(allocations_of_this_thread() == before);

#include <cstdint>

namespace penstock::test {

/// Counts every form of operator new, which allocations.cpp replaces. Always 0 under the address,
/// thread and memory sanitizers, which bring their own: there such a check checks nothing.
std::uint64_t allocations_of_this_thread() noexcept;

/// Bytes that this thread has allocated, less those that it has freed, by the allocator's count.
/// Always 0 under those sanitizers.
std::int64_t bytes_of_this_thread() noexcept;

}  // namespace penstock::test
