// SPDX-License-Identifier: Apache-2.0

// The rules of pools and stream-ordered memory. Functions: cudaMallocAsync,
// cudaMallocFromPoolAsync, cudaFreeAsync, cudaMemPool*, cudaDeviceGetDefaultMemPool,
// cudaDeviceGetMemPool, cudaDeviceSetMemPool.

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

constexpr std::size_t kBytes = 4096;

cudaMemPool_t default_pool() {
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  return pool;
}

/// A pool of memory of device 0, destroyed at the end of its scope.
class TestPool {
 public:
  TestPool() {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    REQUIRE_CUDA(cudaMemPoolCreate(&pool_, &properties));
  }
  ~TestPool() { CHECK_CUDA(cudaMemPoolDestroy(pool_)); }
  TestPool(const TestPool&) = delete;
  TestPool& operator=(const TestPool&) = delete;
  // NOLINTNEXTLINE(google-explicit-constructor): stands for the handle in CUDA calls.
  operator cudaMemPool_t() const noexcept { return pool_; }

 private:
  cudaMemPool_t pool_ = nullptr;
};

std::uint64_t attribute(cudaMemPool_t pool, cudaMemPoolAttr name) {
  std::uint64_t value = 0;
  REQUIRE_CUDA(cudaMemPoolGetAttribute(pool, name, &value));
  return value;
}

}  // namespace

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMallocAsync: "Inserts an allocation
// operation into hStream. A pointer to the allocated memory is returned immediately in *dptr."
TEST_CASE("an allocation in a held stream gives its pointer at once", "[rules][pool]") {
  const PinnedMemory<std::uint8_t> host(kBytes);
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&memory, kBytes, stream));
  CHECK(memory != nullptr);
  // "Basic stream ordering allows future work submitted into the same stream to use the
  // allocation."
  REQUIRE_CUDA(cudaMemsetAsync(memory, 3, kBytes, stream));
  REQUIRE_CUDA(cudaMemcpyAsync(host.data(), memory, kBytes, cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(host.all(3));
}

// The same description: "Stream query, stream synchronize, and CUDA events can be used to guarantee
// that the allocation operation completes before work submitted in a separate stream runs."
TEST_CASE("another stream may use an allocation after its event", "[rules][pool]") {
  const PinnedMemory<std::uint8_t> host(kBytes);
  const TestStream allocator, user;
  const TestEvent allocated, used;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&memory, kBytes, allocator));
  REQUIRE_CUDA(cudaEventRecord(allocated, allocator));
  REQUIRE_CUDA(cudaStreamWaitEvent(user, allocated, 0));
  REQUIRE_CUDA(cudaMemsetAsync(memory, 4, kBytes, user));
  REQUIRE_CUDA(cudaMemcpyAsync(host.data(), memory, kBytes, cudaMemcpyDeviceToHost, user));
  REQUIRE_CUDA(cudaEventRecord(used, user));
  REQUIRE_CUDA(cudaStreamWaitEvent(allocator, used, 0));
  REQUIRE_CUDA(cudaFreeAsync(memory, allocator));
  REQUIRE_CUDA(cudaStreamSynchronize(allocator));
  CHECK(host.all(4));
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaFreeAsync: "Inserts a free operation into
// hStream." Nobody else gets the memory before that.
TEST_CASE("memory is not reused before its free is reached", "[rules][pool]") {
  const PinnedMemory<std::uint8_t> host(kBytes);
  const TestStream held, other;
  const TestPool pool;
  void *first = nullptr, *second = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&first, kBytes, pool, held));
  Gate gate;
  gate.hold(held);
  REQUIRE_CUDA(cudaMemsetAsync(first, 1, kBytes, held));
  REQUIRE_CUDA(cudaMemcpyAsync(host.data(), first, kBytes, cudaMemcpyDeviceToHost, held));
  REQUIRE_CUDA(cudaFreeAsync(first, held));
  // Without internal dependencies the allocator may not make `other` wait for `held` either.
  int off = 0;
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &off));
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&second, kBytes, pool, other));
  CHECK(second != first);
  REQUIRE_CUDA(cudaMemsetAsync(second, 2, kBytes, other));
  REQUIRE_CUDA(cudaStreamSynchronize(other));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(held));
  CHECK(host.all(1));
  REQUIRE_CUDA(cudaFreeAsync(second, other));
  REQUIRE_CUDA(cudaStreamSynchronize(other));
}

// CUDA Runtime API, Memory Management, cudaFree: "must have been returned by a previous call to one
// of
// ... cudaMallocAsync(), cudaMallocFromPoolAsync()." "Callers must ensure that all accesses to
// these pointer have completed before invoking cudaFree."
TEST_CASE("cudaFree takes stream-ordered memory", "[rules][pool]") {
  const TestStream stream;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&memory, kBytes, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaFree(memory));
}

// CUDA Runtime API, Unified Addressing, cudaPointerGetAttributes: device memory, however allocated.
TEST_CASE("stream-ordered memory is device memory", "[rules][pool]") {
  const TestStream stream;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&memory, kBytes, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  cudaPointerAttributes attributes{};
  REQUIRE_CUDA(cudaPointerGetAttributes(&attributes, memory));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaDeviceGetMemPool: "Returns the last pool
// provided to cudaDeviceSetMemPool for this device or the device's default memory pool if
// cudaDeviceSetMemPool has never been called."
TEST_CASE("a device has a current pool, at first its default pool", "[rules][pool]") {
  const auto current = [] {
    cudaMemPool_t pool = nullptr;
    REQUIRE_CUDA(cudaDeviceGetMemPool(&pool, 0));
    return pool;
  };
  CHECK(current() == default_pool());
  {
    const TestPool pool;
    REQUIRE_CUDA(cudaDeviceSetMemPool(0, pool));
    CHECK(current() == static_cast<cudaMemPool_t>(pool));
  }
  // cudaMemPoolDestroy: "Destroying the current mempool of a device sets the default mempool of
  // that device as the current mempool for that device."
  CHECK(current() == default_pool());
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMemPoolDestroy: "A device's default memory
// pool cannot be destroyed."
TEST_CASE("a default pool cannot be destroyed", "[rules][pool]") {
  CHECK(cudaMemPoolDestroy(default_pool()) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMemPoolGetAttribute:
// "cudaMemPoolAttrUsedMemCurrent: Amount of memory from the pool that is currently in use by the
// application."
TEST_CASE("a pool counts the memory in use", "[rules][pool]") {
  const TestPool pool;
  const TestStream stream;
  CHECK(attribute(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, kBytes, pool, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(attribute(pool, cudaMemPoolAttrUsedMemCurrent) >= kBytes);
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) >= kBytes);
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(attribute(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
  // "High watermark of the amount of memory from the pool that was in use ... since the last time
  // it was reset."
  CHECK(attribute(pool, cudaMemPoolAttrUsedMemHigh) >= kBytes);
  std::uint64_t zero = 0;
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &zero));
  CHECK(attribute(pool, cudaMemPoolAttrUsedMemHigh) == 0);
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMemPoolSetAttribute:
// "cudaMemPoolAttrReleaseThreshold: Amount of reserved memory in bytes to hold onto before trying
// to release memory back to the OS. ... (default 0)"
TEST_CASE("a pool holds on to memory up to its release threshold", "[rules][pool]") {
  const TestPool pool;
  const TestStream stream;
  CHECK(attribute(pool, cudaMemPoolAttrReleaseThreshold) == 0);
  std::uint64_t keep_all = UINT64_MAX;
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
  CHECK(attribute(pool, cudaMemPoolAttrReleaseThreshold) == keep_all);
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, kBytes, pool, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) >= kBytes);
  // cudaMemPoolTrimTo: "Releases memory back to the OS until the pool contains fewer than
  // minBytesToKeep reserved bytes, or there is no more memory that the allocator can safely
  // release."
  REQUIRE_CUDA(cudaMemPoolTrimTo(pool, 0));
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 0);
}

// CUDA Programming Guide, Stream-Ordered Memory Allocator, Synchronization API Actions: the driver
// "checks the memory pool's release threshold ... and releases any excess physical memory that it
// can", whatever the host waits for.
TEST_CASE("a pool releases memory at a wait for a stream, an event or the device",
          "[rules][pool]") {
  const TestPool pool;
  const TestStream stream;
  const TestEvent freed;
  const int kind = GENERATE(0, 1, 2);
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, kBytes, pool, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaEventRecord(freed, stream));
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) >= kBytes);
  REQUIRE_CUDA(kind == 0   ? cudaStreamSynchronize(stream)
               : kind == 1 ? cudaEventSynchronize(freed)
                           : cudaDeviceSynchronize());
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 0);
}

// The same section: "the driver will determine what frees the synchronization guaranteed to be
// completed. These allocations are made available for allocation regardless of specified stream or
// disabled allocation policies."
TEST_CASE("memory whose free the host has waited for is used again in any stream",
          "[rules][pool]") {
  constexpr std::size_t kBlock = std::size_t{64} << 20;
  const TestPool pool;
  const TestStream stream, other;
  const TestEvent freed;
  std::uint64_t keep_all = UINT64_MAX;
  int off = 0;
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
  for (const auto reuse :
       {cudaMemPoolReuseFollowEventDependencies, cudaMemPoolReuseAllowOpportunistic,
        cudaMemPoolReuseAllowInternalDependencies})
    REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, reuse, &off));
  const int kind = GENERATE(0, 1, 2);
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, kBlock, pool, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaEventRecord(freed, stream));
  REQUIRE_CUDA(kind == 0   ? cudaStreamSynchronize(stream)
               : kind == 1 ? cudaEventSynchronize(freed)
                           : cudaDeviceSynchronize());
  const std::uint64_t reserved = attribute(pool, cudaMemPoolAttrReservedMemCurrent);
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, kBlock, pool, other));
  CHECK(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == reserved);
  REQUIRE_CUDA(cudaFreeAsync(memory, other));
  REQUIRE_CUDA(cudaStreamSynchronize(other));
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMemPoolDestroy: "If any pointers obtained
// from this pool haven't been freed ..., the function will return immediately and the resources
// associated with the pool will be released automatically once there are no more outstanding
// allocations."
TEST_CASE("a pool can be destroyed before its memory is freed", "[rules][pool]") {
  const PinnedMemory<std::uint8_t> host(kBytes);
  const TestStream stream;
  void* memory = nullptr;
  {
    const TestPool pool;
    REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, kBytes, pool, stream));
  }
  REQUIRE_CUDA(cudaMemsetAsync(memory, 5, kBytes, stream));
  REQUIRE_CUDA(cudaMemcpyAsync(host.data(), memory, kBytes, cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(host.all(5));
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMemPoolGetAccess: "Returns the
// accessibility of the pool's memory from the specified location." cudaMemPoolCreate: "the memory
// pool will be accessible from the device its allocations are on."
TEST_CASE("a pool is accessible from its own device, and from those it is opened to",
          "[rules][pool]") {
  const TestPool pool;
  const auto access = [&](int device) {
    cudaMemLocation location{};
    location.type = cudaMemLocationTypeDevice;
    location.id = device;
    cudaMemAccessFlags flags{};
    REQUIRE_CUDA(cudaMemPoolGetAccess(&flags, pool, &location));
    return flags;
  };
  CHECK(access(0) == cudaMemAccessFlagsProtReadWrite);
  int count = 0, can = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&count));
  if (count < 2) return;
  REQUIRE_CUDA(cudaDeviceCanAccessPeer(&can, 1, 0));
  if (can == 0) return;
  CHECK(access(1) == cudaMemAccessFlagsProtNone);
  cudaMemAccessDesc open{};
  open.location.type = cudaMemLocationTypeDevice;
  open.location.id = 1;
  open.flags = cudaMemAccessFlagsProtReadWrite;
  REQUIRE_CUDA(cudaMemPoolSetAccess(pool, &open, 1));
  CHECK(access(1) == cudaMemAccessFlagsProtReadWrite);
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMemPoolSetAccess: "Controls visibility of
// pools between devices"; the device of the pool always sees it.
TEST_CASE("the access of a pool's own device stays", "[rules][pool]") {
  const TestPool pool;
  cudaMemAccessDesc close{};
  close.location.type = cudaMemLocationTypeDevice;
  close.flags = cudaMemAccessFlagsProtNone;
  CHECK(cudaMemPoolSetAccess(pool, &close, 1) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMallocAsync: cudaErrorOutOfMemory is among
// its answers.
TEST_CASE("too large a stream-ordered allocation is an error that passes", "[rules][pool]") {
  const TestStream stream;
  void* memory = nullptr;
  CHECK(cudaMallocAsync(&memory, std::size_t{1} << 46, stream) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE_CUDA(cudaMallocAsync(&memory, kBytes, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}
