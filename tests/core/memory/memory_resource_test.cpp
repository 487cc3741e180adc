// SPDX-License-Identifier: Apache-2.0

// In CCCL before 3.1, cuda::mr is there only for a source that asks for it before anything of CCCL.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#include <penstock/memory_resource.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

using namespace std::chrono_literals;
using penstock::DeviceArena;
using penstock::DeviceArenaResource;
using penstock::PinnedPool;
using penstock::PinnedPoolResource;
using penstock::PoolExhausted;
using penstock::test::capture;
using penstock::test::DeviceMemory;
using penstock::test::Gate;
using penstock::test::Mentions;
using penstock::test::TestStream;
using penstock::test::thrown;

namespace {

#if CCCL_VERSION >= 3001000
using PinnedRef = cuda::mr::resource_ref<cuda::mr::host_accessible, cuda::mr::device_accessible>;
using DeviceRef = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#else
using PinnedRef =
    cuda::mr::async_resource_ref<cuda::mr::host_accessible, cuda::mr::device_accessible>;
using DeviceRef = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#endif

template <class Ref>
void* take(Ref ref, std::size_t bytes, cudaStream_t stream) {
#if CCCL_VERSION >= 3001000
  return ref.allocate(cuda::stream_ref(stream), bytes, 256);
#else
  return ref.allocate_async(bytes, 256, stream);
#endif
}
template <class Ref>
void put_back(Ref ref, void* memory, std::size_t bytes, cudaStream_t stream) {
#if CCCL_VERSION >= 3001000
  ref.deallocate(cuda::stream_ref(stream), memory, bytes, 256);
#else
  ref.deallocate_async(memory, bytes, 256, stream);
#endif
}

bool is_aligned(const void* memory, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(memory) % alignment == 0;
}

cudaMemoryType type_of(const void* memory) {
  cudaPointerAttributes attributes{};
  REQUIRE_CUDA(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type;
}

}  // namespace

static_assert(!std::is_base_of_v<std::pmr::memory_resource, DeviceArenaResource>);
static_assert(!cuda::has_property<DeviceArenaResource, cuda::mr::host_accessible>);

// ---- PinnedPoolResource

TEST_CASE("a vector of the standard library in page-locked memory", "[memory_resource]") {
  PinnedPool pool({.max_bytes = 1 << 20});
  PinnedPoolResource resource(pool);
  for (int round = 0; round < 3; ++round) {
    std::pmr::vector<std::uint32_t> values(&resource);
    for (std::uint32_t i = 0; i < 10'000; ++i) values.push_back(i);
    CHECK(type_of(values.data()) == cudaMemoryTypeHost);
    CHECK(is_aligned(values.data(), 256));
    std::uint32_t next = 0;
    CHECK(std::all_of(values.begin(), values.end(), [&](std::uint32_t v) { return v == next++; }));
    CHECK(pool.stats().bytes_in_use >= values.size() * sizeof(std::uint32_t));
  }
  CHECK(pool.stats().bytes_in_use == 0);
  CHECK(pool.stats().allocated == pool.stats().blocks);  // Later rounds allocated nothing.
}

TEST_CASE("containers of many small parts, behind a resource that divides blocks",
          "[memory_resource]") {
  PinnedPool pool({.max_bytes = 1 << 20});
  PinnedPoolResource resource(pool);
  {
    std::pmr::unsynchronized_pool_resource parts(&resource);
    std::pmr::deque<std::uint64_t> deque(&parts);
    std::pmr::unordered_map<int, int> map(&parts);
    for (int i = 0; i < 3000; ++i) {
      deque.push_back(static_cast<std::uint64_t>(i));
      map[i] = -i;
    }
    CHECK(std::accumulate(deque.begin(), deque.end(), std::uint64_t{0}) == 3000u * 2999 / 2);
    CHECK(map.at(2999) == -2999);
    CHECK(type_of(&map.at(0)) == cudaMemoryTypeHost);
    CHECK(pool.stats().blocks < 60);
  }
  CHECK(pool.stats().bytes_in_use == 0);
}

TEST_CASE("page-locked memory of any size and alignment", "[memory_resource]") {
  PinnedPool pool({.max_bytes = 1 << 20});
  PinnedPoolResource resource(pool);
  for (const std::size_t bytes : {0u, 1u, 255u, 256u, 257u, 5000u})
    for (std::size_t alignment = 1; alignment <= 16384; alignment *= 2) {
      auto* first = static_cast<std::byte*>(resource.allocate(bytes, alignment));
      auto* second = static_cast<std::byte*>(resource.allocate_sync(bytes, alignment));
      CHECK(is_aligned(first, std::max<std::size_t>(alignment, 256)));
      std::fill_n(first, bytes, std::byte{1});
      std::fill_n(second, bytes, std::byte{2});
      CHECK(std::count(first, first + bytes, std::byte{1}) == static_cast<std::ptrdiff_t>(bytes));
      resource.deallocate(first, bytes, alignment);
      resource.deallocate_sync(second, bytes, alignment);
    }
  CHECK(pool.stats().bytes_in_use == 0);
}

TEST_CASE("what a pool cannot give, its resource refuses", "[memory_resource]") {
  PinnedPool pool({.max_bytes = 4096, .timeout = 0ms});
  PinnedPoolResource resource(pool);
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {std::size_t{4096}, kMost - 300, kMost - 255, kMost})
    CHECK_THROWS_AS(resource.allocate(bytes, 16), PoolExhausted);
  CHECK_THROWS_AS(resource.allocate(16, std::size_t{1} << 32), PoolExhausted);
  void* const all = resource.allocate(4096 - 256);
  CHECK_THAT(thrown<PoolExhausted>([&] { static_cast<void>(resource.allocate(1)); }),
             Mentions("no block came back"));
  resource.deallocate(all, 4096 - 256);
  std::pmr::vector<int> values(&resource);
  CHECK_THROWS_AS(values.resize(4096), PoolExhausted);
  CHECK(values.empty());
  CHECK(pool.stats().bytes_in_use == 0);
}

TEST_CASE("a vector may go while a copy reads it: its memory is reused after the copy",
          "[memory_resource]") {
  constexpr std::size_t kSize = 1000;
  Gate gate;
  const TestStream stream;
  DeviceMemory<int> first(kSize), second(kSize);
  PinnedPool pool({.max_bytes = 2 * 5120});
  PinnedPoolResource resource(pool, stream);
  gate.hold(stream);
  const void* used = nullptr;
  const auto copy = [&](int value, const DeviceMemory<int>& to) {
    std::pmr::vector<int> values(kSize, value, &resource);
    used = values.data();
    REQUIRE_CUDA(cudaMemcpyAsync(to.data(), used, to.bytes(), cudaMemcpyHostToDevice, stream));
  };
  copy(1, first);
  const void* const before = used;
  copy(2, second);
  CHECK(used != before);
  CHECK(pool.stats().bytes_in_flight == 2 * 4352);
  gate.open();
  const std::pmr::vector<int> third(kSize, 3, &resource);  // Waits for one of the copies.
  CHECK((third.data() == before || third.data() == used));
  CHECK(first.read() == std::vector<int>(kSize, 1));
  CHECK(second.read() == std::vector<int>(kSize, 2));
}

TEST_CASE("memory in stream order: cuda::mr's calls of a pinned pool", "[memory_resource]") {
  Gate gate;
  const TestStream stream;
  PinnedPool pool({.max_bytes = 2 * 1280});
  PinnedPoolResource resource(pool);
  const PinnedRef ref(resource);
  void* const first = take(ref, 1024, stream);
  CHECK(type_of(first) == cudaMemoryTypeHost);
  gate.hold(stream);
  put_back(ref, first, 1024, stream);
  CHECK(pool.stats().bytes_in_flight == 1280);
  void* const second = take(ref, 1024, stream);
  CHECK(second != first);
  gate.open();
  void* const third = resource.allocate(penstock::Stream().get(), 1024, 8);  // Waits.
  CHECK(third == first);
  resource.deallocate_async(second, 1024, 8, static_cast<cudaStream_t>(stream));
  resource.deallocate(third, 1024);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(pool.acquire(1280));
}

TEST_CASE("page-locked memory that another thread deallocates, after this one's stream",
          "[memory_resource]") {
  Gate gate;
  PinnedPool pool({.max_bytes = 1280, .timeout = 0ms});
  PinnedPoolResource resource(pool, cudaStreamPerThread);
  void* const memory = resource.allocate(1024);
  DeviceMemory<std::byte> to(1024);
  std::fill_n(static_cast<std::byte*>(memory), 1024, std::byte{5});
  gate.hold(cudaStreamPerThread);
  REQUIRE_CUDA(cudaMemcpyAsync(to.data(), memory, 1024, cudaMemcpyDefault, cudaStreamPerThread));
  std::thread([&] { resource.deallocate(memory, 1024); }).join();
  CHECK_THROWS_AS(resource.allocate(1024), PoolExhausted);  // The copy has yet to read it.
  gate.open();
  CHECK(to.read() == std::vector<std::byte>(1024, std::byte{5}));
  void* const again = resource.allocate(1024);
  CHECK(again == memory);
  resource.deallocate(again, 1024);
}

TEST_CASE("page-locked memory may outlive its pool", "[memory_resource]") {
  std::optional<PinnedPool> pool(std::in_place, penstock::PinnedPoolOptions{.max_bytes = 1 << 16});
  PinnedPoolResource resource(*pool);
  std::pmr::vector<int> values(100, 7, &resource);
  pool.reset();
  CHECK(std::count(values.begin(), values.end(), 7) == 100);
}

TEST_CASE("memory that is deallocated on a captured stream is never reused", "[memory_resource]") {
  const TestStream stream;
  PinnedPool pool({.max_bytes = 1280});
  PinnedPoolResource bound(pool, stream), free(pool);
  void* memory = free.allocate(1024);
  capture(stream, [&] { bound.deallocate(memory, 1024); });  // And the capture goes on.
  CHECK_THROWS_AS(free.allocate(1024), penstock::CudaError);

  PinnedPool other({.max_bytes = 1280});
  PinnedPoolResource resource(other);
  memory = resource.allocate(1024);
  capture(stream, [&] { resource.deallocate(static_cast<cudaStream_t>(stream), memory, 1024); });
  CHECK_THAT(thrown<penstock::CudaError>([&] { static_cast<void>(resource.allocate(1024)); }),
             Mentions("is lost"));
}

TEST_CASE("resources of the same pool are equal", "[memory_resource]") {
  PinnedPool pool({.max_bytes = 1 << 16}), other({.max_bytes = 1 << 16});
  const TestStream stream;
  PinnedPoolResource first(pool), second(pool, stream), third(other);
  CHECK(first == second);
  CHECK(first != third);
  CHECK_FALSE(first == *std::pmr::new_delete_resource());
  std::pmr::vector<int> values(100, 7, &first), taken(&second);
  const int* const data = values.data();
  taken = std::move(values);  // Nothing is copied.
  CHECK(taken.data() == data);
}

TEST_CASE("threads share a pinned pool's resource", "[memory_resource]") {
  PinnedPool pool({.max_bytes = 1 << 16});
  PinnedPoolResource resource(pool);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::pmr::vector<int> values(500, t, &resource);
        wrong[static_cast<std::size_t>(t)] += std::count(values.begin(), values.end(), t) != 500;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
  CHECK(pool.stats().bytes_in_use == 0);
}

// ---- DeviceArenaResource

TEST_CASE("an arena's slots as buffers in stream order", "[memory_resource]") {
  Gate gate;
  const TestStream stream, other;
  DeviceMemory<std::byte> result(1000);
  DeviceArena arena(1, 1000);
  DeviceArenaResource resource(arena);
  const DeviceRef ref(resource);
  void* const first = take(ref, 1000, other);
  CHECK(type_of(first) == cudaMemoryTypeDevice);
  gate.hold(stream);
  REQUIRE_CUDA(cudaMemsetAsync(first, 1, 1000, stream));
  REQUIRE_CUDA(cudaMemcpyAsync(result.data(), first, 1000, cudaMemcpyDefault, stream));
  put_back(ref, first, 1000, stream);
  void* const second = take(ref, 1000, other);  // At once: the stream waits.
  CHECK(second == first);
  REQUIRE_CUDA(cudaMemsetAsync(second, 2, 1000, other));
  CHECK(cudaStreamQuery(other) == cudaErrorNotReady);
  resource.deallocate(static_cast<cudaStream_t>(other), second, 1000);
  gate.open();
  CHECK(result.read() == std::vector<std::byte>(1000, std::byte{1}));
  CHECK(arena.free_slots() == 1);
}

TEST_CASE("what an arena cannot give, its resource refuses at once", "[memory_resource]") {
  const TestStream stream;
  DeviceArena arena(2, 1000);
  DeviceArenaResource resource(arena);
  CHECK_THAT(thrown<PoolExhausted>([&] { static_cast<void>(resource.allocate_sync(1001)); }),
             Mentions("a slot has 1000 bytes"));
  CHECK_THROWS_AS(resource.allocate_sync(10, 1024), std::invalid_argument);
  void* const first = resource.allocate(static_cast<cudaStream_t>(stream), 1000, 512);
  void* const second = resource.allocate_sync(0);
  CHECK(second != first);
  CHECK_THAT(thrown<PoolExhausted>([&] { static_cast<void>(resource.allocate_sync(1)); }),
             Mentions("all 2 slots are in use"));
  resource.deallocate_async(first, 1000, 512, static_cast<cudaStream_t>(stream));
  resource.deallocate_sync(second, 0);
  resource.deallocate_sync(second, 0);   // Twice,
  resource.deallocate_sync(&arena, 64);  // and what it never gave: both are ignored.
  CHECK(arena.free_slots() == 2);
}

TEST_CASE("a call without a stream waits for the slot's readers", "[memory_resource]") {
  Gate gate;
  const TestStream stream;
  DeviceArena arena(1, 1000);
  DeviceArenaResource resource(arena);
  void* const memory = resource.allocate(static_cast<cudaStream_t>(stream), 1000);
  gate.hold(stream);
  resource.deallocate(static_cast<cudaStream_t>(stream), memory, 1000);
  std::thread opener([&] {
    std::this_thread::sleep_for(10ms);
    gate.open();
  });
  void* const again = resource.allocate_sync(1000);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  resource.deallocate_sync(again, 1000);
  opener.join();
}

TEST_CASE("an arena may go before its resource", "[memory_resource]") {
  std::optional<DeviceArena> arena(std::in_place, std::size_t{1}, std::size_t{1000});
  DeviceArenaResource resource(*arena);
  arena.reset();
  void* const memory = resource.allocate_sync(1000);
  CHECK(type_of(memory) == cudaMemoryTypeDevice);
  resource.deallocate_sync(memory, 1000);
  CHECK(resource == DeviceArenaResource(resource));
  CHECK(resource != DeviceArenaResource(DeviceArena(1, 1000)));
}

TEST_CASE("a slot that is deallocated on a captured stream comes back after the capture",
          "[memory_resource]") {
  const TestStream stream;
  DeviceArena arena(1, 1000);
  DeviceArenaResource resource(arena);
  void* const memory = resource.allocate_sync(1000);
  capture(stream, [&] {
    resource.deallocate(static_cast<cudaStream_t>(stream), memory, 1000);
    CHECK(arena.parked_slots() == 1);
    CHECK_THROWS_AS(resource.allocate(static_cast<cudaStream_t>(stream), 1000), std::logic_error);
    CHECK_THROWS_AS(resource.allocate_sync(1000), std::logic_error);
  });
  CHECK(resource.allocate_sync(1000) == memory);
}

TEST_CASE("threads take an arena's slots on streams of their own", "[memory_resource]") {
  DeviceArena arena(4, 4096);
  DeviceArenaResource resource(arena);
  std::vector<std::thread> threads;
  std::vector<int> torn(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const penstock::Stream stream;
      std::vector<unsigned char> back(4096);
      for (int i = 0; i < 20; ++i) {
        void* const memory = resource.allocate(stream.get(), 4096, 256);
        cudaMemsetAsync(memory, t, 4096, stream.get());
        cudaMemcpyAsync(back.data(), memory, 4096, cudaMemcpyDeviceToHost, stream.get());
        resource.deallocate(stream.get(), memory, 4096, 256);
        cudaStreamSynchronize(stream.get());
        torn[static_cast<std::size_t>(t)] += std::count(back.begin(), back.end(), t) != 4096;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(torn == std::vector<int>(4, 0));
  CHECK(arena.free_slots() == 4);
}
