// SPDX-License-Identifier: Apache-2.0

// The rules of stream capture: what is captured, what is forbidden to whom, and how a capture
// ends. Functions: cudaStreamBeginCapture, cudaStreamEndCapture, cudaStreamIsCapturing,
// cudaStreamGetCaptureInfo, cudaThreadExchangeStreamCaptureMode.

#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

cudaStreamCaptureStatus capture_status(cudaStream_t stream) {
  auto status = cudaStreamCaptureStatusNone;
  REQUIRE_CUDA(cudaStreamIsCapturing(stream, &status));
  return status;
}

/// Ends a capture that has gone wrong: `error`, and no graph.
void end_broken_capture(cudaStream_t stream, cudaError_t error) {
  auto graph = reinterpret_cast<cudaGraph_t>(&stream);  // anything but null
  CHECK(cudaStreamEndCapture(stream, &graph) == error);
  CHECK(graph == nullptr);
  CHECK(capture_status(stream) == cudaStreamCaptureStatusNone);
  cudaGetLastError();
}

/// A potentially unsafe call: cudaMalloc. Frees what it got at the end of its scope, which comes
/// after the end of every capture: cudaFree may wait for the device.
class UnsafeCall {
 public:
  UnsafeCall() = default;
  ~UnsafeCall() { CHECK_CUDA(cudaFree(memory_)); }
  UnsafeCall(const UnsafeCall&) = delete;
  UnsafeCall& operator=(const UnsafeCall&) = delete;

  cudaError_t here() { return cudaMalloc(&memory_, 64); }
  cudaError_t on_other_thread(cudaStreamCaptureMode mode) {
    cudaError_t status = cudaErrorUnknown;
    std::thread([&] {
      cudaThreadExchangeStreamCaptureMode(&mode);
      status = here();
    }).join();
    return status;
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace

// CUDA Runtime API, Stream Management, cudaStreamBeginCapture: "When a stream is in capture mode,
// all operations pushed into the stream will not be executed, but will instead be captured into a
// graph".
TEST_CASE("captured work does not run", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64, 5);
  HostLog log;
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] {
    fill_async(device, 1, stream);
    copy_async(host, device, stream);
    log.enqueue(stream, 1);
  });
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(device.read() == std::vector<std::uint8_t>(64, 0));
  CHECK(host.all(5));
  CHECK(log.entries().empty());
  CHECK(graph.nodes() == 3);
}

// CUDA Runtime API, Stream Management, cudaStreamIsCapturing: "cudaStreamCaptureStatusNone: The
// stream is not capturing. cudaStreamCaptureStatusActive: The stream is capturing."
TEST_CASE("a stream knows whether it is capturing", "[rules][capture]") {
  const TestStream stream, other;
  CHECK(capture_status(stream) == cudaStreamCaptureStatusNone);
  const TestGraph graph = capture(stream, [&] {
    CHECK(capture_status(stream) == cudaStreamCaptureStatusActive);
    CHECK(capture_status(other) == cudaStreamCaptureStatusNone);
  });
  CHECK(capture_status(stream) == cudaStreamCaptureStatusNone);
  CHECK(graph.nodes() == 0);
}

// CUDA Runtime API, Stream Management, cudaStreamGetCaptureInfo: "If edgeData_out is non-NULL then
// dependencies_out must be as well."
TEST_CASE("the edges of a capture are told together with its nodes", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  auto status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  const TestGraph graph = capture(stream, [&] {
    fill_async(device, 1, stream);
    CHECK(capture_info(stream, &status, nullptr, &edges, &count) != cudaSuccess);
    CHECK(cudaGetLastError() != cudaSuccess);
    CHECK_CUDA(capture_info(stream, &status, &nodes, &edges, &count));
  });
  CHECK(status == cudaStreamCaptureStatusActive);
  CHECK(count == 1);
  CHECK(nodes != nullptr);
}

// Observed on an H100 and an H200, CUDA 13.0; the documentation does not say so.
TEST_CASE("a stream that is capturing does not tell its device, and the question ends the capture",
          "[rules][capture]") {
  if (!kStreamsTellTheirDevice) return;
  const TestStream stream;
  int device = -1;
  REQUIRE_CUDA(device_of_stream(stream, &device));
  CHECK(device == 0);
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(device_of_stream(stream, &device) == cudaErrorStreamCaptureUnsupported);
  cudaGetLastError();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

// CUDA Runtime API, Stream Management, cudaStreamGetCaptureInfo: "id_out - Optional location to
// return an id for the capture sequence, which is unique over the lifetime of the process".
TEST_CASE("every capture has an id of its own", "[rules][capture]") {
  const TestStream stream;
  unsigned long long first = 0, second = 0;
  auto status = cudaStreamCaptureStatusNone;
  const TestGraph one =
      capture(stream, [&] { REQUIRE_CUDA(cudaStreamGetCaptureInfo(stream, &status, &first)); });
  CHECK(status == cudaStreamCaptureStatusActive);
  const TestGraph two =
      capture(stream, [&] { REQUIRE_CUDA(cudaStreamGetCaptureInfo(stream, &status, &second)); });
  CHECK(first != second);
}

// CUDA Runtime API, Stream Management, cudaStreamBeginCapture: "Capture may not be initiated if
// stream is cudaStreamLegacy. ... it may only be initiated if the stream is not already in capture
// mode."
TEST_CASE("a capture begins neither on the legacy stream nor on a stream that captures already",
          "[rules][capture]") {
  const TestStream stream;
  CHECK(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeThreadLocal) != cudaSuccess);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal) != cudaSuccess);
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);  // whether the second begin broke it is not documented
  if (graph != nullptr) CHECK_CUDA(cudaGraphDestroy(graph));
  cudaGetLastError();
}

// CUDA Runtime API, cudaErrorStreamCaptureUnsupported: "The operation is not permitted when the
// stream is capturing." Which ones these are is not said of each; an H200's driver says so of this.
TEST_CASE("a graph cannot be launched into a capture", "[rules][capture]") {
  const TestStream stream;
  const DeviceMemory<std::uint8_t> device(64);
  const TestGraph graph = capture(stream, [&] { fill_async(device, 3, stream); });
  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaGraphLaunch(exec, stream) == cudaErrorStreamCaptureUnsupported);
  cudaGraph_t captured = nullptr;
  cudaStreamEndCapture(stream, &captured);  // whether the launch broke it is not documented
  if (captured != nullptr) CHECK_CUDA(cudaGraphDestroy(captured));
  cudaGetLastError();
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  CHECK(device.read() == std::vector<std::uint8_t>(64, 3));
}

// CUDA Runtime API, Stream Management, cudaStreamEndCapture: "Capture must have been initiated on
// stream via a call to cudaStreamBeginCapture."
TEST_CASE("a capture cannot be ended on a stream that does not capture", "[rules][capture]") {
  const TestStream stream;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) != cudaSuccess);
  CHECK(graph == nullptr);
  CHECK(cudaGetLastError() != cudaSuccess);
}

// CUDA C++ Programming Guide, Cross-stream Dependencies and Events: "a captured event can be used
// ... as a dependency of the captured graph"; a stream that waits for it joins the capture, and
// "must be rejoined with the origin stream before cudaStreamEndCapture() is called".
TEST_CASE("an event carries a capture to another stream and back", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> left(64), right(64);
  const TestStream origin, branch;
  const TestEvent fork, join;
  const TestGraph graph = capture(origin, [&] {
    fill_async(device, 3, origin);
    REQUIRE_CUDA(cudaEventRecord(fork, origin));
    REQUIRE_CUDA(cudaStreamWaitEvent(branch, fork, 0));
    CHECK(capture_status(branch) == cudaStreamCaptureStatusActive);
    copy_async(left, device, origin);
    copy_async(right, device, branch);
    REQUIRE_CUDA(cudaEventRecord(join, branch));
    REQUIRE_CUDA(cudaStreamWaitEvent(origin, join, 0));
    fill_async(device, 4, origin);  // after both copies
  });
  CHECK(capture_status(branch) == cudaStreamCaptureStatusNone);
  CHECK(graph.nodes() == 4);  // records and waits are edges, not nodes
  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaGraphLaunch(exec, origin));
  REQUIRE_CUDA(cudaStreamSynchronize(origin));
  CHECK(left.all(3));
  CHECK(right.all(3));
  CHECK(device.read() == std::vector<std::uint8_t>(64, 4));
}

// CUDA Runtime API, cudaErrorStreamCaptureUnjoined: "The capture sequence contains a fork that was
// not joined to the primary stream."
TEST_CASE("a fork that is not joined breaks the capture", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream origin, branch;
  const TestEvent fork;
  REQUIRE_CUDA(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
  REQUIRE_CUDA(cudaEventRecord(fork, origin));
  REQUIRE_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  fill_async(device, 1, branch);
  end_broken_capture(origin, cudaErrorStreamCaptureUnjoined);
  CHECK(capture_status(branch) == cudaStreamCaptureStatusNone);
}

TEST_CASE("work behind a join has to be joined again", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream origin, branch;
  const TestEvent fork, join;
  REQUIRE_CUDA(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
  REQUIRE_CUDA(cudaEventRecord(fork, origin));
  REQUIRE_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  fill_async(device, 1, branch);
  REQUIRE_CUDA(cudaEventRecord(join, branch));
  REQUIRE_CUDA(cudaStreamWaitEvent(origin, join, 0));
  fill_async(device, 2, branch);
  end_broken_capture(origin, cudaErrorStreamCaptureUnjoined);
}

// CUDA Runtime API, cudaStreamUpdateCaptureDependencies: what cudaErrorStreamCaptureUnjoined is
// about are nodes that "are unreachable from the stream at cudaStreamEndCapture". A fork that holds
// no work has none.
TEST_CASE("a fork without work need not be joined", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream origin, branch;
  const TestEvent fork;
  const TestGraph graph = capture(origin, [&] {
    fill_async(device, 1, origin);
    REQUIRE_CUDA(cudaEventRecord(fork, origin));
    REQUIRE_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  });
  CHECK(graph.nodes() == 1);
  CHECK(capture_status(branch) == cudaStreamCaptureStatusNone);
}

// CUDA Runtime API, cudaErrorStreamCaptureUnmatched: "The capture was not initiated in this
// stream."
TEST_CASE("a capture ends on the stream where it began", "[rules][capture]") {
  const TestStream origin, branch;
  const TestEvent fork;
  REQUIRE_CUDA(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
  REQUIRE_CUDA(cudaEventRecord(fork, origin));
  REQUIRE_CUDA(cudaStreamWaitEvent(branch, fork, 0));
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(branch, &graph) == cudaErrorStreamCaptureUnmatched);
  CHECK(graph == nullptr);
  cudaStreamEndCapture(origin, &graph);  // takes both streams out of capture mode in any case
  if (graph != nullptr) CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK(capture_status(branch) == cudaStreamCaptureStatusNone);
  cudaGetLastError();
}

// CUDA Runtime API, cudaErrorStreamCaptureIsolation: "A dependency would have been created which
// crosses the capture sequence boundary. Only implicit in-stream ordering dependencies are allowed
// to cross the boundary."
TEST_CASE("a capture cannot wait for an event of work outside of it", "[rules][capture]") {
  const TestStream stream, outside;
  const TestEvent event;
  REQUIRE_CUDA(cudaEventRecord(event, outside));
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorStreamCaptureIsolation);
  CHECK(capture_status(stream) == cudaStreamCaptureStatusInvalidated);
  end_broken_capture(stream, cudaErrorStreamCaptureInvalidated);
}

// The same sentence: "Only implicit in-stream ordering dependencies are allowed to cross".
TEST_CASE("a stream with work in it can begin a capture", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  const TestGraph graph = capture(stream, [&] { fill_async(device, 1, stream); });
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  gate.open();
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(graph.nodes() == 1);
}

// CUDA Runtime API, cudaErrorStreamCaptureMerge: "The operation would have resulted in a merge of
// two independent capture sequences."
TEST_CASE("two captures do not merge", "[rules][capture]") {
  const TestStream one, two;
  const TestEvent event;
  REQUIRE_CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
  REQUIRE_CUDA(cudaStreamBeginCapture(two, cudaStreamCaptureModeThreadLocal));
  REQUIRE_CUDA(cudaEventRecord(event, one));
  CHECK(cudaStreamWaitEvent(two, event, 0) == cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  for (const cudaStream_t stream :
       {static_cast<cudaStream_t>(one), static_cast<cudaStream_t>(two)}) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) CHECK_CUDA(cudaGraphDestroy(graph));
  }
  cudaGetLastError();
}

// CUDA C++ Programming Guide, Prohibited and Unhandled Operations: "It is invalid to synchronize or
// query the execution status of a stream which is being captured or a captured event, because they
// do not represent items scheduled for execution."
TEST_CASE("a capturing stream cannot be waited for", "[rules][capture]") {
  const TestStream stream;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  SECTION("cudaStreamSynchronize") {
    CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  }
  SECTION("cudaStreamQuery") {
    CHECK(cudaStreamQuery(stream) == cudaErrorStreamCaptureUnsupported);
  }
  // "When an invalid operation is attempted during stream capture, any associated capture graphs
  // are invalidated."
  end_broken_capture(stream, cudaErrorStreamCaptureInvalidated);
}

// CUDA Runtime API, cudaErrorCapturedEvent: "The operation is not permitted on an event which was
// last recorded in a capturing stream."
TEST_CASE("a captured event cannot be waited for by the host", "[rules][capture]") {
  const TestStream stream;
  const TestEvent event;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  SECTION("cudaEventQuery") {
    CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
  }
  SECTION("cudaEventSynchronize") {
    CHECK(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
  }
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) CHECK_CUDA(cudaGraphDestroy(graph));
  cudaGetLastError();
  // Recorded on a stream that does not capture, it is an event like any other.
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  CHECK_CUDA(cudaEventSynchronize(event));
}

// CUDA Runtime API, cudaErrorStreamCaptureImplicit: "The operation would have resulted in a
// disallowed implicit dependency on a current capture sequence from cudaStreamLegacy."
TEST_CASE("the legacy stream is out of use while a blocking stream captures", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream(cudaStreamDefault);
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  SECTION("for asking") {
    // cudaStreamIsCapturing: "it will return cudaErrorStreamCaptureImplicit ... The blocking stream
    // capture is not invalidated."
    auto status = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamIsCapturing(cudaStreamLegacy, &status) == cudaErrorStreamCaptureImplicit);
    CHECK(capture_status(stream) == cudaStreamCaptureStatusActive);
    cudaGraph_t graph = nullptr;
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    cudaGetLastError();
  }
  SECTION("for work") {
    CHECK(cudaMemsetAsync(device.data(), 1, 64, cudaStreamLegacy) ==
          cudaErrorStreamCaptureImplicit);
    end_broken_capture(stream, cudaErrorStreamCaptureInvalidated);
  }
  SECTION("for synchronous copies, which use it") {
    std::uint8_t value = 0;
    CHECK(cudaMemcpy(&value, device.data(), 1, cudaMemcpyDeviceToHost) ==
          cudaErrorStreamCaptureImplicit);
    end_broken_capture(stream, cudaErrorStreamCaptureInvalidated);
  }
}

// cudaStreamCreateWithFlags: "the created stream should perform no implicit synchronization with
// stream 0", so there is no implicit dependency to forbid.
TEST_CASE("the legacy stream works while a non-blocking stream captures", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const TestGraph graph = capture(
      stream, [&] { CHECK_CUDA(cudaMemsetAsync(device.data(), 1, 64, cudaStreamLegacy)); },
      cudaStreamCaptureModeRelaxed);
  CHECK(graph.nodes() == 0);
  CHECK(device.read() == std::vector<std::uint8_t>(64, 1));
}

// CUDA Runtime API, Stream Management, cudaThreadExchangeStreamCaptureMode: "If the local thread
// has an ongoing capture sequence that was not initiated with cudaStreamCaptureModeRelaxed ...,
// this thread is prohibited from potentially unsafe API calls." "... such as a call to cudaMalloc".
TEST_CASE("the capturing thread makes no unsafe calls", "[rules][capture]") {
  const auto mode = GENERATE(cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal);
  UnsafeCall unsafe;
  const TestStream stream;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, mode));
  CHECK(unsafe.here() == cudaErrorStreamCaptureUnsupported);
  end_broken_capture(stream, cudaErrorStreamCaptureInvalidated);
}

// The same sentence: "... not initiated with cudaStreamCaptureModeRelaxed".
TEST_CASE("a relaxed capture forbids no unsafe calls", "[rules][capture]") {
  UnsafeCall unsafe;
  const TestStream stream;
  const TestGraph graph = capture(
      stream, [&] { CHECK_CUDA(unsafe.here()); }, cudaStreamCaptureModeRelaxed);
}

// The same description: "cudaStreamCaptureModeThreadLocal: If the local thread has an ongoing
// capture sequence not initiated with cudaStreamCaptureModeRelaxed, it is prohibited from
// potentially unsafe API calls. ... cudaStreamCaptureModeRelaxed: The local thread is not
// prohibited".
TEST_CASE("which calls a capture forbids depends on the mode of the calling thread, too",
          "[rules][capture]") {
  UnsafeCall unsafe;
  const TestStream stream;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  SECTION("relaxed") {
    auto mode = cudaStreamCaptureModeRelaxed;
    REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK_CUDA(unsafe.here());
    REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaGraph_t graph = nullptr;
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
  }
  SECTION("thread-local") {
    auto mode = cudaStreamCaptureModeThreadLocal;
    REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(unsafe.here() == cudaErrorStreamCaptureUnsupported);
    REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    end_broken_capture(stream, cudaErrorStreamCaptureInvalidated);
  }
}

// The same description: "cudaStreamCaptureModeGlobal: This is the default mode. If ... any other
// thread has a concurrent capture sequence initiated with cudaStreamCaptureModeGlobal, this thread
// is prohibited from potentially unsafe API calls."
TEST_CASE("a global capture forbids unsafe calls to other threads", "[rules][capture]") {
  UnsafeCall unsafe;
  const TestStream stream;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(unsafe.on_other_thread(cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  end_broken_capture(stream, cudaErrorStreamCaptureInvalidated);
}

// The same description: "cudaStreamCaptureModeThreadLocal: ... Concurrent capture sequences in
// other threads are ignored. cudaStreamCaptureModeRelaxed: The local thread is not prohibited from
// potentially unsafe API calls."
TEST_CASE("a thread may put itself out of the reach of other threads' captures",
          "[rules][capture]") {
  const auto mode = GENERATE(cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed);
  UnsafeCall unsafe;
  const TestStream stream;
  const TestGraph graph = capture(
      stream, [&] { CHECK(unsafe.on_other_thread(mode) == cudaSuccess); },
      cudaStreamCaptureModeGlobal);
}

// The same description: only captures "initiated with cudaStreamCaptureModeGlobal" reach other
// threads.
TEST_CASE("a thread-local capture leaves other threads alone", "[rules][capture]") {
  const auto mode = GENERATE(cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed);
  UnsafeCall unsafe;
  const TestStream stream;
  const TestGraph graph = capture(
      stream, [&] { CHECK(unsafe.on_other_thread(cudaStreamCaptureModeGlobal) == cudaSuccess); },
      mode);
}

// The same description: "Sets the calling thread's stream capture interaction mode to the value
// contained in *mode, and overwrites *mode with the previous mode for the thread."
TEST_CASE("every thread has a capture mode that can be exchanged", "[rules][capture]") {
  auto mode = cudaStreamCaptureModeRelaxed;
  REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeGlobal);
  auto on_other_thread = cudaStreamCaptureModeThreadLocal;
  std::thread([&] { cudaThreadExchangeStreamCaptureMode(&on_other_thread); }).join();
  CHECK(on_other_thread == cudaStreamCaptureModeGlobal);
  REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == cudaStreamCaptureModeRelaxed);
}

// CUDA Runtime API, Stream Management, cudaStreamEndCapture: "If the mode argument to
// cudaStreamBeginCapture was not cudaStreamCaptureModeRelaxed, this call must be from the same
// thread as cudaStreamBeginCapture."
TEST_CASE("a capture ends on the thread where it began, unless it is relaxed", "[rules][capture]") {
  const TestStream stream;
  cudaGraph_t graph = nullptr;
  const auto end_on_other_thread = [&] {
    cudaError_t status = cudaErrorUnknown;
    std::thread([&] { status = cudaStreamEndCapture(stream, &graph); }).join();
    return status;
  };
  SECTION("relaxed") {
    REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    REQUIRE(end_on_other_thread() == cudaSuccess);
    REQUIRE_CUDA(cudaGraphDestroy(graph));
  }
  SECTION("global and thread-local") {
    const auto mode = GENERATE(cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal);
    REQUIRE_CUDA(cudaStreamBeginCapture(stream, mode));
    CHECK(end_on_other_thread() == cudaErrorStreamCaptureWrongThread);
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) CHECK_CUDA(cudaGraphDestroy(graph));
  }
  CHECK(capture_status(stream) == cudaStreamCaptureStatusNone);
}

// CUDA C++ Programming Guide, Invalidation: "When a capture graph is invalidated, further use of
// any streams which are being captured ... is invalid and will return an error, until stream
// capture is ended with cudaStreamEndCapture()."
TEST_CASE("an invalidated capture takes no more work", "[rules][capture]") {
  const DeviceMemory<std::uint8_t> device(64);
  UnsafeCall unsafe;
  const TestStream stream;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(unsafe.here() == cudaErrorStreamCaptureUnsupported);
  CHECK(capture_status(stream) == cudaStreamCaptureStatusInvalidated);
  CHECK(cudaMemsetAsync(device.data(), 1, 64, stream) == cudaErrorStreamCaptureInvalidated);
  end_broken_capture(stream, cudaErrorStreamCaptureInvalidated);
  // The stream can be used, and captured, again.
  const TestGraph graph = capture(stream, [&] { fill_async(device, 1, stream); });
  CHECK(graph.nodes() == 1);
}
