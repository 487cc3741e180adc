// SPDX-License-Identifier: Apache-2.0

#include <penstock/device_arena.hpp>
#include <penstock/pinned_pool.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/upstream.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <memory_resource>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"
#include "support/upstreams.hpp"

using namespace std::chrono_literals;
using penstock::DeviceArena;
using penstock::DeviceSlot;
using penstock::MemoryError;
using penstock::PinnedBlock;
using penstock::PinnedPool;
using penstock::Upstream;
using penstock::test::eventually;
using penstock::test::Gate;
using penstock::test::Memory;
using penstock::test::Mentions;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::NumbersSink;
using penstock::test::PmrResource;
using penstock::test::shuffled;
using penstock::test::SyncResource;
using penstock::test::TestStream;
using penstock::test::thrown;
using penstock::test::write_numbers;

namespace {

static_assert(penstock::MemoryResource<SyncResource> && penstock::MemoryResource<PmrResource> &&
              penstock::MemoryResource<std::pmr::memory_resource>);
static_assert(!penstock::MemoryResource<int> && !std::is_constructible_v<Upstream, int*>);

std::size_t count_batches(penstock::Prefetcher<Numbers>& prefetcher, std::size_t batches) {
  const TestStream stream;
  NumbersSink sink(8, batches);
  while (auto lease = prefetcher.next(stream)) sink.take(lease, stream);
  sink.wait(stream);
  return sink.batches();
}

}  // namespace

TEST_CASE("an upstream's pinned memory: each block comes back once, as it was", "[upstream]") {
  Memory memory(Memory::Kind::host);
  PmrResource resource(memory);
  std::optional<PinnedBlock> last;
  {
    PinnedPool pool({.max_bytes = 4096, .upstream = &resource});
    {
      const PinnedBlock block = pool.acquire(1000);
      CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 256 == 0);
      std::fill_n(block.data(), 1000, std::byte{1});
      CHECK(memory.in_use == 1024);
    }
    for (int i = 0; i < 10; ++i) CHECK(pool.acquire(1000));
    CHECK(memory.allocations == 1);            // Reused, and not asked for again.
    CHECK(pool.acquire(4096).size() == 4096);  // Makes room.
    CHECK(memory.deallocations == 1);
    last = pool.acquire(4096);
  }
  CHECK(memory.in_use == 4096);  // A block may outlive its pool.
  last.reset();
  CHECK(memory.in_use == 0);
  CHECK(memory.deallocations == 2);
  CHECK(memory.wrong == 0);
}

TEST_CASE("an upstream's device memory goes back on its own device", "[upstream]") {
  Memory memory(Memory::Kind::device);
  int devices = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&devices));
  const int device = devices - 1;
  DeviceSlot last;
  {
    std::optional<penstock::DeviceGuard> guard(std::in_place, device);
    DeviceArena arena(2, 1000, SyncResource(memory));  // A copy: the arena's own.
    const TestStream stream;
    DeviceSlot first = arena.acquire(stream);
    CHECK(reinterpret_cast<std::uintptr_t>(first.data()) % 512 == 0);
    CHECK(memory.in_use == 2048 + 256);
    last = arena.acquire(stream);
    REQUIRE_CUDA(cudaMemsetAsync(last.data(), 1, 1000, stream));
    last.release_after(stream);
    last = arena.acquire(stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    guard.reset();
    last.release_after(stream);
    last = std::move(first);
    last.release_after(stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(memory.in_use == 2048 + 256);
  }
  CHECK(memory.allocations == 1);
  CHECK(memory.deallocations == 1);
  CHECK(memory.wrong == 0);
}

TEST_CASE("slots are aligned to more than an upstream has to give", "[upstream]") {
  const TestStream stream;
  for (const std::size_t shift : {0u, 256u}) {
    Memory memory(Memory::Kind::device);
    memory.shift = shift;
    PmrResource resource(memory);
    {
      DeviceArena arena(2, 512, &resource);
      const DeviceSlot first = arena.acquire(stream), second = arena.acquire(stream);
      for (const DeviceSlot* slot : {&first, &second}) {
        CHECK(reinterpret_cast<std::uintptr_t>(slot->data()) % 512 == 0);
        REQUIRE_CUDA(cudaMemsetAsync(slot->data(), 1, 512, stream));
      }
    }
    CHECK(memory.deallocations == 1);
    CHECK(memory.wrong == 0);
  }
}

TEST_CASE("an upstream gets its memory back when no work uses it", "[upstream]") {
  Memory host(Memory::Kind::host), device(Memory::Kind::device);
  PmrResource from_host(host), from_device(device);
  Gate gate;
  const TestStream stream;
  std::size_t held = 0;
  std::thread opener;
  {
    PinnedPool pool({.max_bytes = 4096, .upstream = &from_host});
    DeviceArena arena(1, 4096, &from_device);
    PinnedBlock block = pool.acquire(4096);
    DeviceSlot slot = arena.acquire(stream);
    gate.hold(stream);
    block.copy_to(slot.data(), 4096, stream);
    slot.release_after(stream);
    opener = std::thread([&] {
      std::this_thread::sleep_for(20ms);
      held = host.in_use + device.in_use;
      gate.open();
    });
  }  // Waits.
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  opener.join();
  CHECK(held == 2 * 4096 + 256);
  CHECK(host.in_use + device.in_use == 0);
}

TEST_CASE("an arena whose slot is parked at its end does not give it away", "[upstream]") {
  // Not `Memory`: its block stays out.
  struct Forgetful {
    void* allocate(std::size_t bytes, std::size_t) {
      REQUIRE_CUDA(cudaMalloc(&memory, bytes));
      return memory;
    }
    void deallocate(void*, std::size_t, std::size_t) { ++returned; }
    void* memory = nullptr;
    int returned = 0;
  } resource;
  const TestStream stream;
  penstock::test::capture(stream, [&] {
    DeviceArena arena(1, 4096, &resource);
    const TestStream writer;
    DeviceSlot slot = arena.acquire(writer);
    CHECK_THROWS_AS(slot.release_after(stream), std::logic_error);
  });
  CHECK(resource.returned == 0);
  REQUIRE_CUDA(cudaFree(resource.memory));
}

TEST_CASE("a prefetcher over upstreams: the same batches, and no call of them on the way",
          "[upstream]") {
  Memory host(Memory::Kind::host), device(Memory::Kind::device);
  auto from_host = std::make_shared<PmrResource>(host);
  PmrResource from_device(device);
  {
    penstock::Prefetcher<Numbers> prefetcher(
        numbers_layout(8), shuffled(400, 8), write_numbers,
        {.workers = 2, .epochs = 2, .host_memory = from_host, .device_memory = &from_device});
    from_host.reset();  // The prefetcher has its share.
    const std::size_t allocations = host.allocations;
    CHECK(allocations == 4);  // host_depth
    CHECK(device.allocations == 1);
    CHECK(prefetcher.stats().host_bytes == host.in_use.load());
    CHECK(prefetcher.stats().setup.device_limit == 0);  // What an upstream has is unknown.
    CHECK(count_batches(prefetcher, 100) == 100);
    CHECK(host.allocations == allocations);
    CHECK(device.allocations == 1);
    CHECK(host.deallocations + device.deallocations == 0);
  }
  CHECK(host.in_use + device.in_use == 0);
  CHECK(host.wrong + device.wrong == 0);
}

TEST_CASE("an upstream that fails at its n-th call: its words, and nothing leaks", "[upstream]") {
  for (std::size_t n = 1; n <= 5; ++n) {
    Memory host(Memory::Kind::host), device(Memory::Kind::device);
    PmrResource from_host(host), from_device(device);
    host.fails_at = n;
    device.fails_at = n == 5 ? 1 : 0;  // The pinned memory needs four calls.
    const auto make = [&] {
      penstock::Prefetcher<Numbers> prefetcher(
          numbers_layout(8), shuffled(400, 8), write_numbers,
          {.workers = 2, .host_memory = &from_host, .device_memory = &from_device});
    };
    const std::string told = thrown<MemoryError>(make);
    CHECK_THAT(told, Mentions("the pool of the house is empty"));
    CHECK_THAT(told, Mentions(n == 5 ? "memory of device 0" : "page-locked memory"));
    CHECK(host.in_use + device.in_use == 0);
    host.fails_at = device.fails_at = 0;
    CHECK_NOTHROW(make());
    CHECK(host.wrong + device.wrong == 0);
  }
}

/// Gives a second block when the first one is being filled. Throws in place of it where told to.
struct SecondWhileFilling {
  void* allocate(std::size_t bytes, std::size_t alignment) {
    calls_after_failure += failed;
    if (memory->allocations > 0 && !eventually([&] { return begun.load(); }))
      throw std::runtime_error("no batch was begun in time");
    if (memory->allocations > 0 && fails) {
      failed = true;
      throw std::runtime_error("there is one block");
    }
    return memory->take(bytes, alignment);
  }
  void deallocate(void* block, std::size_t bytes, std::size_t alignment) {
    memory->put_back(block, bytes, alignment);
  }
  Memory* memory;
  bool fails = false;
  std::atomic<bool> begun{false}, failed{false};
  std::atomic<int> calls_after_failure{0};
};

TEST_CASE("workers fill the first block while the others are allocated", "[upstream]") {
  const auto tune = GENERATE(std::optional<penstock::Tune>(), penstock::Tune{.workers = 4});
  Memory memory(Memory::Kind::host);
  SecondWhileFilling resource{&memory};
  {
    penstock::Prefetcher<Numbers> prefetcher(
        numbers_layout(8), shuffled(400, 8),
        [&](const penstock::Ticket& ticket, Numbers& batch) {
          resource.begun = true;
          write_numbers(ticket, batch);
        },
        {.workers = 4, .host_memory = &resource, .tune = tune});
    const std::size_t blocks = memory.allocations;
    if (!tune) CHECK(blocks == prefetcher.stats().host_depth);
    CHECK(count_batches(prefetcher, 50) == 50);
    CHECK(memory.allocations == blocks);
  }
  CHECK(memory.in_use == 0);
}

TEST_CASE("an upstream that fails while workers run: they end before what they use", "[upstream]") {
  Memory memory(Memory::Kind::host);
  SecondWhileFilling resource{&memory, true};
  const auto make = [&] {
    penstock::Prefetcher<Numbers> prefetcher(
        numbers_layout(8), shuffled(400, 8),
        [&](const penstock::Ticket& ticket, Numbers& batch) {
          resource.begun = true;
          write_numbers(ticket, batch);
          eventually([&] { return resource.failed.load(); });
          std::this_thread::sleep_for(5ms);  // The constructor takes down what there is by then.
        },
        {.workers = 2, .host_memory = &resource});
  };
  CHECK_THAT(thrown<MemoryError>(make), Mentions("there is one block"));
  CHECK(resource.calls_after_failure == 0);
  CHECK(memory.in_use == 0);
}

TEST_CASE("a MemoryError has the bytes and the upstream's exception", "[upstream]") {
  Memory memory(Memory::Kind::host);
  PmrResource resource(memory);
  memory.fails_at = 1;
  PinnedPool pool({.max_bytes = 4096, .upstream = &resource});
  try {
    pool.acquire(300);
    FAIL("nothing was thrown");
  } catch (const MemoryError& error) {
    CHECK(error.asked() == 512);
    CHECK_THROWS_WITH(std::rethrow_if_nested(error), "the pool of the house is empty");
  }
  CHECK(pool.stats().bytes == 0);
  CHECK(pool.acquire(300));  // The pool goes on.

  struct Rude {
    void* allocate(std::size_t, std::size_t) { throw 7; }
    void deallocate(void*, std::size_t, std::size_t) {}
  };
  CHECK_THAT(thrown<MemoryError>([] { DeviceArena(1, 512, Rude()); }),
             Mentions("no std::exception"));
}

TEST_CASE("an upstream that gives other memory than was asked for is found out", "[upstream]") {
  Memory host(Memory::Kind::host), device(Memory::Kind::device), pageable(Memory::Kind::pageable);
  PmrResource from_host(host), from_device(device), from_new(pageable);
  const auto pinned_from = [](PmrResource& resource) {
    return thrown<MemoryError>(
        [&] { PinnedPool({.max_bytes = 4096, .upstream = &resource}).acquire(300); });
  };
  const auto arena_from = [](PmrResource& resource) {
    return thrown<MemoryError>([&] { DeviceArena(1, 512, &resource); });
  };
  CHECK_THAT(pinned_from(from_device), Mentions("it gave device memory"));
  CHECK_THAT(pinned_from(from_new), Mentions("not page-locked"));
  CHECK_THAT(arena_from(from_host), Mentions("it gave page-locked memory of the host"));
  CHECK_THAT(arena_from(from_new), Mentions("not page-locked"));
  host.shift = device.shift = 16;
  CHECK_THAT(pinned_from(from_host), Mentions("not aligned to 256 bytes"));
  CHECK_THAT(arena_from(from_device), Mentions("not aligned to 256 bytes"));
  host.shift = 0;
  host.gives_null = true;
  CHECK_THAT(thrown<MemoryError>([&] {
               PinnedPool({.max_bytes = 4096, .upstream = SyncResource(host)}).acquire(300);
             }),
             Mentions("a null pointer"));
  CHECK(host.in_use + device.in_use + pageable.in_use == 0);
  CHECK(host.wrong + device.wrong + pageable.wrong == 0);
}

TEST_CASE("managed memory is fit for an arena", "[upstream]") {
  struct Managed {
    void* allocate(std::size_t bytes, std::size_t) {
      void* memory = nullptr;
      REQUIRE_CUDA(cudaMallocManaged(&memory, bytes));
      return memory;
    }
    void deallocate(void* memory, std::size_t, std::size_t) { REQUIRE_CUDA(cudaFree(memory)); }
  };
  const TestStream stream;
  DeviceArena arena(1, 512, Managed());
  CHECK(arena.acquire(stream));
}

TEST_CASE("an upstream of another device is found out", "[upstream]") {
  int devices = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&devices));
  if (devices < 2) return;
  struct Elsewhere {
    void* allocate(std::size_t bytes, std::size_t) {
      const penstock::DeviceGuard guard(1);
      void* memory = nullptr;
      REQUIRE_CUDA(cudaMalloc(&memory, bytes));
      return memory;
    }
    void deallocate(void* memory, std::size_t, std::size_t) { REQUIRE_CUDA(cudaFree(memory)); }
  };
  CHECK_THAT(thrown<MemoryError>([] { DeviceArena(1, 512, Elsewhere()); }),
             Mentions("768 bytes of memory of device 0 were asked for, and it gave memory of "
                      "device 1"));
}

TEST_CASE("options that an upstream would not see are refused", "[upstream]") {
  Memory memory(Memory::Kind::host);
  PmrResource resource(memory);
  CHECK_THROWS_AS(PinnedPool({.numa_node = 0, .upstream = &resource}), std::invalid_argument);
  CHECK_THROWS_AS(PinnedPool({.flags = cudaHostAllocDefault, .upstream = &resource}),
                  std::invalid_argument);
  CHECK_THROWS_AS(Upstream(static_cast<PmrResource*>(nullptr)), std::invalid_argument);
  CHECK_THROWS_AS(Upstream(std::shared_ptr<PmrResource>()), std::invalid_argument);
  CHECK_FALSE(Upstream());
  CHECK(Upstream(&resource));
}

TEST_CASE("an exception at the end of an upstream's memory is ignored", "[upstream]") {
  Memory memory(Memory::Kind::device);
  PmrResource resource(memory);
  memory.throws_at_end = true;
  { const DeviceArena arena(1, 512, &resource); }
  CHECK(memory.deallocations == 1);
}

TEST_CASE("threads grow a pool over a slow upstream", "[upstream]") {
  Memory memory(Memory::Kind::host);
  PmrResource resource(memory);
  memory.delay = 2ms;
  {
    PinnedPool pool({.max_bytes = 8 * 1024, .upstream = &resource});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          const PinnedBlock first = pool.acquire(1024), second = pool.acquire(1024);
          std::fill_n(first.data(), 1024, std::byte{1});
          std::fill_n(second.data(), 1024, std::byte{2});
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(memory.allocations <= 8);
  }
  CHECK(memory.in_use == 0);
  CHECK(memory.wrong == 0);
}
