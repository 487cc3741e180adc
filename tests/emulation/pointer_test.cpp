// SPDX-License-Identifier: Apache-2.0

// Wrong pointers and dead handles. On a GPU much of this is undefined; the emulation says so at the
// call, which is what it is for. And pageable memory, which it stages as a driver does.

#include <algorithm>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;
using Bytes = std::vector<std::uint8_t>;

namespace {

constexpr std::size_t kAllocation = 256;

struct Buffers {
  DeviceMemory<std::uint8_t> device{kAllocation}, other{kAllocation};
  PinnedMemory<std::uint8_t> pinned{kAllocation};
  Bytes pageable = Bytes(kAllocation);
  TestStream stream;

  ~Buffers() { cudaGetLastError(); }

  cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) const {
    const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, stream);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(to, from, bytes, kind) == status);  // both forms say the same
    return status;
  }
};

}  // namespace

// CUDA leaves a copy undefined whose pointers do not match its direction.
TEST_CASE("a copy refuses host memory where its direction says device memory",
          "[emulation][pointer][copy][stricter]") {
  Buffers buffers;
  CHECK(buffers.copy(buffers.pageable.data(), buffers.pinned.data(), kAllocation,
                     cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(buffers.copy(buffers.pinned.data(), buffers.pageable.data(), kAllocation,
                     cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(buffers.copy(buffers.device.data(), buffers.pageable.data(), kAllocation,
                     cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(buffers.pageable.data(), 0, kAllocation, buffers.stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaFree(buffers.pageable.data()) == cudaErrorInvalidValue);
}

// CUDA leaves a copy undefined whose pointers do not match its direction.
TEST_CASE("a copy refuses device memory where its direction says host memory",
          "[emulation][pointer][copy][stricter]") {
  const Buffers buffers;
  CHECK(buffers.copy(buffers.device.data(), buffers.other.data(), kAllocation,
                     cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(buffers.copy(buffers.device.data(), buffers.other.data(), kAllocation,
                     cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(buffers.copy(buffers.device.data(), buffers.other.data(), kAllocation,
                     cudaMemcpyHostToHost) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(buffers.device.data()) == cudaErrorInvalidValue);
  CHECK(cudaHostRegister(buffers.device.data(), kAllocation, cudaHostRegisterDefault) !=
        cudaSuccess);
}

// A GPU may write into the memory behind an allocation without an error.
TEST_CASE("a copy stays inside its allocations", "[emulation][pointer][copy][stricter]") {
  const Buffers buffers;
  std::uint8_t* const device = buffers.device.data();
  std::uint8_t* const pinned = buffers.pinned.data();
  CHECK(buffers.copy(device, pinned, kAllocation + 1, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(buffers.copy(device + 1, pinned, kAllocation, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(buffers.copy(pinned, device + 1, kAllocation, cudaMemcpyDeviceToHost) ==
        cudaErrorInvalidValue);
  CHECK(buffers.copy(device + kAllocation, pinned, 1, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(device + 1, 0, kAllocation, buffers.stream) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy2DAsync(device, 17, pinned, 16, 16, 16, cudaMemcpyHostToDevice, buffers.stream) ==
        cudaErrorInvalidValue);
  CHECK_CUDA(buffers.copy(device + 1, pinned, kAllocation - 1, cudaMemcpyHostToDevice));
}

// CUDA leaves a use of freed memory undefined.
TEST_CASE("memory that was freed can be neither copied nor filled nor freed",
          "[emulation][pointer][memory][stricter]") {
  const Buffers buffers;
  void *device = nullptr, *pinned = nullptr;
  REQUIRE_CUDA(cudaMalloc(&device, kAllocation));
  REQUIRE_CUDA(cudaMallocHost(&pinned, kAllocation));
  REQUIRE_CUDA(cudaFree(device));
  REQUIRE_CUDA(cudaFreeHost(pinned));
  CHECK(buffers.copy(device, buffers.pinned.data(), kAllocation, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(buffers.copy(buffers.device.data(), pinned, kAllocation, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(device, 0, kAllocation, buffers.stream) == cudaErrorInvalidValue);
  CHECK(cudaFree(device) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(pinned) == cudaErrorInvalidValue);
}

TEST_CASE("memory is freed by the pointer it was given as", "[emulation][pointer][memory][held]") {
  const Buffers buffers;
  CHECK(cudaFree(buffers.device.data() + 1) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(buffers.pinned.data() + 1) == cudaErrorInvalidValue);
  CHECK(cudaFreeAsync(buffers.device.data() + 1, buffers.stream) == cudaErrorInvalidValue);
}

// CUDA says only that cudaFree may wait for the work that uses the memory.
TEST_CASE("a queued copy keeps its memory from being freed under it",
          "[emulation][pointer][memory][looser]") {
  // cudaFree "may perform implicit synchronization": here it does, so the copy is over when it
  // returns.
  void* device = nullptr;
  REQUIRE_CUDA(cudaMalloc(&device, kAllocation));
  const PinnedMemory<std::uint8_t> pinned(kAllocation, 1);
  const TestStream stream;
  REQUIRE_CUDA(cudaMemcpyAsync(device, pinned.data(), kAllocation, cudaMemcpyHostToDevice, stream));
  REQUIRE_CUDA(cudaFree(device));
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
}

// CUDA leaves a use of a destroyed handle undefined.
TEST_CASE("a handle that was destroyed is an invalid handle",
          "[emulation][pointer][error][stricter]") {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  const TestStream alive;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  REQUIRE_CUDA(cudaEventCreate(&event));
  REQUIRE_CUDA(cudaStreamDestroy(stream));
  REQUIRE_CUDA(cudaEventDestroy(event));
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventQuery(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(alive, event, 0) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("the default streams cannot be destroyed", "[emulation][pointer][default-stream][held]") {
  CHECK(cudaStreamDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(cudaStreamLegacy) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(cudaStreamPerThread) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

// ---- Pageable memory

// A GPU that reaches pageable memory itself may read the source later.
TEST_CASE("an asynchronous copy has read its pageable source when it returns",
          "[emulation][pointer][copy][looser]") {
  const std::size_t bytes = GENERATE(as<std::size_t>{}, 1000, 1 << 20);
  Bytes source(bytes, 1);
  const DeviceMemory<std::uint8_t> device(bytes);
  const TestStream stream;
  REQUIRE_CUDA(
      cudaMemcpyAsync(device.data(), source.data(), bytes, cudaMemcpyHostToDevice, stream));
  std::fill(source.begin(), source.end(), std::uint8_t{2});
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == Bytes(bytes, 1));
}

// CUDA says only that such a copy may be synchronous.
TEST_CASE("an asynchronous copy has written its pageable destination when it returns",
          "[emulation][pointer][copy][looser]") {
  const DeviceMemory<std::uint8_t> device(kAllocation);
  Bytes result(kAllocation);
  const TestStream stream;
  fill_async(device, 3, stream);
  REQUIRE_CUDA(
      cudaMemcpyAsync(result.data(), device.data(), kAllocation, cudaMemcpyDeviceToHost, stream));
  // CUDA says that it "might be synchronous", so the answer of the stream is what orders the host.
  REQUIRE(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(result == Bytes(kAllocation, 3));
}

// A GPU that reaches pageable memory itself may read the source later.
TEST_CASE("a copy of a box has read its pageable source when it returns",
          "[emulation][pointer][copy][looser]") {
  Bytes source(32);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint8_t>(i);
  const DeviceMemory<std::uint8_t> device(8);
  const TestStream stream;
  cudaMemcpy3DParms copy{};
  copy.srcPtr = {source.data(), 4, 4, 4};
  copy.srcPos = {1, 1, 0};
  copy.dstPtr = {device.data(), 2, 2, 2};
  copy.extent = {2, 2, 2};
  copy.kind = cudaMemcpyHostToDevice;
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaMemcpy3DAsync(&copy, stream));
  std::fill(source.begin(), source.end(), std::uint8_t{0});
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == Bytes{5, 6, 9, 10, 21, 22, 25, 26});
}
