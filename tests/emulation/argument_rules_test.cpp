// SPDX-License-Identifier: Apache-2.0

// The rules of arguments: flags and numbers that a call refuses, sizes of 0, and handles that are
// null.

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/refused.hpp"

using namespace penstock::test;

namespace {

constexpr std::size_t kArgumentBytes = 64;

int devices() {
  int count = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&count));
  return count;
}

}  // namespace

// CUDA Runtime API, cudaStreamWaitEvent and cudaEventRecordWithFlags: two flags each, default and
// external.
TEST_CASE("records of events and waits for them refuse unknown flags", "[rules][argument]") {
  const TestStream stream;
  const TestEvent event;
  CHECK(refused(cudaEventRecordWithFlags(event, stream, 0x80), cudaErrorInvalidValue));
  CHECK(refused(cudaStreamWaitEvent(stream, event, 0x80), cudaErrorInvalidValue));
}

// CUDA Runtime API, Stream Management, cudaStreamAddCallback: "flags: Reserved for future use, must
// be 0".
TEST_CASE("a callback has no flags", "[rules][argument]") {
  const TestStream stream;
  const auto callback = [](cudaStream_t, cudaError_t, void*) {};
  CHECK(refused(cudaStreamAddCallback(stream, callback, nullptr, 1), cudaErrorInvalidValue));
  CHECK(refused(cudaStreamAddCallback(stream, nullptr, nullptr, 0), cudaErrorInvalidValue));
}

// CUDA Runtime API, Memory Management, cudaMallocManaged: "flags: Must be either
// cudaMemAttachGlobal or cudaMemAttachHost".
TEST_CASE("managed memory is attached to all devices or to the host", "[rules][argument]") {
  void* memory = nullptr;
  CHECK(refused(cudaMallocManaged(&memory, kArgumentBytes, 0), cudaErrorInvalidValue));
  CHECK(refused(cudaMallocManaged(&memory, kArgumentBytes, 0x80), cudaErrorInvalidValue));
  REQUIRE_CUDA(cudaMallocManaged(&memory, kArgumentBytes, cudaMemAttachHost));
  REQUIRE_CUDA(cudaFree(memory));
}

// CUDA Runtime API, Memory Management, cudaHostRegister: cudaErrorInvalidValue is among its
// answers.
TEST_CASE("registration of host memory refuses unknown flags", "[rules][argument]") {
  std::vector<std::uint8_t> memory(kArgumentBytes);
  CHECK(refused(cudaHostRegister(memory.data(), kArgumentBytes, 0x8000), cudaErrorInvalidValue));
}

// CUDA Runtime API, Stream Management: three modes of capture.
TEST_CASE("a capture refuses a mode that does not exist", "[rules][argument]") {
  const TestStream stream;
  const auto mode = static_cast<cudaStreamCaptureMode>(3);
  CHECK(refused(cudaStreamBeginCapture(stream, mode), cudaErrorInvalidValue));
}

// CUDA Runtime API, Device Management, cudaDeviceGetAttribute: cudaErrorInvalidDevice and
// cudaErrorInvalidValue are among its answers.
TEST_CASE("attributes and devices that do not exist are refused", "[rules][argument]") {
  int value = 0;
  CHECK(refused(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(250), 0),
                cudaErrorInvalidValue));
  CHECK(refused(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, devices()),
                cudaErrorInvalidDevice));
  cudaMemPool_t pool = nullptr;
  CHECK(refused(cudaDeviceGetDefaultMemPool(&pool, devices()), cudaErrorInvalidDevice));
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t attribute = 0;
  CHECK(refused(cudaMemPoolGetAttribute(pool, static_cast<cudaMemPoolAttr>(15), &attribute),
                cudaErrorInvalidValue));
}

// CUDA Runtime API, Stream Ordered Memory Allocator, cudaMemPoolAttrUsedMemHigh: "High watermark
// can only be reset to zero."
TEST_CASE("the high watermarks of a pool can only be set to zero", "[rules][argument]") {
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
  for (const auto attribute : {cudaMemPoolAttrUsedMemHigh, cudaMemPoolAttrReservedMemHigh}) {
    std::uint64_t value = 4096;
    CHECK(refused(cudaMemPoolSetAttribute(pool, attribute, &value), cudaErrorInvalidValue));
    value = 0;
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, attribute, &value));
  }
}

TEST_CASE("copies and fills of no bytes succeed and touch nothing", "[rules][argument]") {
  const DeviceMemory<std::uint8_t> device(kArgumentBytes);
  const PinnedMemory<std::uint8_t> host(kArgumentBytes, 5);
  const TestStream stream;
  CHECK_CUDA(cudaMemcpy(device.data(), host.data(), 0, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpyAsync(host.data(), device.data(), 0, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(
      cudaMemcpy2DAsync(device.data(), 8, host.data(), 8, 0, 4, cudaMemcpyHostToDevice, stream));
  CHECK_CUDA(
      cudaMemcpy2DAsync(device.data(), 8, host.data(), 8, 4, 0, cudaMemcpyHostToDevice, stream));
  CHECK_CUDA(cudaMemset(device.data(), 7, 0));
  CHECK_CUDA(cudaMemsetAsync(device.data(), 7, 0, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == std::vector<std::uint8_t>(kArgumentBytes, 0));
  CHECK(host.all(5));
}

// CUDA Runtime API, Graph Management: cudaErrorInvalidValue is the answer of these calls.
TEST_CASE("a graph that is null is refused", "[rules][argument]") {
  const TestStream stream;
  cudaGraphExec_t exec = nullptr;
  CHECK(refused(cudaGraphInstantiate(&exec, nullptr, 0), cudaErrorInvalidValue));
  CHECK(refused(cudaGraphLaunch(nullptr, stream), cudaErrorInvalidValue));
  CHECK(refused(cudaGraphDestroy(nullptr), cudaErrorInvalidValue));
  CHECK(refused(cudaGraphExecDestroy(nullptr), cudaErrorInvalidValue));
}

// CUDA Runtime API, Stream Management, cudaStreamDestroy: "the function will return immediately and
// the resources associated with stream will be released automatically once the device has completed
// all work in stream." (Under compute-sanitizer it waits: scripts/gpu-check leaves this out there.)
TEST_CASE("an event outlives the stream on which it was recorded",
          "[rules][event][not-under-compute-sanitizer]") {
  const DeviceMemory<std::uint8_t> device(kArgumentBytes);
  const PinnedMemory<std::uint8_t> host(kArgumentBytes);
  const TestStream reader;
  const TestEvent written;
  Gate gate;
  {
    const TestStream writer;
    gate.hold(writer);
    fill_async(device, 6, writer);
    REQUIRE_CUDA(cudaEventRecord(written, writer));
  }
  CHECK(cudaEventQuery(written) == cudaErrorNotReady);
  REQUIRE_CUDA(cudaStreamWaitEvent(reader, written, 0));
  copy_async(host, device, reader);
  CHECK(cudaStreamQuery(reader) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(reader));
  CHECK(host.all(6));
}

// CUDA Runtime API, Event Management, cudaEventElapsedTime: "If cudaEventRecord() has been called
// on both events but one or both of them has not yet been completed ..., cudaErrorNotReady is
// returned."
TEST_CASE("elapsed time is not ready while an event is not", "[rules][event]") {
  const TestStream stream;
  const TestEvent start(cudaEventDefault), end(cudaEventDefault);
  REQUIRE_CUDA(cudaEventRecord(start, stream));
  REQUIRE_CUDA(cudaEventSynchronize(start));
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaEventRecord(end, stream));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaEventSynchronize(end));
  CHECK_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
  CHECK(milliseconds >= 0);
}

// CUDA Runtime API, API synchronization behavior, Memcpy, Asynchronous: "For transfers from any
// host memory to any host memory, the function is fully synchronous with respect to the host."
TEST_CASE("an asynchronous copy from host to host has completed when it returns", "[rules][copy]") {
  const PinnedMemory<std::uint8_t> source(kArgumentBytes, 4);
  const PinnedMemory<std::uint8_t> result(kArgumentBytes);
  const TestStream stream;
  REQUIRE_CUDA(
      cudaMemcpyAsync(result.data(), source.data(), kArgumentBytes, cudaMemcpyHostToHost, stream));
  CHECK(result.all(4));
}

// CUDA Programming Guide, Default Stream: an action there waits for blocking streams and holds
// them, and a launch of a graph is one.
TEST_CASE("a graph that is launched in the legacy stream waits for blocking streams",
          "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(kArgumentBytes);
  const PinnedMemory<std::uint8_t> host(kArgumentBytes);
  const TestStream capturing, blocking(cudaStreamDefault);
  const TestGraph graph = capture(capturing, [&] { copy_async(host, device, capturing); });
  const TestGraphExec exec(graph);
  Gate gate;
  gate.hold(blocking);
  fill_async(device, 3, blocking);
  REQUIRE_CUDA(cudaGraphLaunch(exec, cudaStreamLegacy));
  CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  CHECK(host.all(3));
}

// CUDA Runtime API, Stream Management, cudaStreamGetPriority and cudaStreamGetFlags: of any stream.
TEST_CASE("the legacy default stream has no flags and the least priority", "[rules][stream]") {
  unsigned flags = 77;
  int priority = 77;
  REQUIRE_CUDA(cudaStreamGetFlags(cudaStreamLegacy, &flags));
  CHECK(flags == cudaStreamDefault);
  REQUIRE_CUDA(cudaStreamGetPriority(cudaStreamLegacy, &priority));
  CHECK(priority == 0);
}
