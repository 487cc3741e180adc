// SPDX-License-Identifier: Apache-2.0

// Where the emulation accepts, or orders, what a GPU may not. A program that relies on it passes
// here.

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <penstock/emulation.hpp>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/sanitized.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

constexpr std::size_t kBlockBytes = 4096;

void have_two_devices() {
  emulation::Options options = emulation::options();
  options.machine.devices = 2;
  emulation::reset(options);
}

}  // namespace

// CUDA says that the host must not touch managed memory while a device that is not
// concurrentManagedAccess works.
TEST_CASE("the host may touch managed memory while the device works",
          "[emulation][managed][looser]") {
  const unsigned flags = GENERATE(as<unsigned>{}, cudaMemAttachGlobal, cudaMemAttachHost);
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocManaged(&memory, kBlockBytes, flags));
  const TestStream stream;
  {
    Gate gate;
    gate.hold(stream);
    std::memset(memory, 3, kBlockBytes);
    CHECK(static_cast<std::uint8_t*>(memory)[kBlockBytes - 1] == 3);
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaFree(memory));
}

// CUDA promises neither, and says of cudaFree that it may synchronise.
TEST_CASE("cudaFree waits for the device, and cudaFreeHost for all devices",
          "[emulation][memory][looser]") {
  have_two_devices();
  void *device = nullptr, *host = nullptr, *filled = nullptr;
  REQUIRE_CUDA(cudaMalloc(&device, kBlockBytes));
  REQUIRE_CUDA(cudaMalloc(&filled, kBlockBytes));
  REQUIRE_CUDA(cudaMallocHost(&host, kBlockBytes));
  {
    const TestStream stream;
    REQUIRE_CUDA(cudaMemsetAsync(filled, 1, kBlockBytes, stream));
    REQUIRE_CUDA(cudaFree(device));
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
  }
  REQUIRE_CUDA(cudaSetDevice(1));
  {
    const TestStream stream;
    REQUIRE_CUDA(cudaMemsetAsync(filled, 2, kBlockBytes, stream));
    REQUIRE_CUDA(cudaFreeHost(host));
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
  }
  REQUIRE_CUDA(cudaSetDevice(0));
  REQUIRE_CUDA(cudaFree(filled));
}

// A GPU refuses to page-lock addresses that have no memory.
TEST_CASE("addresses without memory can be registered", "[emulation][memory][looser]") {
  void* const addresses = mmap(nullptr, kBlockBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(addresses != MAP_FAILED);
  REQUIRE(munmap(addresses, kBlockBytes) == 0);
  REQUIRE_CUDA(cudaHostRegister(addresses, kBlockBytes, cudaHostRegisterDefault));
  REQUIRE_CUDA(cudaHostUnregister(addresses));
}

// CUDA leaves such a copy undefined; AddressSanitizer reports it.
TEST_CASE("a copy between areas that overlap is no error", "[emulation][copy][looser]") {
  if (PENSTOCK_TEST_SANITIZED != 0) return;  // A report would end the program.
  const DeviceMemory<std::uint8_t> device(kBlockBytes);
  CHECK_CUDA(
      cudaMemcpy(device.data() + 16, device.data(), kBlockBytes - 16, cudaMemcpyDeviceToDevice));
  CHECK_CUDA(
      cudaMemcpy2D(device.data() + 8, 64, device.data(), 64, 32, 8, cudaMemcpyDeviceToDevice));
  CHECK_CUDA(cudaDeviceSynchronize());
}

// A GPU refuses a pitch above its attribute cudaDevAttrMaxPitch.
TEST_CASE("a pitch may be larger than any device says it can be", "[emulation][copy][looser]") {
  const DeviceMemory<std::uint8_t> device(kBlockBytes);
  const PinnedMemory<std::uint8_t> host(kBlockBytes, 2);
  constexpr std::size_t kPitch = std::size_t{1} << 40;
  CHECK_CUDA(cudaMemcpy2D(device.data(), kPitch, host.data(), kPitch, kBlockBytes, 1,
                          cudaMemcpyHostToDevice));
  CHECK(device.read() == std::vector<std::uint8_t>(kBlockBytes, 2));
}

// CUDA says that cudaMemcpyPeer is asynchronous with respect to the host.
TEST_CASE("cudaMemcpyPeer has completed when it returns", "[emulation][copy][looser]") {
  have_two_devices();
  void *first = nullptr, *second = nullptr;
  REQUIRE_CUDA(cudaMalloc(&first, kBlockBytes));
  REQUIRE_CUDA(cudaMemset(first, 5, kBlockBytes));
  REQUIRE_CUDA(cudaSetDevice(1));
  REQUIRE_CUDA(cudaMalloc(&second, kBlockBytes));
  REQUIRE_CUDA(cudaMemcpyPeer(second, 1, first, 0, kBlockBytes));
  CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaSuccess);
  REQUIRE_CUDA(cudaFree(second));
  REQUIRE_CUDA(cudaSetDevice(0));
  REQUIRE_CUDA(cudaFree(first));
}

// A GPU may fail, or give the bytes to somebody else. ThreadSanitizer and AddressSanitizer report
// the use.
TEST_CASE("stream-ordered memory can be used before its allocation has run, and after its free",
          "[emulation][pool][looser]") {
  if (PENSTOCK_TEST_SANITIZED != 0) return;  // A report would end the program.
  const TestStream owner, user;
  void* memory = nullptr;
  std::uint64_t keep_all = UINT64_MAX;
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  REQUIRE_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_all));
  {
    Gate gate;
    gate.hold(owner);
    REQUIRE_CUDA(cudaMallocAsync(&memory, kBlockBytes, owner));
    CHECK_CUDA(cudaMemsetAsync(memory, 1, kBlockBytes, user));
    CHECK_CUDA(cudaStreamSynchronize(user));
  }
  const TestGraph late =
      capture(user, [&] { REQUIRE_CUDA(cudaMemsetAsync(memory, 1, kBlockBytes, user)); });
  const TestGraphExec exec(late);
  REQUIRE_CUDA(cudaFreeAsync(memory, owner));
  REQUIRE_CUDA(cudaStreamSynchronize(owner));
  CHECK_CUDA(cudaGraphLaunch(exec, user));
  CHECK_CUDA(cudaStreamSynchronize(user));
}

// CUDA says that a pool of one device has to be opened to another one.
TEST_CASE("every device reaches the memory of a pool that is not opened to it",
          "[emulation][pool][looser]") {
  have_two_devices();
  void *memory = nullptr, *second = nullptr;
  {
    const TestStream stream;
    REQUIRE_CUDA(cudaMallocAsync(&memory, kBlockBytes, stream));
    REQUIRE_CUDA(cudaMemsetAsync(memory, 4, kBlockBytes, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  REQUIRE_CUDA(cudaSetDevice(1));
  REQUIRE_CUDA(cudaMalloc(&second, kBlockBytes));
  {
    const TestStream stream;
    CHECK_CUDA(cudaMemcpyAsync(second, memory, kBlockBytes, cudaMemcpyDeviceToDevice, stream));
    CHECK_CUDA(cudaMemsetAsync(memory, 6, kBlockBytes, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  std::vector<std::uint8_t> result(kBlockBytes);
  REQUIRE_CUDA(cudaMemcpy(result.data(), second, kBlockBytes, cudaMemcpyDeviceToHost));
  CHECK(result == std::vector<std::uint8_t>(kBlockBytes, 4));
  REQUIRE_CUDA(cudaFree(second));
  REQUIRE_CUDA(cudaSetDevice(0));
  REQUIRE_CUDA(cudaFree(memory));
}

// A GPU has a few dozen hardware queues, and streams that share one may wait for each other.
TEST_CASE("no stream waits for a stream that it does not depend on, however many there are",
          "[emulation][stream][looser]") {
  const PinnedMemory<std::uint8_t> host(kBlockBytes);
  const TestStream held;
  Gate gate;
  gate.hold(held);
  std::array<TestStream, 150> others;
  for (const TestStream& stream : others) {
    REQUIRE_CUDA(cudaMemsetAsync(host.data(), 1, kBlockBytes, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  CHECK(cudaStreamQuery(held) == cudaErrorNotReady);
}

// A GPU may refuse the update, as CUDA leaves it to the driver which lengths it takes.
TEST_CASE("an update may give a flat copy any length", "[emulation][graph][looser]") {
  const DeviceMemory<std::uint8_t> device(kBlockBytes);
  const PinnedMemory<std::uint8_t> host(kBlockBytes, 7);
  const TestStream stream;
  const auto copy_of = [&](std::size_t bytes) {
    return capture(stream, [&] {
      REQUIRE_CUDA(
          cudaMemcpyAsync(device.data(), host.data(), bytes, cudaMemcpyHostToDevice, stream));
    });
  };
  const TestGraph small = copy_of(1), large = copy_of(kBlockBytes);
  const TestGraphExec exec(small);
  cudaGraphExecUpdateResultInfo info{};
  CHECK_CUDA(cudaGraphExecUpdate(exec, large, &info));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == std::vector<std::uint8_t>(kBlockBytes, 7));
}

// A GPU that is in exclusive or prohibited mode refuses a process.
TEST_CASE("a device can always be initialised, and the flags of cudaInitDevice are ignored",
          "[emulation][device][looser]") {
  unsigned before = 0, after = 0;
  REQUIRE_CUDA(cudaGetDeviceFlags(&before));
  CHECK_CUDA(cudaInitDevice(0, cudaDeviceScheduleYield, cudaInitDeviceFlagsAreValid));
  REQUIRE_CUDA(cudaGetDeviceFlags(&after));
  CHECK(after == before);
}
