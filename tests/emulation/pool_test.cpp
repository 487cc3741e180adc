// SPDX-License-Identifier: Apache-2.0

// What pools hold on to, in exact numbers: when freed memory is used again, and where.

#include <algorithm>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

cudaMemPool_t pool_of_device() {
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  return pool;
}

cudaMemPool_t make_pool(std::size_t max_bytes = 0) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  properties.maxSize = max_bytes;
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaMemPoolCreate(&pool, &properties));
  return pool;
}

void keep_all(cudaMemPool_t pool) {
  std::uint64_t all = UINT64_MAX;
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
}

std::uint64_t reserved(cudaMemPool_t pool) {
  std::uint64_t bytes = 0;
  REQUIRE_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes));
  return bytes;
}

void* allocate(std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  void* data = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&data, bytes, pool, stream));
  return data;
}

void use(void* data, std::size_t bytes, cudaStream_t stream) {
  REQUIRE_CUDA(cudaMemsetAsync(data, 1, bytes, stream));
}

}  // namespace

TEST_CASE("a pool never holds more than its largest allocation, when one is live at a time",
          "[emulation][pool][held]") {
  const TestStream stream;
  const cudaMemPool_t pool = pool_of_device();
  keep_all(pool);
  std::vector<std::size_t> sizes;
  for (std::size_t size = 1; size <= 64; ++size) sizes.push_back(size);
  const int order = GENERATE(0, 1, 2);  // growing, shrinking, up and down
  if (order == 1) std::reverse(sizes.begin(), sizes.end());
  if (order == 2) std::rotate(sizes.begin(), sizes.begin() + 40, sizes.end());
  Gate gate;
  gate.hold(stream);  // Nothing runs: the order of the stream is all there is.
  std::size_t largest = 0;
  for (const std::size_t size : sizes) {
    void* const data = allocate(size * kMiB / 16, pool, stream);
    use(data, size * kMiB / 16, stream);
    REQUIRE_CUDA(cudaFreeAsync(data, stream));
    largest = std::max(largest, size * kMiB / 16);
    CHECK(reserved(pool) == largest);
  }
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(reserved(pool) == largest);
  REQUIRE_CUDA(cudaMemPoolTrimTo(pool, 0));
  CHECK(reserved(pool) == 0);
  std::size_t free = 0, total = 0;
  REQUIRE_CUDA(cudaMemGetInfo(&free, &total));
  CHECK(free == total);
}

TEST_CASE("several small blocks become a large one", "[emulation][pool][held]") {
  const TestStream stream;
  const cudaMemPool_t pool = make_pool(8 * kMiB);
  keep_all(pool);
  std::vector<void*> small;
  for (int i = 0; i < 8; ++i) small.push_back(allocate(kMiB, pool, stream));
  for (void* data : small) REQUIRE_CUDA(cudaFreeAsync(data, stream));
  void* const large = allocate(8 * kMiB, pool, stream);
  use(large, 8 * kMiB, stream);
  CHECK(reserved(pool) == 8 * kMiB);
  void* too_much = nullptr;
  CHECK(cudaMallocFromPoolAsync(&too_much, 512, pool, stream) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE_CUDA(cudaFreeAsync(large, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaMemPoolDestroy(pool));
}

TEST_CASE("a pool keeps what its threshold says, to the byte", "[emulation][pool][held]") {
  const TestStream stream;
  const cudaMemPool_t pool = make_pool();
  std::uint64_t threshold = 3 * kMiB;
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  void* const large = allocate(8 * kMiB, pool, stream);
  REQUIRE_CUDA(cudaFreeAsync(large, stream));
  void* const small = allocate(kMiB, pool, stream);  // of the bytes of the large one
  CHECK(reserved(pool) == 8 * kMiB);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(reserved(pool) == threshold);
  REQUIRE_CUDA(cudaFreeAsync(small, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaMemPoolDestroy(pool));
}

TEST_CASE("without opportunistic reuse, a free counts elsewhere when the host has waited for it",
          "[emulation][pool][held]") {
  const cudaMemPool_t pool = pool_of_device();
  keep_all(pool);
  int off = 0;
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &off));
  const TestStream other, third;
  cudaStream_t stream = nullptr;
  const unsigned flags = GENERATE(unsigned{cudaStreamDefault}, unsigned{cudaStreamNonBlocking});
  const bool ends = GENERATE(false, true);  // before the wait
  const bool executed = GENERATE(false, true);
  REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, flags));
  REQUIRE_CUDA(cudaFreeAsync(allocate(kMiB, pool, stream), stream));
  if (executed) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  REQUIRE_CUDA(cudaStreamSynchronize(other));  // a wait for something else
  void* data = allocate(kMiB, pool, other);
  CHECK(reserved(pool) == 2 * kMiB);
  if (ends) REQUIRE_CUDA(cudaStreamDestroy(stream));
  if (ends && executed) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  REQUIRE_CUDA(flags == cudaStreamDefault ? cudaStreamSynchronize(cudaStreamLegacy)
                                          : cudaDeviceSynchronize());
  void* const again = allocate(kMiB, pool, third);
  CHECK(reserved(pool) == 2 * kMiB);
  if (!ends) REQUIRE_CUDA(cudaStreamDestroy(stream));
  REQUIRE_CUDA(cudaFreeAsync(data, other));
  REQUIRE_CUDA(cudaFreeAsync(again, third));
  REQUIRE_CUDA(cudaDeviceSynchronize());
}

TEST_CASE("memory that pools cache is there for every other allocation",
          "[emulation][pool][held]") {
  emulation::Options options = emulation::options();
  options.machine.device_bytes = 16 * kMiB;
  emulation::reset(options);
  const TestStream stream;
  const cudaMemPool_t pool = make_pool(), other = make_pool();
  keep_all(pool);
  REQUIRE_CUDA(cudaFreeAsync(allocate(12 * kMiB, pool, stream), stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE(reserved(pool) == 12 * kMiB);
  void* data = nullptr;
  SECTION("of cudaMalloc") {
    CHECK_CUDA(cudaMalloc(&data, 12 * kMiB));
    CHECK_CUDA(cudaFree(data));
  }
  SECTION("of cudaMallocManaged") {
    CHECK_CUDA(cudaMallocManaged(&data, 12 * kMiB, cudaMemAttachGlobal));
    CHECK_CUDA(cudaFree(data));
  }
  SECTION("of another pool") {
    CHECK_CUDA(cudaMallocFromPoolAsync(&data, 12 * kMiB, other, stream));
    CHECK_CUDA(cudaFreeAsync(data, stream));
  }
  SECTION("of a graph") {
    cudaGraph_t graph = nullptr;
    REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_CUDA(cudaMallocAsync(&data, 12 * kMiB, stream));
    CHECK_CUDA(cudaFreeAsync(data, stream));
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
  }
  CHECK(reserved(pool) == 0);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaMemPoolDestroy(pool));
  REQUIRE_CUDA(cudaMemPoolDestroy(other));
}
