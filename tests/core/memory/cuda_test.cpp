// SPDX-License-Identifier: Apache-2.0

#include <chrono>
#include <penstock/cuda.hpp>
#include <penstock/emulation.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;

template <class Handle>
inline constexpr bool is_owning_handle =
    std::is_nothrow_move_constructible_v<Handle>&& std::is_nothrow_move_assignable_v<Handle> &&
    !std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle>;
static_assert(is_owning_handle<Stream> && is_owning_handle<Event>);
static_assert(!std::is_copy_constructible_v<DeviceGuard> &&
              !std::is_move_constructible_v<DeviceGuard>);
static_assert(!std::is_convertible_v<int, DeviceGuard> && !std::is_convertible_v<int, Stream>);

// ---- Stream
// --------------------------------------------------------------------------------------

TEST_CASE("Stream owns a stream", "[cuda]") {
  {
    const Stream stream;
    CHECK(stream.get() != nullptr);
    CHECK(emulation::live().streams == 1);
    CHECK_NOTHROW(stream.synchronize());
  }
  CHECK(emulation::live().streams == 0);
}

TEST_CASE("Stream does not wait for the legacy default stream", "[cuda]") {
  const Stream stream;
  unsigned flags = 0;
  REQUIRE_CUDA(cudaStreamGetFlags(stream.get(), &flags));
  CHECK(flags == cudaStreamNonBlocking);

  Gate gate;
  gate.hold(nullptr);
  const Event event;
  event.make_wait(stream.get());  // any work
  CHECK_NOTHROW(stream.synchronize());
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(nullptr));
}

TEST_CASE("Stream has the asked priority", "[cuda]") {
  int least = 0, greatest = 0, priority = 0;
  REQUIRE_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const Stream urgent(greatest);
  REQUIRE_CUDA(cudaStreamGetPriority(urgent.get(), &priority));
  CHECK(priority == greatest);
  const Stream beyond(greatest - 100);
  REQUIRE_CUDA(cudaStreamGetPriority(beyond.get(), &priority));
  CHECK(priority == greatest);
}

TEST_CASE("Stream: moving moves the handle, and the moved-from one is empty", "[cuda]") {
  Stream first;
  const cudaStream_t handle = first.get();
  Stream second(std::move(first));
  CHECK(first.get() == nullptr);
  CHECK(second.get() == handle);

  Stream third;
  third = std::move(second);  // destroys what it had
  CHECK(second.get() == nullptr);
  CHECK(third.get() == handle);
  CHECK(emulation::live().streams == 1);

  Stream& same = third;
  third = std::move(same);
  CHECK(third.get() == handle);
  first = Stream();  // an empty one can be filled again
  CHECK(first.get() != nullptr);
}

TEST_CASE("Stream::synchronize waits for the work, the destructor does not", "[cuda]") {
  Gate gate;
  Event event;
  {
    const Stream stream;
    gate.hold(stream.get());
    event.record(stream.get());
  }
  CHECK_FALSE(event.done());
  gate.open();
  event.synchronize();
  CHECK(event.done());
}

TEST_CASE("Stream that cannot be made or waited for is a CudaError", "[cuda]") {
  emulation::fail_call("cudaStreamCreateWithPriority", cudaErrorMemoryAllocation);
  CHECK_THAT(thrown<CudaError>([] { Stream(-1); }), Mentions("cudaStreamCreateWithPriority(-1)"));
  const Stream stream;
  emulation::fail_call("cudaStreamSynchronize", cudaErrorUnknown);
  CHECK_THROWS_AS(stream.synchronize(), CudaError);
}

// ---- Event
// ---------------------------------------------------------------------------------------

TEST_CASE("Event: done before it is recorded, not before its stream has come to it", "[cuda]") {
  const Stream stream;
  Event event;
  CHECK(event.done());
  Gate gate;
  gate.hold(stream.get());
  event.record(stream.get());
  CHECK_FALSE(event.done());
  CHECK(cudaGetLastError() == cudaSuccess);  // "not yet" is no error
  gate.open();
  event.synchronize();
  CHECK(event.done());
}

TEST_CASE("Event::make_wait holds back what is queued after it, and nothing else", "[cuda]") {
  const Stream producer, consumer;
  Event produced, before, after;
  Gate gate;
  gate.hold(producer.get());
  produced.record(producer.get());
  before.record(consumer.get());
  produced.make_wait(consumer.get());
  after.record(consumer.get());
  before.synchronize();
  CHECK_FALSE(after.done());
  gate.open();
  after.synchronize();
  CHECK(produced.done());
}

TEST_CASE("asking an event leaves the thread's last error as it was", "[cuda]") {
  const TestStream stream;
  Event event;
  Gate gate;
  gate.hold(stream);
  event.record(stream);
  CHECK_FALSE(event.done());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  static_cast<void>(cudaSetDevice(-1));  // The user's own mistake, to be found by the user.
  CHECK(event.done());
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("Event measures time only when asked to", "[cuda]") {
  const Stream stream;
  Event begin(cudaEventDefault), end(cudaEventDefault), untimed;
  Gate gate;
  begin.record(stream.get());
  untimed.record(stream.get());
  gate.hold(stream.get());
  end.record(stream.get());
  gate.wait_until_reached();
  // A sleep is never shorter than it says, so there are at least 5 ms between the events.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  gate.open();
  stream.synchronize();
  float milliseconds = -1;
  REQUIRE_CUDA(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  CHECK(milliseconds >= 5);
  CHECK(cudaEventElapsedTime(&milliseconds, begin.get(), untimed.get()) != cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("Event: moving moves the handle, and the moved-from one is empty", "[cuda]") {
  Event first;
  const cudaEvent_t handle = first.get();
  Event second(std::move(first));
  CHECK(first.get() == nullptr);
  CHECK(second.get() == handle);
  Event third;
  third = std::move(second);
  CHECK(second.get() == nullptr);
  CHECK(third.get() == handle);
  CHECK(emulation::live().events == 1);
  Event& same = third;
  third = std::move(same);
  CHECK(third.get() == handle);
}

TEST_CASE("Event: each call that fails is one CudaError", "[cuda]") {
  const Stream stream;
  Event event;
  const auto failing = [](const char* call, auto&& action) {
    emulation::fail_call(call, cudaErrorUnknown);
    CHECK_THAT(thrown<CudaError>(action), Mentions(call));
    CHECK_FALSE(emulation::clear_failures());
    CHECK(cudaGetLastError() == cudaSuccess);
  };
  failing("cudaEventCreateWithFlags", [] { Event(); });
  failing("cudaEventRecord", [&] { event.record(stream.get()); });
  failing("cudaStreamWaitEvent", [&] { event.make_wait(stream.get()); });
  failing("cudaEventQuery", [&] { static_cast<void>(event.done()); });
  failing("cudaEventSynchronize", [&] { event.synchronize(); });
  CHECK(emulation::live().events == 1);
}

// ---- Guards
// --------------------------------------------------------------------------------------

int device_count() {
  int count = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&count));
  return count;
}

TEST_CASE("DeviceGuard makes a device current for its scope", "[cuda]") {
  if (device_count() < 2) emulation::reset({.machine = {.devices = 2}});
  CHECK(current_device() == 0);
  {
    const DeviceGuard outer(1);
    CHECK(current_device() == 1);
    {
      const DeviceGuard inner(0);
      CHECK(current_device() == 0);
    }
    CHECK(current_device() == 1);
  }
  CHECK(current_device() == 0);
  CHECK_THROWS_AS(
      [] {
        const DeviceGuard guard(1);
        throw std::runtime_error("leaves the scope");
      }(),
      std::runtime_error);
  CHECK(current_device() == 0);
}

TEST_CASE("DeviceGuard of the current device sets nothing", "[cuda]") {
  emulation::reset_counters();
  { const DeviceGuard guard(0); }
  CHECK(emulation::calls("cudaSetDevice") == 0);
}

TEST_CASE("DeviceGuard rejects a device that is not there, and changes nothing", "[cuda]") {
  const int count = device_count();
  CHECK_THAT(thrown<CudaError>([&] { const DeviceGuard guard(count); }),
             Mentions("cudaSetDevice(" + std::to_string(count) + ")"));
  CHECK(current_device() == 0);
}

/// The capture mode of this thread.
cudaStreamCaptureMode capture_mode() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
  REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  cudaStreamCaptureMode put_back = mode;
  REQUIRE_CUDA(cudaThreadExchangeStreamCaptureMode(&put_back));
  return mode;
}

TEST_CASE("CaptureModeGuard relaxes the mode for its scope", "[cuda]") {
  CHECK(capture_mode() == cudaStreamCaptureModeGlobal);
  {
    const CaptureModeGuard outer;
    CHECK(capture_mode() == cudaStreamCaptureModeRelaxed);
    { const CaptureModeGuard inner; }
    CHECK(capture_mode() == cudaStreamCaptureModeRelaxed);
  }
  CHECK(capture_mode() == cudaStreamCaptureModeGlobal);
}

TEST_CASE("CaptureModeGuard lets a thread allocate beside another thread's capture", "[cuda]") {
  const TestStream stream;
  cudaError_t unguarded = cudaSuccess, guarded = cudaErrorUnknown;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  std::thread([&] {
    const CaptureModeGuard guard;
    guarded = cudaMalloc(&memory, 64);
  }).join();
  std::thread([&] {
    void* none = nullptr;
    unguarded = cudaMalloc(&none, 64);
  }).join();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  CHECK(guarded == cudaSuccess);
  CHECK(unguarded == cudaErrorStreamCaptureUnsupported);
  REQUIRE_CUDA(cudaFree(memory));
}

TEST_CASE("Event::done may be asked beside another thread's capture", "[cuda]") {
  const TestStream stream;
  const Event event;
  bool done = false;
  const TestGraph graph = capture(
      stream, [&] { std::thread([&] { done = event.done(); }).join(); },
      cudaStreamCaptureModeGlobal);
  CHECK(done);
}

}  // namespace
}  // namespace penstock
