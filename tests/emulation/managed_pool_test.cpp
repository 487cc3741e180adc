// SPDX-License-Identifier: Apache-2.0

// Managed pools where the documentation leaves something open: what a pool's location does, and
// what there is no pool of.

#include <cuda_runtime_api.h>

#if CUDART_VERSION >= 13000

#include <penstock/emulation.hpp>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/handles.hpp"
#include "support/managed.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

constexpr cudaMemLocation kNowhere{cudaMemLocationTypeNone, 0};

cudaError_t ask_for_pool(cudaMemPool_t* pool, cudaMemLocation location,
                         cudaMemAllocationType type = cudaMemAllocationTypeManaged) {
  return cudaMemGetDefaultMemPool(pool, &location, type);
}

cudaMemPool_t managed_pool_of(cudaMemLocation location) {
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(ask_for_pool(&pool, location));
  return pool;
}

}  // namespace

// CUDA does not say that memory of a pool can be advised about and prefetched.
TEST_CASE("memory of a managed pool prefers the pool's location",
          "[emulation][pool][managed][looser]") {
  const TestStream stream;
  const auto preferred = [&](cudaMemLocation location) {
    void* memory = nullptr;
    REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, kPageBytes, managed_pool_of(location), stream));
    const int device = range_attribute(cudaMemRangeAttributePreferredLocation, memory, kPageBytes);
    CHECK(range_attribute(cudaMemRangeAttributeReadMostly, memory, kPageBytes) == 0);
    CHECK(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, memory, kPageBytes) ==
          cudaInvalidDeviceId);
    REQUIRE_CUDA(advise(memory, kPageBytes, cudaMemAdviseSetReadMostly, kDevice0));
    REQUIRE_CUDA(prefetch(memory, kPageBytes, kHost, stream));
    CHECK(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, memory, kPageBytes) ==
          cudaCpuDeviceId);
    REQUIRE_CUDA(cudaFreeAsync(memory, stream));
    CHECK(prefetch(memory, kPageBytes, kHost, stream) == cudaErrorInvalidValue);
    return device;
  };
  for (int i = 0; i < 2; ++i) {  // The second time the memory is used again.
    CHECK(preferred(kDevice0) == 0);
    CHECK(preferred(kHost) == cudaCpuDeviceId);
    CHECK(preferred(kNowhere) == cudaInvalidDeviceId);
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA has pools of page-locked memory, too: they are cudaErrorNotSupported here.
TEST_CASE("there are no pools of page-locked memory, nor of places that do not exist",
          "[emulation][pool][managed][absent]") {
  cudaMemPool_t pool = nullptr;
  CHECK(ask_for_pool(&pool, {cudaMemLocationTypeDevice, 99}) == cudaErrorInvalidDevice);
  CHECK(ask_for_pool(&pool, {cudaMemLocationTypeHostNuma, 1}) == cudaErrorInvalidValue);
  CHECK(ask_for_pool(&pool, {cudaMemLocationTypeHostNumaCurrent, 0}) == cudaErrorInvalidValue);
  CHECK(ask_for_pool(&pool, kNowhere, cudaMemAllocationTypePinned) == cudaErrorInvalidValue);
  CHECK(ask_for_pool(&pool, kDevice0, cudaMemAllocationTypeInvalid) == cudaErrorInvalidValue);
  CHECK(ask_for_pool(&pool, kHost, cudaMemAllocationTypePinned) == cudaErrorNotSupported);
  CHECK(ask_for_pool(nullptr, kDevice0) == cudaErrorInvalidValue);
  CHECK(cudaMemGetDefaultMemPool(&pool, nullptr, cudaMemAllocationTypeManaged) ==
        cudaErrorInvalidValue);
  CHECK(pool == nullptr);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA does not say that a capture cannot allocate from such a pool.
TEST_CASE("a managed pool cannot be the current pool of a device",
          "[emulation][pool][managed][stricter]") {
  const TestStream stream;
  const cudaMemPool_t pool = managed_pool_of(kDevice0);
  CHECK(emulation::live().memory_pools == 0);
  CHECK(cudaDeviceSetMemPool(0, pool) == cudaErrorInvalidValue);
  // A graph has no managed memory.
  void* memory = nullptr;
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaMallocFromPoolAsync(&memory, kPageBytes, pool, stream) == cudaErrorNotSupported);
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
  CHECK(memory == nullptr);
  CHECK(cudaGetLastError() == cudaErrorNotSupported);
}

TEST_CASE("managed pools are open to every device", "[emulation][pool][managed][held]") {
  emulation::Options options = emulation::options();
  options.machine.devices = 2;
  emulation::reset(options);
  for (const cudaMemLocation location : {kDevice0, kHost, kNowhere}) {
    cudaMemLocation device{cudaMemLocationTypeDevice, 1};
    cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
    REQUIRE_CUDA(cudaMemPoolGetAccess(&flags, managed_pool_of(location), &device));
    CHECK(flags == cudaMemAccessFlagsProtReadWrite);
  }
}

#endif
