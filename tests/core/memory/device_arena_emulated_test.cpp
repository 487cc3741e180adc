// SPDX-License-Identifier: Apache-2.0

// What an arena does when CUDA fails.

#include <penstock/cuda.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/emulation.hpp>
#include <penstock/error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <thread>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/thrown.hpp"

namespace emulation = penstock::emulation;
using namespace std::chrono_literals;
using penstock::CudaError;
using penstock::DeviceArena;
using penstock::DeviceSlot;
using penstock::PoolExhausted;
using penstock::test::Mentions;
using penstock::test::thrown;

TEST_CASE("a slot whose readers nobody can know is lost, and others see it",
          "[device_arena][emulated]") {
  const penstock::Stream stream;
  DeviceArena arena(2, 64, {}, 0ms);
  bool seen = false;
  std::thread asks(
      [&] { seen = penstock::test::eventually([&] { return arena.lost_slots() == 1; }); });
  DeviceSlot slot = arena.acquire(stream.get());
  emulation::fail_call("cudaEventRecord", cudaErrorInvalidResourceHandle);
  emulation::fail_call("cudaStreamSynchronize", cudaErrorInvalidResourceHandle);
  CHECK_THROWS_AS(slot.release_after(stream.get()), CudaError);
  asks.join();
  CHECK(seen);
  CHECK(arena.free_slots() == 1);
  slot = arena.acquire(stream.get());
  CHECK_THAT(thrown<PoolExhausted>([&] { arena.acquire(stream.get()); }),
             Mentions("1 of 2 are held, 1 are lost: release"));
}

TEST_CASE("a slot whose readers the writer cannot wait for stays free",
          "[device_arena][emulated]") {
  const penstock::Stream stream, writer;
  DeviceArena arena(1, 64);
  arena.acquire(stream.get()).release_after(stream.get());
  emulation::fail_call("cudaStreamWaitEvent", cudaErrorUnknown);
  CHECK_THROWS_AS(arena.acquire(writer.get()), CudaError);
  CHECK(arena.free_slots() == 1);
  CHECK(arena.acquire(writer.get()));
}

#if CUDART_VERSION >= 12080
// The importer of Nsight Systems 2023.4 stops at a call that is newer than CUDA 12.4.
TEST_CASE("a stream is asked for its device where there are several", "[device_arena][emulated]") {
  const int devices = GENERATE(1, 2);
  CAPTURE(devices);
  emulation::reset({.machine = {.devices = devices}});
  const penstock::Stream writer, reader;
  DeviceArena arena(1, 64);
  arena.acquire(writer.get()).release_after(reader.get());
  arena.acquire(writer.get()).release_after(reader.get());
  CHECK((emulation::calls("cudaStreamGetDevice") == 0) == (devices == 1));
  DeviceSlot slot = arena.acquire(writer.get());
  emulation::fail_call("cudaGetDeviceCount", cudaErrorInitializationError);
  CHECK_THROWS_AS(slot.release_after(reader.get()), CudaError);
}
#endif

// Nothing says that cudaFree waits for the device.
TEST_CASE("an arena that goes waits for the readers of its slots", "[device_arena][emulated]") {
  const penstock::Stream stream;
  std::uint64_t events = 0;
  {
    DeviceArena arena(3, 64);
    DeviceSlot first = arena.acquire(stream.get()), second = arena.acquire(stream.get());
    first.release_after(stream.get());
    second.release_after(stream.get());
    events = emulation::calls("cudaEventSynchronize");
  }
  CHECK(emulation::calls("cudaEventSynchronize") == events + 2);
}

TEST_CASE("whoever asks whether there will be a slot asks while others park them",
          "[device_arena][emulated]") {
  const penstock::Stream stream;
  DeviceArena arena(2, 64);
  std::atomic<bool> over{false};  // It orders nothing: ThreadSanitizer sees what the arena orders.
  std::thread asker([&] {
    while (!over.load(std::memory_order_relaxed)) arena.require_slot();
  });
  for (int i = 0; i < 50; ++i) {
    DeviceSlot slot = arena.acquire(stream.get());
    slot.release_after(stream.get());
    DeviceSlot captured = arena.acquire(stream.get());
    cudaGraph_t graph = nullptr;
    REQUIRE_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    captured = DeviceSlot();  // Its writer is being captured.
    REQUIRE_CUDA(cudaStreamEndCapture(stream.get(), &graph));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
  }
  over = true;
  asker.join();
  arena.require_slot();
  CHECK(arena.free_slots() == 2);
}

TEST_CASE("a wait while a slot is parked has its time-out, too", "[device_arena][emulated]") {
  const penstock::Stream stream, other;
  DeviceArena arena(2, 64, {}, 20ms);
  DeviceSlot captured = arena.acquire(stream.get());
  const DeviceSlot held = arena.acquire(other.get());
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  captured = DeviceSlot();  // Its writer is being captured.
  CHECK_THAT(thrown<PoolExhausted>([&] { arena.acquire(other.get()); }),
             Mentions("1 of 2 are held, 1 wait for the end of a capture: release"));
  REQUIRE_CUDA(cudaStreamEndCapture(stream.get(), &graph));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
  CHECK(arena.acquire(other.get()));
}

TEST_CASE("threads that ask for a parked slot at the same time get it, one after the other",
          "[device_arena][emulated]") {
  for (int round = 0; round < 100; ++round) {
    const penstock::Stream stream;
    DeviceArena arena(1, 64);
    DeviceSlot captured = arena.acquire(stream.get());
    cudaGraph_t graph = nullptr;
    REQUIRE_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    captured = DeviceSlot();  // Its writer is being captured.
    REQUIRE_CUDA(cudaStreamEndCapture(stream.get(), &graph));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
    std::atomic<int> here{0}, refused{0};
    const auto ask = [&] {
      const penstock::Stream own;
      for (++here; here < 2;) continue;
      try {
        arena.acquire(own.get());
      } catch (const std::logic_error&) {  // All slots are parked: so it seemed.
        ++refused;
      }
    };
    std::thread other(ask);
    ask();
    other.join();
    CHECK(refused == 0);
  }
}
