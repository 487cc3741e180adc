// SPDX-License-Identifier: Apache-2.0

// Failures on demand, sticky errors, and what the emulation refuses.

#include <atomic>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

// ---- fail_call

TEST_CASE("the call that was named fails, once, and does nothing else", "[emulation][failure]") {
  emulation::fail_call("cudaMalloc", cudaErrorMemoryAllocation);
  void* memory = &memory;
  CHECK(cudaMalloc(&memory, 64) == cudaErrorMemoryAllocation);
  CHECK(memory == &memory);
  CHECK(emulation::live() == emulation::Live{});
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE_CUDA(cudaMalloc(&memory, 64));
  REQUIRE_CUDA(cudaFree(memory));
}

TEST_CASE("the n-th call fails, counted from the request", "[emulation][failure]") {
  const TestStream stream;
  CHECK_CUDA(cudaStreamQuery(stream));
  emulation::fail_call("cudaStreamQuery", cudaErrorUnknown, 3);
  CHECK_CUDA(cudaStreamQuery(stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));  // another function: not counted
  CHECK_CUDA(cudaStreamQuery(stream));
  CHECK(cudaStreamQuery(stream) == cudaErrorUnknown);
  CHECK_CUDA(cudaStreamQuery(stream));
  cudaGetLastError();
}

TEST_CASE("a star counts the calls of every function", "[emulation][failure]") {
  const TestStream stream;
  const TestEvent event;
  emulation::fail_call("*", cudaErrorUnknown, 3);
  CHECK_CUDA(cudaEventRecord(event, stream));
  CHECK_CUDA(cudaStreamWaitEvent(stream, event, 0));
  CHECK(cudaGetLastError() == cudaSuccess);  // a function that cannot fail: not counted
  CHECK(cudaStreamSynchronize(stream) == cudaErrorUnknown);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  cudaGetLastError();
}

TEST_CASE("several failures can be asked for", "[emulation][failure]") {
  const TestStream stream;
  emulation::fail_call("cudaStreamQuery", cudaErrorUnknown, 1);
  emulation::fail_call("cudaStreamQuery", cudaErrorNotSupported, 2);
  emulation::fail_call("cudaStreamSynchronize", cudaErrorInvalidValue, 1);
  CHECK(cudaStreamQuery(stream) == cudaErrorUnknown);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidValue);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotSupported);
  CHECK_CUDA(cudaStreamQuery(stream));
  CHECK_FALSE(emulation::clear_failures());  // all have happened
  cudaGetLastError();
}

TEST_CASE("failures that have not happened can be taken back", "[emulation][failure]") {
  emulation::fail_call("cudaMalloc", cudaErrorMemoryAllocation);
  CHECK(emulation::clear_failures());
  CHECK_FALSE(emulation::clear_failures());
  const DeviceMemory<std::uint8_t> memory(64);
}

TEST_CASE("a copy that failed at its call is not made", "[emulation][failure]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> pinned(64, 1);
  const TestStream stream;
  emulation::fail_call("cudaMemcpyAsync", cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(device.data(), pinned.data(), 64, cudaMemcpyHostToDevice, stream) ==
        cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK(device.read() == std::vector<std::uint8_t>(64, 0));
}

TEST_CASE("a failure is the last error of the thread that met it", "[emulation][failure]") {
  emulation::fail_call("cudaDeviceSynchronize", cudaErrorUnknown);
  cudaError_t there = cudaSuccess;
  std::thread([&] {
    cudaDeviceSynchronize();
    there = cudaPeekAtLastError();
  }).join();
  CHECK(there == cudaErrorUnknown);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

// ---- Sticky errors

TEST_CASE("after a sticky error nothing works on the device", "[emulation][failure][error][held]") {
  const auto sticky = GENERATE(cudaErrorLaunchFailure, cudaErrorIllegalAddress);
  emulation::Options options = emulation::options();
  options.machine.devices = 2;
  emulation::reset(options);
  cudaStream_t stream = nullptr;  // left to reset()
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  emulation::fail_call("cudaStreamSynchronize", sticky);
  CHECK(cudaStreamSynchronize(stream) == sticky);
  CHECK(cudaGetLastError() == sticky);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 64) == sticky);
  CHECK(cudaStreamQuery(stream) == sticky);
  CHECK(cudaDeviceSynchronize() == sticky);
  CHECK(cudaGetLastError() == sticky);
  CHECK(cudaGetLastError() == sticky);  // getting it does not clear it

  REQUIRE_CUDA(cudaSetDevice(1));
  CHECK_CUDA(cudaDeviceSynchronize());  // the other device is well
  REQUIRE_CUDA(cudaSetDevice(0));

  emulation::reset(options);
  CHECK_CUDA(cudaDeviceSynchronize());
}

// A GPU destroys nothing after a sticky error: the process has to end.
TEST_CASE("objects can be destroyed after a sticky error", "[emulation][failure][error][looser]") {
  void *device = nullptr, *host = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(cudaMalloc(&device, 64));
  REQUIRE_CUDA(cudaMallocHost(&host, 64));
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  REQUIRE_CUDA(cudaEventCreate(&event));
  emulation::fail_call("cudaDeviceSynchronize", cudaErrorIllegalAddress);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(cudaEventDestroy(event) == cudaErrorIllegalAddress);
  CHECK(cudaStreamDestroy(stream) == cudaErrorIllegalAddress);
  CHECK(cudaFreeHost(host) == cudaErrorIllegalAddress);
  CHECK(cudaFree(device) == cudaErrorIllegalAddress);
  CHECK(emulation::live() == emulation::Live{});
}

// ---- fail_operation

TEST_CASE("an operation fails on the device, after its call succeeded",
          "[emulation][failure][error][held]") {
  void *device = nullptr, *host = nullptr;  // left to the next test's machine
  cudaStream_t stream = nullptr;
  HostLog log;
  REQUIRE_CUDA(cudaMalloc(&device, 64));
  REQUIRE_CUDA(cudaMallocHost(&host, 64));
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  emulation::fail_operation(emulation::OperationKind::copy, cudaErrorIllegalAddress, 2);
  REQUIRE_CUDA(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));  // the first copy is well
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaMemcpyAsync(device, host, 64, cudaMemcpyHostToDevice, stream));
  log.enqueue(stream, 1);
  gate.open();
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  // cudaLaunchHostFunc: "the function will not be called in the event of an error in the CUDA
  // context".
  CHECK(log.entries().empty());
  CHECK_FALSE(emulation::clear_failures());

  CHECK(cudaStreamDestroy(stream) == cudaErrorIllegalAddress);
  CHECK(cudaFreeHost(host) == cudaErrorIllegalAddress);
  CHECK(cudaFree(device) == cudaErrorIllegalAddress);
}

TEST_CASE("whatever waits for an operation that fails is released",
          "[emulation][failure][error][held]") {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  REQUIRE_CUDA(cudaStreamCreate(&other));
  REQUIRE_CUDA(cudaEventCreate(&event));
  Gate gate;
  gate.hold(stream);
  emulation::fail_operation(emulation::OperationKind::event_record, cudaErrorLaunchFailure);
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  REQUIRE_CUDA(cudaStreamWaitEvent(other, event, 0));
  gate.open();
  CHECK(cudaEventSynchronize(event) == cudaErrorLaunchFailure);
  CHECK(cudaStreamSynchronize(other) == cudaErrorLaunchFailure);
  CHECK(cudaEventDestroy(event) == cudaErrorLaunchFailure);
  CHECK(cudaStreamDestroy(stream) == cudaErrorLaunchFailure);
  CHECK(cudaStreamDestroy(other) == cudaErrorLaunchFailure);
}

// cudaStreamAddCallback: "In the event of a device error, all subsequently executed callbacks will
// receive an appropriate cudaError_t."
TEST_CASE("a callback is told of a failure before it",
          "[emulation][failure][host-function][held]") {
  cudaStream_t stream = nullptr;
  std::atomic<cudaError_t> told{cudaSuccess};
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  Gate gate;
  gate.hold(stream);
  emulation::fail_operation(emulation::OperationKind::event_record, cudaErrorLaunchFailure);
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(cudaEventCreate(&event));
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  REQUIRE_CUDA(cudaStreamAddCallback(
      stream,
      [](cudaStream_t, cudaError_t status, void* data) {
        *static_cast<std::atomic<cudaError_t>*>(data) = status;
      },
      &told, 0));
  gate.open();
  CHECK(eventually([&] { return told != cudaSuccess; }));
  CHECK(told == cudaErrorLaunchFailure);
  CHECK(cudaEventDestroy(event) == cudaErrorLaunchFailure);
  CHECK(cudaStreamDestroy(stream) == cudaErrorLaunchFailure);
}

// ---- Host functions

// CUDA forbids such calls, and a GPU may let one pass.
TEST_CASE("a host function must not call CUDA", "[emulation][failure][host-function][stricter]") {
  struct Calls {
    cudaError_t allocate = cudaErrorUnknown, query = cudaErrorUnknown;
  } calls;
  const TestStream stream;
  REQUIRE_CUDA(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        void* memory = nullptr;
        static_cast<Calls*>(data)->allocate = cudaMalloc(&memory, 64);
        static_cast<Calls*>(data)->query = cudaDeviceSynchronize();
      },
      &calls));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(calls.allocate == cudaErrorNotPermitted);
  CHECK(calls.query == cudaErrorNotPermitted);
}

// ---- Capture, where CUDA's documentation leaves room: the emulation is as strict as a GPU was
// seen to be.

// CUDA does not list cudaEventQuery among the calls that are unsafe beside a capture.
TEST_CASE("a global capture forbids other threads to ask for an event",
          "[emulation][failure][capture][stricter]") {
  const TestStream stream, other;
  const TestEvent event;
  REQUIRE_CUDA(cudaEventRecord(event, other));
  const auto query_with_mode = [&](cudaStreamCaptureMode mode) {
    cudaError_t status = cudaErrorUnknown;
    std::thread([&] {
      cudaThreadExchangeStreamCaptureMode(&mode);
      do status = cudaEventQuery(event);
      while (status == cudaErrorNotReady);
    }).join();
    return status;
  };
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(query_with_mode(cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(query_with_mode(cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}
