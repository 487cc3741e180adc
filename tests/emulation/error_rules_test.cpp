// SPDX-License-Identifier: Apache-2.0

// The rules of errors: the last error of a thread, handles that are none, and what follows an
// error of a device. Functions: cudaGetLastError, cudaPeekAtLastError.

#include <cstdint>
#include <string>
#include <thread>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

/// A call that fails, and leaves cudaErrorInvalidValue as this thread's last error.
cudaError_t fail() {
  return cudaMalloc(nullptr, 64);
}

}  // namespace

// CUDA Runtime API, Error Handling, cudaGetLastError: "Returns the last error that has been
// produced by any of the runtime calls in the same instance of the CUDA Runtime library in the host
// thread and resets it to cudaSuccess."
TEST_CASE("the last error is returned once", "[rules][error]") {
  REQUIRE(fail() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
}

// CUDA Runtime API, Error Handling, cudaPeekAtLastError: "This call does not reset the error to
// cudaSuccess like cudaGetLastError()."
TEST_CASE("the last error can be looked at without losing it", "[rules][error]") {
  REQUIRE(fail() == cudaErrorInvalidValue);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

// CUDA C++ Programming Guide, Error Checking: "The runtime maintains an error variable for each
// host thread that is initialized to cudaSuccess and is overwritten by the error code every time an
// error occurs".
TEST_CASE("successful calls leave the last error alone, and failing ones overwrite it",
          "[rules][error]") {
  REQUIRE(fail() == cudaErrorInvalidValue);
  { const DeviceMemory<std::uint8_t> succeeds(64); }
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

// The same sentence: "for each host thread".
TEST_CASE("every thread has its own last error", "[rules][error]") {
  REQUIRE(fail() == cudaErrorInvalidValue);
  cudaError_t at_first = cudaErrorUnknown, after_failure = cudaErrorUnknown;
  std::thread([&] {
    at_first = cudaPeekAtLastError();
    cudaSetDevice(-1);
    after_failure = cudaPeekAtLastError();
  }).join();
  CHECK(at_first == cudaSuccess);
  CHECK(after_failure == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA C++ Programming Guide, Error Checking: "Note that cudaErrorNotReady that may be returned by
// cudaStreamQuery() and cudaEventQuery() is not considered an error and is therefore not reported
// by cudaPeekAtLastError() or cudaGetLastError()."
TEST_CASE("work that is not ready is no error", "[rules][error]") {
  const TestStream stream;
  const TestEvent event;
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
}

// CUDA Runtime API, Error Handling, cudaGetErrorName: "Returns a string containing the name of an
// error code in the enum." cudaGetErrorString: "Returns the description string for an error code."
TEST_CASE("errors have names and descriptions", "[rules][error]") {
  CHECK(cudaGetErrorName(cudaSuccess) == std::string("cudaSuccess"));
  CHECK(cudaGetErrorName(cudaErrorInvalidValue) == std::string("cudaErrorInvalidValue"));
  CHECK(cudaGetErrorName(cudaErrorMemoryAllocation) == std::string("cudaErrorMemoryAllocation"));
  CHECK(cudaGetErrorName(cudaErrorNotReady) == std::string("cudaErrorNotReady"));
  CHECK(cudaGetErrorName(cudaErrorStreamCaptureIsolation) ==
        std::string("cudaErrorStreamCaptureIsolation"));
  CHECK(cudaGetErrorString(cudaErrorInvalidValue) != std::string());
  CHECK(cudaGetErrorString(cudaErrorInvalidValue) != std::string("cudaErrorInvalidValue"));
  // "If the error code is not recognized, "unrecognized error code" is returned."
  const auto unknown = static_cast<cudaError_t>(9'999);
  CHECK(cudaGetErrorName(unknown) == std::string("unrecognized error code"));
  CHECK(cudaGetErrorString(unknown) == std::string("unrecognized error code"));
}

// CUDA Runtime API, each function's list of answers: cudaErrorInvalidValue, "one or more of the
// parameters passed to the API call is not within an acceptable range of values".
TEST_CASE("a call that returns a value refuses a null pointer for it", "[rules][error]") {
  const TestStream stream;
  CHECK(cudaMalloc(nullptr, 64) == cudaErrorInvalidValue);
  CHECK(cudaHostAlloc(nullptr, 64, cudaHostAllocDefault) == cudaErrorInvalidValue);
  CHECK(cudaStreamCreateWithFlags(nullptr, cudaStreamNonBlocking) == cudaErrorInvalidValue);
  CHECK(cudaEventCreateWithFlags(nullptr, cudaEventDefault) == cudaErrorInvalidValue);
  CHECK(cudaGetDevice(nullptr) == cudaErrorInvalidValue);
  CHECK(cudaStreamIsCapturing(stream, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// The same lists: cudaErrorInvalidResourceHandle, "a resource handle passed to the API call was not
// valid".
TEST_CASE("a null event is an invalid handle", "[rules][error]") {
  const TestStream stream;
  CHECK(cudaEventRecord(nullptr, stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventQuery(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventSynchronize(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(stream, nullptr, 0) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}
