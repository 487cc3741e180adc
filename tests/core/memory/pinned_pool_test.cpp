// SPDX-License-Identifier: Apache-2.0

#include <penstock/pinned_pool.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"
#include "support/upstreams.hpp"

using namespace std::chrono_literals;
using penstock::MemoryError;
using penstock::PinnedBlock;
using penstock::PinnedPool;
using penstock::PoolExhausted;
using penstock::test::BeforeSecond;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::Mentions;
using penstock::test::TestStream;
using penstock::test::thrown;
using penstock::test::Waiter;

static_assert(!std::is_copy_constructible_v<PinnedBlock> &&
              std::is_nothrow_move_constructible_v<PinnedBlock>);
static_assert(std::is_nothrow_destructible_v<PinnedBlock> &&
              std::is_nothrow_destructible_v<PinnedPool>);

namespace {

cudaMemoryType type_of(const void* pointer) {
  cudaPointerAttributes attributes{};
  REQUIRE_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  return attributes.type;
}

}  // namespace

TEST_CASE("a block is page-locked, aligned, and as large as asked", "[pinned_pool]") {
  PinnedPool pool;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{255}, std::size_t{4096}, std::size_t{1} << 20}) {
    PinnedBlock block = pool.acquire(bytes);
    REQUIRE(block);
    CHECK(block.size() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 256 == 0);
    CHECK(type_of(block.data()) == cudaMemoryTypeHost);
    std::memset(block.data(), 0x5A, bytes);
  }
}

TEST_CASE("a released block is handed out again, and nothing is allocated for it",
          "[pinned_pool]") {
  PinnedPool pool;
  std::byte* first = nullptr;
  {
    PinnedBlock block = pool.acquire(1000);
    first = block.data();
  }
  PinnedBlock again = pool.acquire(1000);
  CHECK(again.data() == first);
  CHECK(pool.stats().allocated == 1);
  CHECK(pool.stats().reused == 1);
}

TEST_CASE("a block that would waste more than an eighth is not used", "[pinned_pool]") {
  PinnedPool pool;
  std::byte* large = pool.acquire(8192).data();
  PinnedBlock small = pool.acquire(4096);
  CHECK(small.data() != large);
  PinnedBlock fitting = pool.acquire(7680);
  CHECK(fitting.data() == large);
}

TEST_CASE("a block released after a stream is not handed out before that stream's work is done",
          "[pinned_pool]") {
  Gate gate;
  TestStream stream;
  PinnedPool pool({.max_bytes = 4096, .timeout = 20ms});
  PinnedBlock block = pool.acquire(4096);
  std::byte* data = block.data();
  gate.hold(stream);
  block.release_after(stream);
  CHECK_FALSE(block);
  CHECK(block.data() == nullptr);
  CHECK(pool.stats().bytes_in_flight == 4096);
  CHECK(pool.stats().bytes_in_use == 0);

  CHECK_THROWS_AS(pool.acquire(4096), PoolExhausted);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(pool.acquire(4096).data() == data);
}

TEST_CASE("a block in flight does not hold up others", "[pinned_pool]") {
  Gate gate;
  TestStream held, open;
  PinnedPool pool({.max_bytes = 8192, .timeout = 10s});
  PinnedBlock stuck = pool.acquire(4096);
  PinnedBlock quick = pool.acquire(4096);
  std::byte* data = quick.data();
  gate.hold(held);
  stuck.release_after(held);
  quick.release_after(open);
  CHECK(pool.acquire(4096).data() == data);
  gate.open();
}

TEST_CASE("under the cap a pool grows; over it, it says so with the numbers", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 8192, .timeout = 1ms});
  PinnedBlock a = pool.acquire(4096);
  PinnedBlock b = pool.acquire(4096);
  CHECK(pool.stats().bytes == 8192);
  try {
    pool.acquire(4096);
    FAIL("the cap was not kept");
  } catch (const PoolExhausted& error) {
    CHECK(error.asked() == 4096);
    CHECK(error.in_use() == 8192);
    CHECK(error.cap() == 8192);
    CHECK(std::string(error.what()).find("max_bytes") != std::string::npos);
  }
  CHECK_THROWS_AS(pool.acquire(8193), PoolExhausted);
}

TEST_CASE("a block of more bytes than there are is refused", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 1 << 20});
  const PinnedBlock small = pool.acquire(1);
  for (const std::size_t less : {0u, 1u, 254u, 255u, 256u, 300u})
    CHECK_THROWS_AS(pool.acquire(std::numeric_limits<std::size_t>::max() - less), PoolExhausted);
}

TEST_CASE("idle blocks of another size make room", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 8192, .timeout = 1ms});
  pool.acquire(8192);
  PinnedBlock small = pool.acquire(512);
  CHECK(small);
  CHECK(pool.stats().bytes == 512);
}

TEST_CASE("try_acquire takes what is at hand and never allocates", "[pinned_pool]") {
  PinnedPool pool;
  CHECK_FALSE(pool.try_acquire(4096));
  pool.reserve(2, 4096);
  CHECK(pool.stats().blocks == 2);
  PinnedBlock a = pool.try_acquire(4096);
  PinnedBlock b = pool.try_acquire(4096);
  CHECK(a);
  CHECK(b);
  CHECK_FALSE(pool.try_acquire(4096));
}

TEST_CASE("a reservation over the cap is refused", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 8192});
  CHECK_THROWS_AS(pool.reserve(3, 4096), PoolExhausted);
  CHECK(pool.stats().blocks == 0);
  pool.reserve(2, 4096);
  CHECK_THROWS_AS(pool.reserve(1, 4096), PoolExhausted);
}

TEST_CASE("idle blocks of another size make room for a reservation", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 8192});
  pool.acquire(8192);
  pool.reserve(2, 4096);
  CHECK(pool.stats().blocks == 2);
  CHECK(pool.stats().bytes == 8192);
  // No more than are needed go, and none that are held or of the size that is reserved.
  PinnedBlock held = pool.acquire(4096);
  CHECK_THROWS_AS(pool.reserve(1, 4096), PoolExhausted);
  CHECK(pool.stats().blocks == 2);
  pool.reserve(4, 1024);
  CHECK(pool.stats().bytes == 8192);
  pool.reserve(1, 2048);
  CHECK(pool.stats().bytes == 4096 + 2 * 1024 + 2048);
}

TEST_CASE("blocks of another size make room for a reservation when their copies are done",
          "[pinned_pool]") {
  Gate gate;
  TestStream stream;
  PinnedPool pool({.max_bytes = 8192});
  PinnedBlock block = pool.acquire(8192);
  gate.hold(stream);
  block.release_after(stream);
  CHECK_THROWS_AS(pool.reserve(1, 4096), PoolExhausted);  // A copy may still read it.
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  pool.reserve(2, 4096);
  CHECK(pool.stats().blocks == 2);
}

TEST_CASE("the first of reserved blocks is there while the others are not, and have their room",
          "[pinned_pool]") {
  PinnedPool* reserving = nullptr;
  BeforeSecond memory([&] {
    CHECK(reserving->stats().blocks == 1);
    const PinnedBlock first = reserving->acquire(4096);
    CHECK_THROWS_AS(reserving->acquire(4096), PoolExhausted);
    CHECK_THROWS_AS(reserving->reserve(1, 4096), PoolExhausted);
  });
  PinnedPool pool({.max_bytes = 3 * 4096, .timeout = 0ms, .upstream = &memory});
  reserving = &pool;
  pool.reserve(3, 4096);
  CHECK(pool.stats().blocks == 3);
}

TEST_CASE("a reservation that fails leaves the room of the blocks that are not there to others",
          "[pinned_pool]") {
  BeforeSecond memory([] { throw std::runtime_error("no"); });
  PinnedPool pool({.max_bytes = 3 * 4096, .timeout = 0ms, .upstream = &memory});
  CHECK_THROWS_AS(pool.reserve(3, 4096), MemoryError);
  CHECK(pool.stats().blocks == 1);
  CHECK_NOTHROW(pool.reserve(2, 4096));
  CHECK_THROWS_AS(pool.reserve(1, 4096), PoolExhausted);
}

namespace {

/// Nobody can tell when the block is free: its stream is refused.
void lose(PinnedBlock block) {
  const TestStream captured;
  REQUIRE_CUDA(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal));
  CHECK_THROWS_AS(block.release_after(captured), std::logic_error);
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamEndCapture(captured, &graph));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
}

}  // namespace

TEST_CASE("a block may outlive its pool", "[pinned_pool]") {
  const bool is_lost = GENERATE(false, true);
  PinnedBlock now, later;
  TestStream stream;
  Gate gate;
  {
    PinnedPool pool;
    now = pool.acquire(100);
    later = pool.acquire(100);
    gate.hold(stream);
  }
  std::memset(now.data(), 1, now.size());
  now.release();
  gate.open();
  if (is_lost)
    lose(std::move(later));
  else
    later.release_after(stream);
}

TEST_CASE("who waits for a block is told when the only one is lost", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 4096, .timeout = std::chrono::milliseconds::max()});
  PinnedBlock only = pool.acquire(4096);
  Waiter waiter;
  std::thread waiting([&] {
    waiter.enter();
    CHECK_THROWS_AS(pool.acquire(4096), penstock::CudaError);
  });
  waiter.wait_until_asleep();
  lose(std::move(only));
  waiting.join();
}

TEST_CASE("a moved-from block is empty, and assignment releases what was there", "[pinned_pool]") {
  PinnedPool pool({.max_bytes = 8192});
  PinnedBlock a = pool.acquire(4096);
  PinnedBlock b = std::move(a);
  CHECK_FALSE(a);  // NOLINT(bugprone-use-after-move): that is the test
  CHECK(b);
  b = pool.acquire(4096);
  CHECK(pool.stats().bytes_in_use == 4096);
}

TEST_CASE("blocks come from the NUMA node that is named", "[pinned_pool]") {
  PinnedPool pool({.numa_node = 0});
  PinnedBlock block = pool.acquire(100'000);
  CHECK(type_of(block.data()) == cudaMemoryTypeHost);
  std::memset(block.data(), 1, block.size());
}

TEST_CASE("a NUMA node takes the flags that registered memory can have", "[pinned_pool]") {
  PinnedPool pool({.flags = cudaHostAllocPortable | cudaHostAllocMapped, .numa_node = 0});
  PinnedBlock block = pool.acquire(4096);
  void* on_device = nullptr;
  REQUIRE_CUDA(cudaHostGetDevicePointer(&on_device, block.data(), 0));
  CHECK(on_device != nullptr);
  CHECK_THAT(thrown<std::invalid_argument>(
                 [] { PinnedPool({.flags = cudaHostAllocWriteCombined, .numa_node = 0}); }),
             Mentions("leave out the other flags"));
  CHECK_NOTHROW(PinnedPool({.flags = cudaHostAllocWriteCombined}));
}

TEST_CASE("a NUMA node that there is none of is an error that says where they are listed",
          "[pinned_pool]") {
  const auto acquire_on = [](int node) { PinnedPool({.numa_node = node}).acquire(4096); };
  CHECK_THAT(thrown<std::system_error>([&] { acquire_on(1023); }),
             Mentions("NUMA node 1023: set numa_node to one that /sys/devices/system/node lists"));
  CHECK_THAT(thrown<std::invalid_argument>([&] { acquire_on(1024); }),
             Mentions("numa_node is 1024, must be below 1024"));
}

TEST_CASE("threads that acquire and release never share a block", "[pinned_pool]") {
  constexpr int kThreads = 6, kRounds = 300;
  PinnedPool pool({.max_bytes = 4 * 4096, .timeout = 20s});  // fewer blocks than threads
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        PinnedBlock block = pool.acquire(4096);
        std::memset(block.data(), t, block.size());
        std::this_thread::yield();
        const auto* bytes = block.data();
        torn += !std::all_of(bytes, bytes + block.size(),
                             [&](std::byte b) { return b == std::byte(t); });
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(torn == 0);
  CHECK(pool.stats().blocks <= 4);
  CHECK(pool.stats().bytes_in_use == 0);
}

TEST_CASE("a block that is rewritten after its wait never changes a copy", "[pinned_pool]") {
  constexpr std::uint32_t kRounds = 200;
  TestStream stream;
  PinnedPool pool({.max_bytes = 2 * 1024, .timeout = 20s});
  penstock::test::DeviceMemory<std::uint32_t> device(kRounds * 256);
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    PinnedBlock block = pool.acquire(1024);
    auto* values = reinterpret_cast<std::uint32_t*>(block.data());
    std::fill_n(values, 256, i);
    REQUIRE_CUDA(
        cudaMemcpyAsync(device.data() + i * 256, values, 1024, cudaMemcpyHostToDevice, stream));
    block.release_after(stream);
  }
  const std::vector<std::uint32_t> result = device.read();
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < result.size(); ++i) wrong += result[i] != i / 256;
  CHECK(wrong == 0);
  CHECK(pool.stats().blocks <= 2);
}

TEST_CASE("a pool grows while another thread asks which copies are done", "[pinned_pool]") {
  constexpr int kThreads = 4, kBlocks = 16;
  Gate gate;
  TestStream stream;
  PinnedPool pool;
  std::vector<PinnedBlock> in_flight;
  for (int i = 0; i < kBlocks; ++i) in_flight.push_back(pool.acquire(4096));
  gate.hold(stream);
  for (PinnedBlock& block : in_flight) block.release_after(stream);
  std::vector<std::thread> threads;  // Each asks for all in flight, or finds that another does.
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      std::vector<PinnedBlock> held;
      for (int i = 0; i < kBlocks; ++i) held.push_back(pool.acquire(4096));
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(pool.stats().bytes_in_flight == kBlocks * 4096);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  std::vector<PinnedBlock> all;
  const std::uint64_t blocks = pool.stats().blocks;
  while (all.size() < blocks) all.push_back(pool.acquire(4096));
  CHECK(pool.stats().blocks == blocks);
}

TEST_CASE("blocks can be reserved from several threads, while others acquire", "[pinned_pool]") {
  PinnedPool pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        if (t < 2) pool.reserve(1, 4096);
        const PinnedBlock block = pool.acquire(4096);
        *block.data() = std::byte{1};
      }
    });
  for (std::thread& thread : threads) thread.join();
  const auto stats = pool.stats();
  CHECK(stats.blocks >= 40);
  CHECK(stats.bytes == stats.blocks * 4096);
}

TEST_CASE("stats may be asked for while other threads make blocks", "[pinned_pool]") {
  PinnedPool pool;
  std::atomic<bool> done{false};
  std::size_t most = 0;
  std::thread asker([&] {
    while (!done) most = std::max(most, pool.stats().blocks);
  });
  std::vector<PinnedBlock> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(pool.acquire(4096));
  done = true;
  asker.join();
  CHECK(most <= 50);
  CHECK(pool.stats().blocks == 50);
}

TEST_CASE("copy_to gives the block back behind its copy", "[pinned_pool]") {
  const TestStream stream;
  const penstock::test::DeviceMemory<unsigned char> device(4096);
  PinnedPool pool({.max_bytes = 4096, .timeout = 0ms});
  PinnedBlock block = pool.acquire(4096);
  std::memset(block.data(), 7, 4096);
  {
    Gate gate;
    gate.hold(stream);
    block.copy_to(device.data(), 4096, stream);
    CHECK_FALSE(block);
    CHECK_THROWS_AS(pool.acquire(4096), PoolExhausted);  // A copy still reads it.
    gate.open();
  }
  CHECK(device.read() == std::vector<unsigned char>(4096, 7));
  block = pool.acquire(4096);
  CHECK_THROWS_AS(block.copy_to(device.data(), 4097, stream), std::invalid_argument);
  CHECK(block);
  CHECK_THROWS_AS(PinnedBlock().copy_to(device.data(), 0, stream), std::invalid_argument);
}
