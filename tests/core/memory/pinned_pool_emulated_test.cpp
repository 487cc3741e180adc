// SPDX-License-Identifier: Apache-2.0

// What a pinned pool does when CUDA fails.

#include <penstock/emulation.hpp>
#include <penstock/error.hpp>
#include <penstock/pinned_pool.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"
#include "support/upstreams.hpp"

namespace emulation = penstock::emulation;
using penstock::CudaError;
using penstock::PinnedBlock;
using penstock::PinnedPool;
using penstock::test::BeforeSecond;
using penstock::test::Mentions;
using penstock::test::thrown;
using penstock::test::Waiter;

TEST_CASE("a block whose copy nobody can ask about is never handed out again",
          "[pinned_pool][emulated]") {
  {
    const penstock::Stream stream;
    PinnedPool pool({.max_bytes = 4096});
    PinnedBlock block = pool.acquire(4096);
    block.release_after(stream.get());
    emulation::fail_call("cudaEventQuery", cudaErrorLaunchFailure);  // This time and each other.
    CHECK_THROWS_AS(pool.acquire(4096), CudaError);
  }
  emulation::reset(emulation::options());
}

TEST_CASE("the only block is lost while others are being reserved: they are waited for",
          "[pinned_pool][emulated]") {
  {
    const penstock::Stream stream;
    PinnedPool* reserving = nullptr;
    BeforeSecond memory([&] {
      reserving->acquire(4096).release_after(stream.get());
      for (const std::uint64_t nth : {1, 2})
        emulation::fail_call("cudaEventQuery", cudaErrorInvalidResourceHandle, nth);
      CHECK_THROWS_AS(reserving->acquire(4096), penstock::PoolExhausted);
    });
    PinnedPool pool(
        {.max_bytes = 2 * 4096, .timeout = std::chrono::milliseconds(0), .upstream = &memory});
    reserving = &pool;
    pool.reserve(2, 4096);
    CHECK(pool.acquire(4096));
  }
  emulation::reset(emulation::options());
}

TEST_CASE("who waits for a block is told of the room that a failed reservation leaves",
          "[pinned_pool][emulated]") {
  std::atomic<int> got{0};
  PinnedPool* reserving = nullptr;
  PinnedBlock first;
  std::array<Waiter, 2> asleep;
  std::vector<std::jthread> waiters;
  BeforeSecond memory([&] {
    first = reserving->acquire(4096);
    for (Waiter& waiter : asleep)  // The second block is for one of them, the room for the other.
      waiters.emplace_back([&](const std::stop_token& stop) {
        waiter.enter();
        const PinnedBlock block = reserving->acquire(4096, stop);
        if (block) ++got;
        while (block && !stop.stop_requested()) std::this_thread::yield();
      });
    for (const Waiter& waiter : asleep) waiter.wait_until_asleep();
    emulation::fail_call("cudaEventCreateWithFlags", cudaErrorMemoryAllocation, 1);
  });
  {
    PinnedPool pool(
        {.max_bytes = 3 * 4096, .timeout = std::chrono::milliseconds::max(), .upstream = &memory});
    reserving = &pool;
    CHECK_THROWS_AS(pool.reserve(3, 4096), CudaError);
    CHECK(penstock::test::eventually([&] { return got == 2; }));
    waiters.clear();
    first.release();
  }
  emulation::reset(emulation::options());
}

TEST_CASE("a block that came back behind a stream is any block to its next holder",
          "[pinned_pool][emulated]") {
  const penstock::Stream stream;
  PinnedPool pool({.max_bytes = 4096, .timeout = std::chrono::milliseconds(0)});
  pool.acquire(4096).release_after(stream.get());
  stream.synchronize();
  pool.acquire(4000).release();
  CHECK(pool.acquire(4096).size() == 4096);
}

// However many threads wait, one of them asks, in sleeps that grow to 200 us.
TEST_CASE("waiting for a copy makes few calls of CUDA", "[pinned_pool][emulated]") {
  struct Counts {
    std::atomic<std::uint64_t> queries{0}, modes{0};
  } counts;
  constexpr int kThreads = 6;
  using Clock = std::chrono::steady_clock;
  const penstock::Stream stream;
  PinnedPool pool({.max_bytes = kThreads * 4096, .timeout = std::chrono::milliseconds::max()});
  pool.reserve(kThreads, 4096);
  std::vector<PinnedBlock> blocks;
  for (int i = 0; i < kThreads; ++i) blocks.push_back(pool.acquire(4096));
  penstock::test::Gate gate;
  gate.hold(stream.get());
  for (PinnedBlock& block : blocks) block.release_after(stream.get());
  const emulation::Observer observer{&counts,
                                     [](void* context, const emulation::ApiCall& call) {
                                       auto& all = *static_cast<Counts*>(context);
                                       const std::string name = call.name;
                                       all.queries += name == "cudaEventQuery" ? 1 : 0;
                                       all.modes +=
                                           name == "cudaThreadExchangeStreamCaptureMode" ? 1 : 0;
                                     },
                                     [](void*, const emulation::Operation&) {}};
  REQUIRE(emulation::observe(observer));
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&] { pool.acquire(4096); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  gate.open();
  for (std::thread& thread : threads) thread.join();
  const auto took = Clock::now() - begin;
  emulation::stop_observing();
  CHECK(counts.modes <= 2 * kThreads);
  CHECK(counts.queries >= 1);
  // Each thread may also ask once when it comes and for each block when they have landed.
  CHECK(counts.queries <= static_cast<std::uint64_t>(took / std::chrono::microseconds(200)) + 10 +
                              2 * kThreads + kThreads * kThreads);
}

TEST_CASE("memory is refused to one thread while another one looks for some",
          "[pinned_pool][emulated]") {
  constexpr std::size_t kBytes = 4096;
  PinnedPool pool({.max_bytes = 1000 * kBytes});
  int refused = 0;
  for (std::size_t round = 1; round <= 30; ++round) {
    emulation::fail_call("cudaHostAlloc", cudaErrorMemoryAllocation);
    std::atomic<int> failures{0};
    const auto acquire = [&](std::size_t bytes) {
      try {
        const PinnedBlock block = pool.acquire(bytes);
      } catch (const penstock::PoolExhausted&) {
        ++failures;
      }
    };
    std::thread other(acquire, 3 * round * kBytes);
    acquire((3 * round + 1) * kBytes);
    other.join();
    emulation::clear_failures();
    refused += failures;
  }
  CHECK(refused > 0);
  CHECK(pool.stats().bytes <= 1000 * kBytes);
}

TEST_CASE("copy_to says of which block it was asked for too much", "[pinned_pool][emulated]") {
  const penstock::Stream stream;
  PinnedPool pool({.max_bytes = 4096});
  PinnedBlock block = pool.acquire(4096);
  CHECK_THAT(thrown<std::invalid_argument>([&] { block.copy_to(nullptr, 4097, stream.get()); }),
             Mentions("4097 bytes of a block of 4096"));
  PinnedBlock none;
  CHECK_THAT(thrown<std::invalid_argument>([&] { none.copy_to(nullptr, 0, stream.get()); }),
             Mentions("0 bytes of a block of 0"));
}

TEST_CASE("copy_to keeps the block until what it has queued is done, also where it fails",
          "[pinned_pool][emulated]") {
  // The copy, or the record behind it.
  const auto* const call = GENERATE("cudaMemcpyAsync", "cudaEventRecord");
  const penstock::Stream stream;
  const penstock::test::DeviceMemory<unsigned char> device(4096);
  PinnedPool pool({.max_bytes = 4096, .timeout = std::chrono::milliseconds(0)});
  PinnedBlock block = pool.acquire(4096);
  penstock::test::Gate gate;
  gate.hold(stream.get());
  emulation::fail_call(call, cudaErrorUnknown);
  const bool waits = call == std::string("cudaEventRecord");  // for what it cannot mark
  std::thread opener([&] {
    gate.wait_until_reached();
    if (waits) gate.open();
  });
  CHECK_THROWS_AS(block.copy_to(device.data(), 4096, stream.get()), CudaError);
  opener.join();
  CHECK_FALSE(block);
  CHECK(static_cast<bool>(pool.try_acquire(4096)) == waits);
  gate.open();
  stream.synchronize();
  CHECK(pool.acquire(4096));
}

// Nothing says that what frees the memory waits for copies: cudaHostUnregister, before munmap.
TEST_CASE("a pool that goes waits for the copies that read its blocks", "[pinned_pool][emulated]") {
  const penstock::Stream stream;
  std::uint64_t events = 0, devices = 0;
  {
    PinnedPool pool;
    PinnedBlock first = pool.acquire(4096), second = pool.acquire(4096), lost = pool.acquire(4096);
    first.release_after(stream.get());
    second.release_after(stream.get());
    emulation::fail_call("cudaEventRecord", cudaErrorInvalidResourceHandle);
    emulation::fail_call("cudaStreamSynchronize", cudaErrorInvalidResourceHandle);
    CHECK_THROWS_AS(lost.release_after(stream.get()), CudaError);
    events = emulation::calls("cudaEventSynchronize");
    devices = emulation::calls("cudaDeviceSynchronize");
  }
  CHECK(emulation::calls("cudaEventSynchronize") == events + 2);
  CHECK(emulation::calls("cudaDeviceSynchronize") == devices + 1);
}
