// SPDX-License-Identifier: Apache-2.0

// The rules of the pools of a location, and of stream-ordered managed memory: new in CUDA 13.
// Functions: cudaMemGetDefaultMemPool, cudaMemGetMemPool, cudaMemSetMemPool.

#include <cuda_runtime_api.h>

#if CUDART_VERSION >= 13000

#include <algorithm>
#include <cstdint>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/managed.hpp"

using namespace penstock::test;

namespace {

constexpr cudaMemAllocationType kManagedType = cudaMemAllocationTypeManaged;
constexpr cudaMemAllocationType kPinnedType = cudaMemAllocationTypePinned;

cudaMemPool_t default_of(cudaMemLocation location, cudaMemAllocationType type) {
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaMemGetDefaultMemPool(&pool, &location, type));
  REQUIRE(pool != nullptr);
  return pool;
}

cudaMemPool_t current_of(cudaMemLocation location, cudaMemAllocationType type) {
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaMemGetMemPool(&pool, &location, type));
  return pool;
}

cudaError_t set_current(cudaMemLocation location, cudaMemAllocationType type, cudaMemPool_t pool) {
  return cudaMemSetMemPool(&location, type, pool);
}

cudaMemPool_t make_managed_pool() {
  cudaMemPoolProps properties{};
  properties.allocType = kManagedType;
  properties.location = kDevice0;
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaMemPoolCreate(&pool, &properties));
  return pool;
}

}  // namespace

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMemGetDefaultMemPool: "Returns the default
// memory pool for a given location and allocation type".
TEST_CASE("a location has a default pool for each type of memory", "[rules][pool][managed]") {
  if (!managed_memory_is_concurrent()) return;
  cudaMemPool_t of_device = nullptr;
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&of_device, 0));
  CHECK(default_of(kDevice0, kPinnedType) == of_device);
  const cudaMemPool_t managed = default_of(kDevice0, kManagedType);
  CHECK(managed != of_device);
  CHECK(default_of(kDevice0, kManagedType) == managed);
  // "By default, a memory location's current memory pool is its default memory pool."
  CHECK(current_of(kDevice0, kManagedType) == managed);
  CHECK(cudaMemPoolDestroy(managed) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA Runtime API, data types, cudaMemAllocationTypeManaged: "This allocation type is managed
// memory".
TEST_CASE("memory of a managed pool is memory of the host and of the device",
          "[rules][pool][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const cudaMemPool_t pool = default_of(kDevice0, kManagedType);
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, kPageBytes, pool, stream));
  REQUIRE(memory != nullptr);
  cudaPointerAttributes attributes{};
  REQUIRE_CUDA(cudaPointerGetAttributes(&attributes, memory));
  CHECK(attributes.type == cudaMemoryTypeManaged);
  REQUIRE_CUDA(cudaMemsetAsync(memory, 3, kPageBytes, stream));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  auto* const bytes = static_cast<std::uint8_t*>(memory);
  CHECK(std::all_of(bytes, bytes + kPageBytes, [](std::uint8_t byte) { return byte == 3; }));
  bytes[kPageBytes - 1] = 4;
  std::uint8_t last = 0;
  REQUIRE_CUDA(cudaMemcpyAsync(&last, bytes + kPageBytes - 1, 1, cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(int{last} == 4);
}

// The same, cudaMemSetMemPool: "When a memory pool is set as the current memory pool, the location
// parameter should be the same as the location of the pool. If the location type or index don't
// match, the call returns cudaErrorInvalidValue. The type of memory pool should also match the
// parameter allocType. Else the call returns cudaErrorInvalidValue."
TEST_CASE("a location has the pool that was set", "[rules][pool][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const cudaMemPool_t pool = make_managed_pool();
  REQUIRE_CUDA(set_current(kDevice0, kManagedType, pool));
  CHECK(current_of(kDevice0, kManagedType) == pool);
  CHECK(default_of(kDevice0, kManagedType) != pool);
  CHECK(set_current(kDevice0, kPinnedType, pool) == cudaErrorInvalidValue);
  CHECK(set_current(kHost, kManagedType, pool) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  REQUIRE_CUDA(set_current(kDevice0, kManagedType, default_of(kDevice0, kManagedType)));
  REQUIRE_CUDA(cudaMemPoolDestroy(pool));
}

// The same: "If the location type is cudaMemLocationTypeDevice and the allocation type is
// cudaMemAllocationTypePinned, then this API is the equivalent of calling cudaDeviceSetMemPool".
TEST_CASE("the pool of a device's location is the device's", "[rules][pool][managed]") {
  cudaMemPoolProps properties{};
  properties.allocType = kPinnedType;
  properties.location = kDevice0;
  cudaMemPool_t pool = nullptr, found = nullptr;
  REQUIRE_CUDA(cudaMemPoolCreate(&pool, &properties));
  REQUIRE_CUDA(set_current(kDevice0, kPinnedType, pool));
  REQUIRE_CUDA(cudaDeviceGetMemPool(&found, 0));
  CHECK(found == pool);
  CHECK(current_of(kDevice0, kPinnedType) == pool);
  REQUIRE_CUDA(cudaMemPoolDestroy(pool));
  CHECK(current_of(kDevice0, kPinnedType) == default_of(kDevice0, kPinnedType));
}

#endif
