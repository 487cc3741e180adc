// SPDX-License-Identifier: Apache-2.0

// The rules of host functions on streams. Functions: cudaLaunchHostFunc, cudaStreamAddCallback.

#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

/// Queues `function` on `stream`. It must live until it ran.
template <class Function>
void launch(cudaStream_t stream, Function& function) {
  REQUIRE_CUDA(cudaLaunchHostFunc(
      stream, [](void* data) { (*static_cast<Function*>(data))(); }, &function));
}

}  // namespace

// CUDA Runtime API, Execution Control, cudaLaunchHostFunc: "The function will be called after
// currently enqueued work ..."
TEST_CASE("a host function sees the copies queued before it", "[rules][host-function]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  bool seen = false;
  auto look = [&] { seen = host.all(5); };
  fill_async(device, 5, stream);
  copy_async(host, device, stream);
  launch(stream, look);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(seen);
}

// The same sentence: "... and will block work added after it."
TEST_CASE("copies queued after a host function see what it wrote", "[rules][host-function]") {
  const PinnedMemory<std::uint8_t> source(64, 0), result(64, 0);
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  auto write = [&] { source.set(6); };
  launch(stream, write);
  copy_async(device, source, stream);
  copy_async(result, device, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(result.all(6));
}

// CUDA Runtime API, Execution Control, cudaLaunchHostFunc: "The start of execution of the function
// has the same effect as synchronizing an event recorded in the same stream immediately prior to
// the function. It thus synchronizes streams which have been "joined" prior to the function."
TEST_CASE("a host function sees the work of joined streams", "[rules][host-function]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream writer, stream;
  const TestEvent written;
  bool seen = false;
  auto look = [&] { seen = host.all(7); };
  fill_async(device, 7, writer);
  copy_async(host, device, writer);
  REQUIRE_CUDA(cudaEventRecord(written, writer));
  REQUIRE_CUDA(cudaStreamWaitEvent(stream, written, 0));
  launch(stream, look);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(seen);
}

// CUDA Runtime API, Execution Control, cudaLaunchHostFunc: "Enqueues a host function to run in a
// stream." The call does not wait for it.
TEST_CASE("queueing a host function does not block", "[rules][host-function]") {
  HostLog log;
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  log.enqueue(stream, 1);
  CHECK(log.entries().empty());
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1});
}

// The same description: "stream synchronization can be done by signaling from a host function at
// the end of the stream."
TEST_CASE("host functions run without anybody waiting for the stream", "[rules][host-function]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  Gate signal;
  fill_async(device, 2, stream);
  copy_async(host, device, stream);
  signal.hold(stream);
  signal.wait_until_reached();
  signal.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(host.all(2));
}

// CUDA Runtime API, Execution Control, cudaLaunchHostFunc: "userData - User-specified data to be
// passed to the function".
TEST_CASE("a host function gets the pointer it was queued with", "[rules][host-function]") {
  struct Call {
    void* got = nullptr;
    std::thread::id thread;
  } first, second;
  const TestStream stream;
  const auto note = [](void* data) {
    auto& call = *static_cast<Call*>(data);
    call.got = data;
    call.thread = std::this_thread::get_id();
  };
  REQUIRE_CUDA(cudaLaunchHostFunc(stream, note, &first));
  REQUIRE_CUDA(cudaLaunchHostFunc(stream, note, &second));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(first.got == &first);
  CHECK(second.got == &second);
  CHECK(first.thread != std::this_thread::get_id());
}

// CUDA Runtime API, Execution Control, cudaLaunchHostFunc: a null function is no function.
TEST_CASE("a host function cannot be null", "[rules][host-function]") {
  const TestStream stream;
  CHECK(cudaLaunchHostFunc(stream, nullptr, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA Runtime API, Stream Management, cudaStreamAddCallback: "Adds a callback to be called on the
// host after all currently enqueued items in the stream have completed. For each
// cudaStreamAddCallback call, a callback will be executed exactly once. The callback will block
// later work in the stream until it is finished. The callback may be passed cudaSuccess or an error
// code."
TEST_CASE("a callback is told its stream and its status", "[rules][host-function]") {
  struct Call {
    int times = 0;
    cudaStream_t stream = nullptr;
    cudaError_t status = cudaErrorUnknown;
  } call;
  HostLog log;
  const TestStream stream;
  log.enqueue(stream, 1);
  REQUIRE_CUDA(cudaStreamAddCallback(
      stream,
      [](cudaStream_t of, cudaError_t status, void* data) {
        auto& it = *static_cast<Call*>(data);
        it = {it.times + 1, of, status};
      },
      &call, 0));
  log.enqueue(stream, 2);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(call.times == 1);
  CHECK(call.stream == static_cast<cudaStream_t>(stream));
  CHECK(call.status == cudaSuccess);
  CHECK(log.entries() == std::vector{1, 2});
}
