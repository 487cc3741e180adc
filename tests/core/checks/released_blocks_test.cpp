// SPDX-License-Identifier: Apache-2.0

// What PENSTOCK_CHECKS finds in pinned blocks that were released.

#include <penstock/detail/memory/checks.hpp>
#include <penstock/detail/memory/host_blocks.hpp>
#include <penstock/pinned_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/thrown.hpp"

using penstock::PinnedBlock;
using penstock::PinnedPool;
using penstock::test::Mentions;
using penstock::test::TestStream;
using penstock::test::thrown;

TEST_CASE("a pinned block that is written after its release is told", "[checks]") {
  PinnedPool pool;
  std::byte* data = nullptr;
  {
    const PinnedBlock block = pool.acquire(1000);
    data = block.data();
    std::memset(data, 0, 1000);
  }
  CHECK(pool.acquire(1000));  // Untouched so far.
  data[17] = std::byte{1};
  CHECK_THAT(thrown<std::logic_error>([&] { pool.acquire(1000); }),
             Mentions("written after its release, at byte 17"));
}

TEST_CASE("a block of a fixed set that is written after its release is told, and lost",
          "[checks]") {
  penstock::detail::HostBlocks blocks(2, 1000, {});
  blocks.allocate([] {});
  const std::uint32_t first = blocks.try_acquire(), second = blocks.try_acquire();
  std::memset(blocks.data(first), 0, 1000);
  blocks.release(first);
  CHECK(blocks.try_acquire() == first);  // Untouched so far.
  TestStream stream;
  blocks.copy(first, {stream, 0}, [] {});
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  blocks.release(second);
  blocks.data(second)[17] = std::byte{1};
  const auto acquire = [&] {
    return blocks.acquire(penstock::CaptureModeGuard(), [] { return false; });
  };
  CHECK_THAT(thrown<std::logic_error>([&] { blocks.try_acquire(); }),
             Mentions("written after its release, at byte 17"));
  CHECK(acquire() == first);  // Behind its copy it is poisoned, too.
  blocks.release(first);
  blocks.data(first)[999] = std::byte{1};
  CHECK_THAT(thrown<std::logic_error>(acquire), Mentions("at byte 999"));
  CHECK_THROWS_AS(acquire(), penstock::CudaError);  // None is left.
}

TEST_CASE("a released pinned block reads as poison", "[checks]") {
  PinnedPool pool;
  TestStream stream;
  PinnedBlock block = pool.acquire(256);
  const std::byte* data = block.data();
  std::memset(block.data(), 0, 256);
  block.release_after(stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const PinnedBlock again = pool.acquire(256);  // Its event was seen done.
  REQUIRE(again.data() == data);
  CHECK(data[0] == std::byte{penstock::detail::poison});
}
