// SPDX-License-Identifier: Apache-2.0

// What an arena does when CUDA fails.

#include <penstock/cuda.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/emulation.hpp>
#include <penstock/error.hpp>

#include <cstddef>
#include <thread>

#include "support/catch.hpp"
#include "support/eventually.hpp"

namespace emulation = penstock::emulation;
using penstock::CudaError;
using penstock::DeviceArena;
using penstock::DeviceSlot;

TEST_CASE("a slot whose readers nobody can know is lost, and others see it",
          "[device_arena][emulated]") {
  const penstock::Stream stream;
  DeviceArena arena(2, 64);
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
}
