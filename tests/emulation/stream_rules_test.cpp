// SPDX-License-Identifier: Apache-2.0

// The rules of streams: order within one, freedom between two, and what the host learns.
// Functions: cudaStream*, cudaDeviceGetStreamPriorityRange.

#include <atomic>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

// CUDA C++ Programming Guide, Streams: "A stream is a sequence of commands (possibly issued by
// different host threads) that execute in order."
TEST_CASE("the work of a stream runs in the order in which it was queued", "[rules][stream]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> first(64), second(64);
  HostLog log;
  const TestStream stream;

  fill_async(device, 1, stream);
  log.enqueue(stream, 1);
  copy_async(first, device, stream);
  fill_async(device, 2, stream);
  copy_async(second, device, stream);
  log.enqueue(stream, 2);
  log.enqueue(stream, 3);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));

  CHECK(first.all(1));
  CHECK(second.all(2));
  CHECK(log.entries() == std::vector{1, 2, 3});
}

// The same sentence: "... (possibly issued by different host threads) ..."
TEST_CASE("work of several threads runs in the order of their calls", "[rules][stream]") {
  HostLog log;
  const TestStream stream;
  const auto on_other_thread = [&](int number) {
    cudaError_t status = cudaErrorUnknown;
    void* note = log.note(number);
    std::thread([&] { status = cudaLaunchHostFunc(stream, &HostLog::append, note); }).join();
    REQUIRE(status == cudaSuccess);
  };
  log.enqueue(stream, 1);
  on_other_thread(2);
  log.enqueue(stream, 3);
  on_other_thread(4);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1, 2, 3, 4});
}

// CUDA C++ Programming Guide, Streams: "Different streams, on the other hand, may execute their
// commands out of order with respect to one another or concurrently."
TEST_CASE("a held stream does not hold another", "[rules][stream]") {
  const unsigned flags = GENERATE(as<unsigned>{}, cudaStreamDefault, cudaStreamNonBlocking);
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream held(flags), free(flags);
  Gate gate;
  gate.hold(held);
  fill_async(device, 7, free);
  copy_async(host, device, free);
  REQUIRE_CUDA(cudaStreamSynchronize(free));
  CHECK(host.all(7));
  CHECK(cudaStreamQuery(held) == cudaErrorNotReady);
}

// CUDA Runtime API, Stream Management, cudaStreamQuery: "Returns cudaSuccess if all operations in
// stream have completed, or cudaErrorNotReady if not."
TEST_CASE("a stream is ready when all its work is done", "[rules][stream]") {
  const TestStream stream;
  CHECK(cudaStreamQuery(stream) == cudaSuccess);  // nothing was ever queued
  Gate gate;
  gate.hold(stream);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
}

// The same sentence, from the side of a host that polls: work completes without being waited for.
TEST_CASE("a stream that is asked again and again becomes ready", "[rules][stream]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  fill_async(device, 9, stream);
  copy_async(host, device, stream);
  REQUIRE(eventually([&] { return cudaStreamQuery(stream) == cudaSuccess; }));
  CHECK(host.all(9));
}

// CUDA Runtime API, Stream Management, cudaStreamSynchronize: "Blocks until stream has completed
// all operations."
TEST_CASE("synchronising a stream waits for its work", "[rules][stream]") {
  HostLog log;
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  log.enqueue(stream, 1);
  std::atomic<bool> about_to_wait{false};
  std::vector<int> seen;
  std::thread waiter([&] {
    about_to_wait = true;
    cudaStreamSynchronize(stream);
    seen = log.entries();
  });
  eventually([&] { return about_to_wait.load(); });
  gate.open();
  waiter.join();
  CHECK(seen == std::vector{1});
}

// The same sentence: "stream", and not others.
TEST_CASE("synchronising a stream does not wait for another", "[rules][stream]") {
  const TestStream stream, other;
  Gate gate;
  gate.hold(other);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(cudaStreamQuery(other) == cudaErrorNotReady);
}

// CUDA Runtime API, Device Management, cudaDeviceSynchronize: "Blocks until the device has
// completed all preceding requested tasks."
TEST_CASE("synchronising the device waits for every stream", "[rules][stream]") {
  HostLog log;
  const TestStream blocking(cudaStreamDefault), non_blocking(cudaStreamNonBlocking);
  log.enqueue(blocking, 1);
  log.enqueue(non_blocking, 1);
  log.enqueue(cudaStreamPerThread, 1);
  log.enqueue(cudaStreamLegacy, 1);
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(log.entries() == std::vector{1, 1, 1, 1});
}

// CUDA Runtime API, Stream Management, cudaStreamDestroy: "In case the device is still doing work
// in the stream stream when cudaStreamDestroy() is called, the function will return immediately and
// the resources associated with stream will be released automatically once the device has completed
// all work in stream." (Under compute-sanitizer it waits: scripts/gpu-check leaves this out there.)
TEST_CASE("a stream can be destroyed while it has work, and the work is done",
          "[rules][stream][not-under-compute-sanitizer]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestEvent done;
  Gate gate;
  {
    const TestStream stream;
    gate.hold(stream);
    fill_async(device, 5, stream);
    copy_async(host, device, stream);
    REQUIRE_CUDA(cudaEventRecord(done, stream));
  }
  CHECK(cudaEventQuery(done) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaEventSynchronize(done));
  CHECK(host.all(5));
}

// CUDA Runtime API, Stream Management, cudaStreamGetFlags: "Query the flags of a stream."
TEST_CASE("a stream knows the flags it was created with", "[rules][stream]") {
  const unsigned flags = GENERATE(as<unsigned>{}, cudaStreamDefault, cudaStreamNonBlocking);
  const TestStream stream(flags);
  unsigned found = 77;
  REQUIRE_CUDA(cudaStreamGetFlags(stream, &found));
  CHECK(found == flags);
}

// CUDA Runtime API, Device Management, cudaDeviceGetStreamPriorityRange: "Stream priorities follow
// a convention where lower numbers imply greater priorities. The range of meaningful stream
// priorities is given by [*greatestPriority, *leastPriority]."
TEST_CASE("lower numbers are greater priorities", "[rules][stream]") {
  int least = 77, greatest = 77;
  REQUIRE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(greatest <= 0);
  CHECK(least >= 0);
  // "A NULL may be passed in for *leastPriority or *greatestPriority if the value is not desired."
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(nullptr, &greatest));
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&least, nullptr));
}

// CUDA Runtime API, Stream Management, cudaStreamCreateWithPriority: "If the specified priority is
// outside the numerical range returned by cudaDeviceGetStreamPriorityRange, it will automatically
// be clamped to the lowest or the highest number in the range."
TEST_CASE("a priority outside the range is clamped", "[rules][stream]") {
  int least = 0, greatest = 0;
  REQUIRE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const auto priority_of = [](int asked) {
    cudaStream_t stream = nullptr;
    REQUIRE_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, asked));
    int found = 77;
    CHECK_CUDA(cudaStreamGetPriority(stream, &found));
    CHECK_CUDA(cudaStreamDestroy(stream));
    return found;
  };
  CHECK(priority_of(0) == 0);
  CHECK(priority_of(greatest) == greatest);
  CHECK(priority_of(greatest - 100) == greatest);
  CHECK(priority_of(least + 100) == least);
}

// CUDA Runtime API, Stream Management, cudaStreamGetId: "The Id is unique for the life of the
// program."
TEST_CASE("the id of a stream is its own for ever", "[rules][stream]") {
  std::set<unsigned long long> ids;
  constexpr int streams = 20;
  for (int i = 0; i < streams; ++i) {
    const TestStream stream;
    unsigned long long id = 0;
    REQUIRE_CUDA(cudaStreamGetId(stream, &id));
    ids.insert(id);
  }
  CHECK(ids.size() == streams);
}

// CUDA Runtime API, Stream Management, cudaStreamCreateWithFlags: "Valid values for flags are
// cudaStreamDefault ... cudaStreamNonBlocking".
TEST_CASE("unknown stream flags are an error", "[rules][stream]") {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, 0x80) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// Many streams, each with a long queue: no bound is documented, so none may show.
TEST_CASE("streams take long queues", "[rules][stream]") {
  constexpr int streams = 8, length = 200;
  std::vector<TestStream> all(streams);
  HostLog log;
  for (int i = 0; i < length; ++i)
    for (const TestStream& stream : all) log.enqueue(stream, i);
  for (const TestStream& stream : all) REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries().size() == static_cast<std::size_t>(streams * length));
}
