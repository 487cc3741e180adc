// SPDX-License-Identifier: Apache-2.0

// The rules of events: what a record captures, who waits for which record, and elapsed time.
// Functions: cudaEvent*, cudaStreamWaitEvent.

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

// CUDA Runtime API, Event Management, cudaEventRecord: "Before the first call to cudaEventRecord(),
// an event represents an empty set of work, so for example cudaEventQuery() would return
// cudaSuccess."
TEST_CASE("an event that was never recorded holds nobody", "[rules][event]") {
  const TestStream stream;
  const TestEvent event;
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK_CUDA(cudaEventSynchronize(event));
  CHECK_CUDA(cudaStreamWaitEvent(stream, event, 0));
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

// CUDA Runtime API, Event Management, cudaEventQuery: "Returns cudaSuccess if all captured work has
// been completed, or cudaErrorNotReady if any captured work is incomplete."
TEST_CASE("an event is ready when the work before its record is done", "[rules][event]") {
  const unsigned flags =
      GENERATE(as<unsigned>{}, cudaEventDefault, cudaEventDisableTiming, cudaEventBlockingSync,
               cudaEventBlockingSync | cudaEventDisableTiming);
  const TestStream stream;
  const TestEvent event(flags);
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaEventSynchronize(event));
  CHECK(cudaEventQuery(event) == cudaSuccess);
}

// CUDA Runtime API, Event Management, cudaEventRecord: "Captures in event the contents of stream at
// the time of this call. ... Uses of stream after this call do not modify event."
TEST_CASE("work queued after a record does not hold the event", "[rules][event]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  const TestEvent event;
  Gate gate;
  fill_async(device, 3, stream);
  copy_async(host, device, stream);
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  gate.hold(stream);
  REQUIRE_CUDA(cudaEventSynchronize(event));
  CHECK(host.all(3));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
}

// CUDA Runtime API, Stream Management, cudaStreamWaitEvent: "Makes all future work submitted to
// stream wait for all work captured in event."
TEST_CASE("a stream that waits for an event sees the work before its record", "[rules][event]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream writer, reader;
  const TestEvent written;
  Gate gate;
  gate.hold(writer);
  fill_async(device, 8, writer);
  REQUIRE_CUDA(cudaEventRecord(written, writer));
  REQUIRE_CUDA(cudaStreamWaitEvent(reader, written, 0));
  copy_async(host, device, reader);
  CHECK(cudaStreamQuery(reader) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(reader));
  CHECK(host.all(8));
}

// The same sentence: "all future work", and not the work that was queued before.
TEST_CASE("a wait does not hold the work queued before it", "[rules][event]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream held, stream;
  const TestEvent closed, before_wait;
  Gate gate;
  gate.hold(held);
  REQUIRE_CUDA(cudaEventRecord(closed, held));
  fill_async(device, 4, stream);
  copy_async(host, device, stream);
  REQUIRE_CUDA(cudaEventRecord(before_wait, stream));
  REQUIRE_CUDA(cudaStreamWaitEvent(stream, closed, 0));
  REQUIRE_CUDA(cudaEventSynchronize(before_wait));
  CHECK(host.all(4));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
}

// CUDA Runtime API, Event Management, cudaEventRecord: "Other APIs such as cudaStreamWaitEvent()
// use the most recently captured state at the time of the API call, and are not affected by later
// calls to cudaEventRecord()."
TEST_CASE("a wait is for the record that was the last at its call", "[rules][event]") {
  const TestStream recorder, waiter;
  const TestEvent event;
  Gate gate;

  SECTION("a later record does not hold it") {
    REQUIRE_CUDA(cudaEventRecord(event, recorder));
    REQUIRE_CUDA(cudaStreamWaitEvent(waiter, event, 0));
    gate.hold(recorder);
    REQUIRE_CUDA(cudaEventRecord(event, recorder));
    CHECK_CUDA(cudaStreamSynchronize(waiter));
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  }
  SECTION("an earlier record does not release it") {
    REQUIRE_CUDA(cudaEventRecord(event, recorder));
    REQUIRE_CUDA(cudaEventSynchronize(event));
    gate.hold(recorder);
    REQUIRE_CUDA(cudaEventRecord(event, recorder));
    REQUIRE_CUDA(cudaStreamWaitEvent(waiter, event, 0));
    CHECK(cudaStreamQuery(waiter) == cudaErrorNotReady);
  }
  SECTION("a wait before any record waits for nothing, whatever is recorded later") {
    REQUIRE_CUDA(cudaStreamWaitEvent(waiter, event, 0));
    gate.hold(recorder);
    REQUIRE_CUDA(cudaEventRecord(event, recorder));
    CHECK_CUDA(cudaStreamSynchronize(waiter));
  }
}

// CUDA Runtime API, Event Management, cudaEventRecord: "can be called multiple times on the same
// event and will overwrite the previously captured state."
TEST_CASE("the last record of an event counts, on whichever stream", "[rules][event]") {
  const TestStream held, free;
  const TestEvent event;
  Gate gate;
  gate.hold(held);
  REQUIRE_CUDA(cudaEventRecord(event, held));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  REQUIRE_CUDA(cudaEventRecord(event, free));
  CHECK_CUDA(cudaEventSynchronize(event));
  CHECK(cudaStreamQuery(held) == cudaErrorNotReady);
}

// The same sentence: one pair of events carries a hand-over of any length.
TEST_CASE("an event can be recorded and waited for again and again", "[rules][event]") {
  constexpr int rounds = 200;
  HostLog log;
  const TestStream ping, pong;
  const TestEvent from_ping, from_pong;
  std::vector<int> expected;
  for (int i = 0; i < rounds; ++i) {
    REQUIRE_CUDA(cudaStreamWaitEvent(ping, from_pong, 0));
    log.enqueue(ping, 2 * i);
    REQUIRE_CUDA(cudaEventRecord(from_ping, ping));
    REQUIRE_CUDA(cudaStreamWaitEvent(pong, from_ping, 0));
    log.enqueue(pong, 2 * i + 1);
    REQUIRE_CUDA(cudaEventRecord(from_pong, pong));
    expected.push_back(2 * i);
    expected.push_back(2 * i + 1);
  }
  REQUIRE_CUDA(cudaStreamSynchronize(pong));
  CHECK(log.entries() == expected);
}

// CUDA Runtime API, Stream Management, cudaStreamWaitEvent, as above: every stream that waits.
TEST_CASE("one record releases every stream that waits for it", "[rules][event]") {
  const TestStream held;
  const std::vector<TestStream> waiters(3);
  const TestEvent event;
  Gate gate;
  gate.hold(held);
  REQUIRE_CUDA(cudaEventRecord(event, held));
  for (const TestStream& waiter : waiters) {
    REQUIRE_CUDA(cudaStreamWaitEvent(waiter, event, 0));
    CHECK(cudaStreamQuery(waiter) == cudaErrorNotReady);
  }
  gate.open();
  for (const TestStream& waiter : waiters) CHECK_CUDA(cudaStreamSynchronize(waiter));
}

// CUDA Runtime API, Event Management, cudaEventDestroy: "An event may be destroyed before it is
// complete ... the call does not block on completion of the event, and any associated resources
// will automatically be released asynchronously at completion."
TEST_CASE("an event can be destroyed while streams wait for it", "[rules][event]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream writer, reader;
  Gate gate;
  gate.hold(writer);
  fill_async(device, 6, writer);
  {
    const TestEvent written;
    REQUIRE_CUDA(cudaEventRecord(written, writer));
    REQUIRE_CUDA(cudaStreamWaitEvent(reader, written, 0));
  }
  copy_async(host, device, reader);
  CHECK(cudaStreamQuery(reader) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(reader));
  CHECK(host.all(6));
}

// CUDA Runtime API, Event Management, cudaEventElapsedTime: "Computes the elapsed time between two
// events (in milliseconds with a resolution of around 0.5 microseconds)."
TEST_CASE("elapsed time runs from the first event to the second", "[rules][event]") {
  const TestStream stream;
  const TestEvent start(cudaEventDefault), end(cudaEventDefault);
  Gate gate;
  REQUIRE_CUDA(cudaEventRecord(start, stream));
  REQUIRE_CUDA(cudaEventSynchronize(start));
  gate.hold(stream);
  REQUIRE_CUDA(cudaEventRecord(end, stream));

  float milliseconds = -1;
  // "If cudaEventRecord() has been called on both events but one or both of them has not yet been
  // completed ..., cudaErrorNotReady is returned."
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
  const auto held_at_least = std::chrono::milliseconds(5);
  const auto closed = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - closed < held_at_least) std::this_thread::yield();
  gate.open();
  REQUIRE_CUDA(cudaEventSynchronize(end));
  REQUIRE_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
  CHECK(milliseconds >= 5);
}

// CUDA Runtime API, Event Management, cudaEventElapsedTime: "If cudaEventRecord() has not been
// called on either event, then cudaErrorInvalidResourceHandle is returned. ... If either event was
// created with the cudaEventDisableTiming flag, then this function will return
// cudaErrorInvalidResourceHandle."
TEST_CASE("elapsed time needs two recorded events with timing", "[rules][event]") {
  const TestStream stream;
  const TestEvent timed(cudaEventDefault), never_recorded(cudaEventDefault),
      untimed(cudaEventDisableTiming);
  REQUIRE_CUDA(cudaEventRecord(timed, stream));
  REQUIRE_CUDA(cudaEventRecord(untimed, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, timed, never_recorded) ==
        cudaErrorInvalidResourceHandle);
  CHECK(cudaEventElapsedTime(&milliseconds, never_recorded, timed) ==
        cudaErrorInvalidResourceHandle);
  CHECK(cudaEventElapsedTime(&milliseconds, timed, untimed) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventElapsedTime(&milliseconds, untimed, timed) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

// CUDA Runtime API, Event Management, cudaEventCreateWithFlags: "Valid flags include: ..."
TEST_CASE("unknown event flags are an error", "[rules][event]") {
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreateWithFlags(&event, 0x80) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}
