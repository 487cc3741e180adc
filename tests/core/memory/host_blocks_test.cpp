// SPDX-License-Identifier: Apache-2.0

#include <penstock/detail/memory/host_blocks.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/host_blocks.hpp"

using penstock::CaptureModeGuard;
using penstock::CudaError;
using penstock::Stream;
using penstock::detail::HostBlock;
using penstock::detail::HostBlocks;
using penstock::test::AllocatedBlocks;
using penstock::test::Gate;
using penstock::test::host_block_bytes;
using penstock::test::Waiter;

TEST_CASE("blocks are of one size, each is handed out once, and a released one again",
          "[host_blocks]") {
  AllocatedBlocks blocks(3);
  CHECK(blocks.bytes() == host_block_bytes);
  CHECK(blocks.allocated_bytes() == 3 * host_block_bytes);
  std::vector<bool> seen(3, false);
  std::uint32_t block = HostBlocks::kNone;
  for (int i = 0; i < 3; ++i) {
    block = blocks.try_acquire();
    REQUIRE(block < 3);
    CHECK_FALSE(seen[block]);
    seen[block] = true;
    std::memset(blocks.data(block), 1, host_block_bytes);
  }
  CHECK(blocks.try_acquire() == HostBlocks::kNone);
  blocks.release(block);
  CHECK(blocks.try_acquire() == block);
}

TEST_CASE("a block comes back behind its copies, when somebody has asked", "[host_blocks]") {
  const Stream stream;
  AllocatedBlocks blocks(2);
  const std::uint32_t first = blocks.acquire(), second = blocks.acquire();
  Gate gate;
  const std::uint64_t one = blocks.copy(first, stream);
  const std::uint64_t other = blocks.copy(second, stream, [&] { gate.hold(stream.get()); });
  CHECK(one == 1);
  CHECK(other == 2);
  CHECK(blocks.acquire() == first);  // Waits until its copy is done, and not for the gate.
  CHECK(blocks.is_done(one));
  CHECK_FALSE(blocks.is_done(other));
  CHECK(blocks.try_acquire() == HostBlocks::kNone);
  std::atomic<std::uint32_t> got{HostBlocks::kNone};
  Waiter waiting;
  std::thread waiter([&] {
    waiting.enter();
    got = blocks.acquire();
  });
  waiting.wait_until_asleep();
  CHECK(got == HostBlocks::kNone);
  gate.open();
  waiter.join();
  CHECK(got == second);
  CHECK(blocks.is_done(other));
}

TEST_CASE("the first block is there before the others are allocated", "[host_blocks]") {
  HostBlocks blocks(3, host_block_bytes, {});
  std::size_t then = 0;
  std::uint32_t got = HostBlocks::kNone;
  std::thread waiter;
  blocks.allocate([&] {
    then = blocks.allocated_bytes();
    const std::uint32_t first = blocks.try_acquire();
    CHECK(first != HostBlocks::kNone);
    waiter = std::thread([&] { got = blocks.acquire(CaptureModeGuard(), [] { return false; }); });
  });
  waiter.join();
  CHECK(then == host_block_bytes);
  CHECK(got != HostBlocks::kNone);
  CHECK(blocks.allocated_bytes() == 3 * host_block_bytes);
}

TEST_CASE("a wait for a block ends when it is stopped", "[host_blocks]") {
  const bool in_flight = GENERATE(false, true);
  const Stream stream;
  Gate gate;
  {
    AllocatedBlocks blocks(1);
    const std::uint32_t block = blocks.acquire();
    if (in_flight) blocks.copy(block, stream, [&] { gate.hold(stream.get()); });
    std::atomic<bool> stopped{false};
    std::uint32_t got = 0;
    Waiter waiting;
    std::thread waiter([&] {
      waiting.enter();
      got = blocks.acquire(CaptureModeGuard(), [&] { return stopped.load(); });
    });
    waiting.wait_until_asleep();
    stopped = true;
    blocks.wake();
    waiter.join();
    CHECK(got == HostBlocks::kNone);
    gate.open();  // The destructor waits for the copy.
  }
}

TEST_CASE("a block with an owner comes back with it, or behind its copy", "[host_blocks]") {
  const Stream stream;
  AllocatedBlocks blocks(2);
  {
    HostBlock one = blocks.own(blocks.try_acquire()), other = blocks.own(blocks.try_acquire());
    REQUIRE((one && other));
    CHECK(blocks.try_acquire() == HostBlocks::kNone);
    CHECK(one->memory.data() == blocks.data(one->index));
    CHECK(one->index != other->index);
    CHECK(&one->owner == &blocks);
    one = std::move(other);  // What it had comes back.
    HostBlock third = blocks.own(blocks.try_acquire());
    REQUIRE(third);
    CHECK(blocks.copy(third.release()->index, stream) == 1);
    CHECK_THROWS_AS(
        blocks.copy(one.release()->index, stream, [] { throw CudaError(cudaErrorUnknown, "no"); }),
        CudaError);
    CHECK_FALSE(blocks.own(HostBlocks::kNone));
  }
  CHECK(blocks.acquire() != HostBlocks::kNone);  // Both are behind a copy.
  CHECK(blocks.acquire() != HostBlocks::kNone);
  CHECK(blocks.try_acquire() == HostBlocks::kNone);
}

TEST_CASE("many threads use few blocks, and each is with one of them", "[host_blocks]") {
  constexpr int kThreads = 4, kRounds = 300;
  const Stream stream;
  AllocatedBlocks blocks(3);
  std::atomic<int> users[3] = {};
  std::atomic<int> in_use{0};
  std::atomic<bool> wrong{false};
  std::mutex stager;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const CaptureModeGuard guard;
      for (int i = 0; i < kRounds; ++i) {
        const std::uint32_t block = blocks.acquire(guard, [] { return false; });
        if (++users[block] != 1 || ++in_use > 3) wrong = true;
        std::memset(blocks.data(block), t, 8);
        --in_use;
        --users[block];
        if (i % 2 == 0) {
          const std::lock_guard lock(stager);
          blocks.copy(block, stream);
        } else {
          blocks.release(block);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(wrong);
}

// However many threads wait, one of them asks, in sleeps that grow to 200 us.
TEST_CASE("an upstream and flags of cudaHostAlloc do not go together", "[host_blocks]") {
  CHECK_THROWS_AS(
      HostBlocks(1, host_block_bytes, {.flags = cudaHostAllocWriteCombined, .numa_node = 0}),
      std::invalid_argument);
}
TEST_CASE("a copy that fails half-way gives the block back behind what was queued",
          "[host_blocks]") {
  const Stream stream;
  AllocatedBlocks blocks(1);
  const std::uint32_t block = blocks.acquire();
  Gate gate;
  CHECK_THROWS_AS(blocks.copy(block, stream,
                              [&] {
                                gate.hold(stream.get());
                                throw CudaError(cudaErrorInvalidValue, "the second part");
                              }),
                  CudaError);
  CHECK(blocks.try_acquire() == HostBlocks::kNone);
  gate.open();
  CHECK(blocks.acquire() == block);
}

TEST_CASE("blocks go only when their copies are done", "[host_blocks]") {
  const Stream stream;
  Gate gate;
  std::atomic<bool> gone{false};
  Waiter waiting;
  std::thread keeper;
  {
    auto blocks = std::make_unique<AllocatedBlocks>(1);
    blocks->copy(blocks->acquire(), stream, [&] { gate.hold(stream.get()); });
    keeper = std::thread([&, blocks = std::move(blocks)]() mutable {
      waiting.enter();
      blocks.reset();
      gone = true;
    });
  }
  waiting.wait_until_asleep();
  CHECK_FALSE(gone);
  gate.open();
  keeper.join();
}
