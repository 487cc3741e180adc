// SPDX-License-Identifier: Apache-2.0

// Where the emulation refuses, or orders, what a GPU may accept or order otherwise. Wrong pointers
// and handles are in pointer_test.cpp.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/refused.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

constexpr std::size_t kRefusedBytes = 4096;

}  // namespace

// A GPU moves pages of managed memory to the host when its own memory is full.
TEST_CASE("managed memory cannot be larger than the memory of its device",
          "[emulation][managed][stricter]") {
  emulation::Options options = emulation::options();
  options.machine.device_bytes = std::size_t{1} << 20;
  emulation::reset(options);
  void* memory = nullptr;
  CHECK(refused(cudaMallocManaged(&memory, std::size_t{2} << 20, cudaMemAttachGlobal),
                cudaErrorMemoryAllocation));
}

// A GPU keeps the mode, whatever it is.
TEST_CASE("a thread cannot have a capture mode that does not exist",
          "[emulation][argument][stricter]") {
  auto mode = static_cast<cudaStreamCaptureMode>(3);
  CHECK(refused(cudaThreadExchangeStreamCaptureMode(&mode), cudaErrorInvalidValue));
  mode = cudaStreamCaptureModeRelaxed;
  REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
}

// A GPU with the attribute pageableMemoryAccess takes memory of the host in each of these calls.
TEST_CASE("pageable memory is neither filled nor attached to a stream",
          "[emulation][managed][stricter]") {
  std::vector<std::uint8_t> pageable(kRefusedBytes);
  const TestStream stream;
  CHECK(refused(cudaMemset(pageable.data(), 0, kRefusedBytes), cudaErrorInvalidValue));
  CHECK(refused(cudaMemsetAsync(pageable.data(), 0, kRefusedBytes, stream), cudaErrorInvalidValue));
  CHECK(refused(cudaStreamAttachMemAsync(stream, pageable.data(), 0, cudaMemAttachSingle),
                cudaErrorInvalidValue));
}

// CUDA says only which device the source and the destination are on.
TEST_CASE("a peer copy refuses memory that is not of the device that is named",
          "[emulation][copy][stricter]") {
  emulation::Options options = emulation::options();
  options.machine.devices = 2;
  emulation::reset(options);
  void *one = nullptr, *other = nullptr;
  REQUIRE_CUDA(cudaMalloc(&one, kRefusedBytes));
  REQUIRE_CUDA(cudaMalloc(&other, kRefusedBytes));
  CHECK(refused(cudaMemcpyPeer(other, 1, one, 0, kRefusedBytes), cudaErrorInvalidValue));
  CHECK_CUDA(cudaMemcpyPeer(other, 0, one, 0, kRefusedBytes));
  REQUIRE_CUDA(cudaFree(one));
  REQUIRE_CUDA(cudaFree(other));
}

// CUDA leaves a second free undefined.
TEST_CASE("stream-ordered memory cannot be freed twice", "[emulation][pool][stricter]") {
  const TestStream stream;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&memory, kRefusedBytes, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  CHECK(refused(cudaFreeAsync(memory, stream), cudaErrorInvalidValue));
  CHECK(refused(cudaFree(memory), cudaErrorInvalidValue));
}

// CUDA uses memory again also in a stream that waits for the free by an event, or that it makes
// wait.
TEST_CASE("memory that another stream freed is not used again before the free has run",
          "[emulation][pool][stricter]") {
  const TestStream one, other;
  const TestEvent freed;
  void *memory = nullptr, *next = nullptr;
  Gate gate;
  REQUIRE_CUDA(cudaMallocAsync(&memory, kRefusedBytes, one));
  gate.hold(one);
  REQUIRE_CUDA(cudaFreeAsync(memory, one));
  REQUIRE_CUDA(cudaEventRecord(freed, one));
  REQUIRE_CUDA(cudaStreamWaitEvent(other, freed, 0));
  REQUIRE_CUDA(cudaMallocAsync(&next, kRefusedBytes, other));
  CHECK(next != memory);
  REQUIRE_CUDA(cudaFreeAsync(next, other));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(other));
}

// CUDA forbids such calls, and a GPU may let one pass.
TEST_CASE("the destructor of a user object must not call CUDA", "[emulation][graph][stricter]") {
  std::atomic<cudaError_t> called = cudaErrorUnknown;
  const TestStream stream;
  {
    const TestGraph graph = capture(stream, [] {});
    cudaUserObject_t object = nullptr;
    const auto destroy = [](void* data) {
      *static_cast<std::atomic<cudaError_t>*>(data) = cudaDeviceSynchronize();
    };
    REQUIRE_CUDA(
        cudaUserObjectCreate(&object, &called, destroy, 1, cudaUserObjectNoDestructorSync));
    REQUIRE_CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  }
  REQUIRE(eventually([&] { return called != cudaErrorUnknown; }));
  CHECK(called == cudaErrorNotPermitted);
}

// A GPU tells a child the state of an event of its parent.
TEST_CASE("a forked child cannot ask for an event of its parent", "[emulation][fork][stricter]") {
  const TestStream stream;
  const TestEvent event;
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  REQUIRE_CUDA(cudaEventSynchronize(event));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(cudaEventQuery(event) == cudaErrorInitializationError ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
