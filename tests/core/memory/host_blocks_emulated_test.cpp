// SPDX-License-Identifier: Apache-2.0

// What a set of page-locked blocks does when CUDA fails, and how often it asks.

#include <penstock/detail/memory/host_blocks.hpp>
#include <penstock/emulation.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/host_blocks.hpp"
#include "support/thrown.hpp"

namespace emulation = penstock::emulation;
using penstock::CudaError;
using penstock::PoolExhausted;
using penstock::Stream;
using penstock::detail::HostBlocks;
using penstock::test::AllocatedBlocks;
using penstock::test::Gate;
using penstock::test::host_block_bytes;
using penstock::test::Mentions;
using penstock::test::thrown;

TEST_CASE("waiting for the copy of a block makes few calls of CUDA", "[host_blocks][emulated]") {
  constexpr int kThreads = 6;
  using Clock = std::chrono::steady_clock;
  const Stream stream;
  AllocatedBlocks blocks(kThreads);
  std::vector<std::uint32_t> held;
  for (int i = 0; i < kThreads; ++i) held.push_back(blocks.acquire());
  Gate gate;
  gate.hold(stream.get());
  for (const std::uint32_t block : held) blocks.copy(block, stream);
  std::atomic<std::uint64_t> queries{0};
  const emulation::Observer observer{&queries,
                                     [](void* context, const emulation::ApiCall& call) {
                                       *static_cast<std::atomic<std::uint64_t>*>(context) +=
                                           std::string(call.name) == "cudaEventQuery" ? 1 : 0;
                                     },
                                     [](void*, const emulation::Operation&) {}};
  REQUIRE(emulation::observe(observer));
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { blocks.acquire(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  gate.open();
  for (std::thread& thread : threads) thread.join();
  const auto took = Clock::now() - begin;
  emulation::stop_observing();
  CHECK(queries >= 1);
  CHECK(queries <= static_cast<std::uint64_t>(took / std::chrono::microseconds(200)) + 10 +
                       2 * kThreads + kThreads * kThreads);
}

TEST_CASE("memory that the system refuses is PoolExhausted, and says what to change",
          "[host_blocks][emulated]") {
  HostBlocks blocks(2, host_block_bytes, {});
  emulation::fail_call("cudaHostAlloc", cudaErrorMemoryAllocation, 2);
  CHECK_THAT(thrown<PoolExhausted>([&] { blocks.allocate([] {}); }),
             Mentions("fewer batches (host_depth)"));
  emulation::clear_failures();
  CHECK(blocks.allocated_bytes() == host_block_bytes);
}

TEST_CASE("a block whose event cannot be recorded comes back after a wait",
          "[host_blocks][emulated]") {
  const Stream stream;
  AllocatedBlocks blocks(1);
  const std::uint32_t block = blocks.acquire();
  emulation::fail_call("cudaEventRecord", cudaErrorInvalidValue);
  CHECK_THROWS_AS(blocks.copy(block, stream), CudaError);
  emulation::clear_failures();
  CHECK(blocks.try_acquire() == block);
}

TEST_CASE(
    "a block of which nobody can tell when its copy is done is lost, and the last one says so",
    "[host_blocks][emulated]") {
  {
    const Stream stream;
    AllocatedBlocks blocks(1);
    const std::uint32_t block = blocks.acquire();
    SECTION("neither event nor wait") {
      emulation::fail_call("cudaEventRecord", cudaErrorLaunchFailure);
      emulation::fail_call("cudaStreamSynchronize", cudaErrorLaunchFailure);
      CHECK_THROWS_AS(blocks.copy(block, stream), CudaError);
      emulation::clear_failures();
    }
    SECTION("the event answers neither time") {
      blocks.copy(block, stream);
      for (const std::uint64_t nth : {1, 2})
        emulation::fail_call("cudaEventQuery", cudaErrorInvalidResourceHandle, nth);
    }
    CHECK_THROWS_AS(blocks.acquire(), CudaError);
    CHECK_THROWS_AS(blocks.acquire(), CudaError);
    CHECK_FALSE(blocks.is_done(1));
    emulation::clear_failures();
  }
  emulation::reset(emulation::options());
}

// Nothing says that what frees the memory waits for copies: cudaHostUnregister, before munmap.
TEST_CASE("blocks that go wait for the copies that read them", "[host_blocks][emulated]") {
  const Stream stream;
  std::uint64_t events = 0, devices = 0;
  {
    AllocatedBlocks blocks(3);
    const std::uint32_t first = blocks.acquire(), second = blocks.acquire(),
                        lost = blocks.acquire();
    blocks.copy(first, stream);
    blocks.copy(second, stream);
    emulation::fail_call("cudaEventRecord", cudaErrorInvalidResourceHandle);
    emulation::fail_call("cudaStreamSynchronize", cudaErrorInvalidResourceHandle);
    CHECK_THROWS_AS(blocks.copy(lost, stream), CudaError);
    events = emulation::calls("cudaEventSynchronize");
    devices = emulation::calls("cudaDeviceSynchronize");
  }
  CHECK(emulation::calls("cudaEventSynchronize") == events + 2);
  CHECK(emulation::calls("cudaDeviceSynchronize") == devices + 1);
}

TEST_CASE("one failed query says nothing: the block comes back", "[host_blocks][emulated]") {
  const Stream stream;
  AllocatedBlocks blocks(1);
  const std::uint32_t block = blocks.acquire();
  blocks.copy(block, stream);
  emulation::fail_call("cudaEventQuery", cudaErrorInvalidResourceHandle, 1);
  CHECK(blocks.acquire() == block);
  CHECK(blocks.is_done(1));
  emulation::clear_failures();
}

TEST_CASE("behind a lost copy nobody says that a later one is done", "[host_blocks][emulated]") {
  {
    const Stream stream;
    AllocatedBlocks blocks(2);
    const std::uint32_t first = blocks.acquire(), second = blocks.acquire();
    blocks.copy(first, stream);
    const std::uint64_t other = blocks.copy(second, stream);
    for (const std::uint64_t nth : {1, 2})
      emulation::fail_call("cudaEventQuery", cudaErrorInvalidResourceHandle, nth);
    CHECK(blocks.acquire() == second);
    CHECK_FALSE(blocks.is_done(other));
    emulation::clear_failures();
  }
  emulation::reset(emulation::options());
}

TEST_CASE("a thread that finds all blocks lost is told why", "[host_blocks][emulated][threads]") {
  {
    const Stream stream;
    AllocatedBlocks blocks(2);
    const std::uint32_t first = blocks.acquire(), second = blocks.acquire();
    std::atomic<bool> lost{false};
    bool is_told = false;
    std::thread other([&] {
      while (!lost.load(std::memory_order_relaxed)) std::this_thread::yield();
      try {
        blocks.acquire();
      } catch (const CudaError&) {
        is_told = true;
      }
    });
    emulation::fail_call("cudaEventRecord", cudaErrorLaunchFailure);
    emulation::fail_call("cudaStreamSynchronize", cudaErrorLaunchFailure);
    CHECK_THROWS_AS(blocks.copy(first, stream), CudaError);
    CHECK_THROWS_AS(blocks.copy(second, stream), CudaError);
    lost.store(true, std::memory_order_relaxed);
    other.join();
    CHECK(is_told);
    emulation::clear_failures();
  }
  emulation::reset(emulation::options());
}
