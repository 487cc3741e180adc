// SPDX-License-Identifier: Apache-2.0

// What only the emulated runtime can tell of a readback.

#include <penstock/cuda.hpp>
#include <penstock/device_arena.hpp>
#include <penstock/emulation.hpp>
#include <penstock/error.hpp>
#include <penstock/readback.hpp>

#include <cstdint>
#include <span>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;

TEST_CASE("readback: no allocation, no creation, no call that blocks, once constructed",
          "[readback][emulated]") {
  const TestStream stream;
  const DeviceMemory<int> value(1);
  int calls = 0;
  Readback<int> readback(3);
  Readback<int[]> arrays(3, 1);
  emulation::reset_counters();
  for (std::size_t i = 0; i < 100; ++i) {
    readback.push(value.data(), stream, [&](int) { ++calls; });
    arrays.push(value.data(), i % 2, stream, [](std::span<const int>) {});
  }
  readback.drain();
  arrays.drain();
  CHECK(calls == 100);
  const emulation::CallClasses classes = emulation::call_classes();
  CHECK(classes.allocating == 0);
  CHECK(classes.creating == 0);
  CHECK(classes.blocking == 0);
}

TEST_CASE("readback: every call that fails is told once, and values after it come",
          "[readback][emulated]") {
  const auto call = GENERATE(table<const char*, std::uint64_t>({{"cudaStreamIsCapturing", 1},
                                                                {"cudaMemcpyAsync", 1},
                                                                {"cudaMemcpyAsync", 2},
                                                                {"cudaEventRecord", 1},
                                                                {"cudaEventRecord", 2},
                                                                {"cudaStreamWaitEvent", 1}}));
  const TestStream stream, other;
  const DeviceMemory<int> value(1);
  int calls = 0;
  Readback<int> readback(1);
  const auto push = [&](cudaStream_t on) {
    readback.push(value.data(), on, [&](int) { ++calls; });
  };
  for (int i = 0; i < 5; ++i) push(stream);
  readback.drain();
  emulation::fail_call(std::get<0>(call), cudaErrorMemoryAllocation, std::get<1>(call));
  CHECK_THAT(thrown<CudaError>([&] { push(stream); }), Mentions(std::get<0>(call)));
  for (int i = 0; i < 5; ++i) push(other);  // What was queued meets nothing of this.
  readback.drain();
  CHECK(calls == 10);
}

TEST_CASE("readback: what failed half-way is over before its memory is used again",
          "[readback][emulated]") {
  const TestStream stream;
  const DeviceMemory<int> value(1);
  Readback<int> readback(1);
  const auto push = [&] { readback.push(value.data(), stream, [](int) {}); };
  SECTION("a push waits for what it has queued on both streams") {
    const std::uint64_t before = emulation::calls("cudaStreamSynchronize");
    emulation::fail_call("cudaEventRecord", cudaErrorUnknown, 2);
    CHECK_THROWS_AS(push(), CudaError);
    CHECK(emulation::calls("cudaStreamSynchronize") == before + 2);
  }
  SECTION("a copy that cannot be asked about is waited for") {
    const std::uint64_t before = emulation::calls("cudaEventSynchronize");
    emulation::fail_call("cudaEventQuery", cudaErrorUnknown);
    push();
    CHECK_THROWS_AS(readback.drain(), CudaError);
    CHECK(emulation::calls("cudaEventSynchronize") == before + 1);
  }
}

TEST_CASE("readback: a device that fails is told by drain; nobody is called back, nothing hangs",
          "[readback][emulated]") {
  int calls = 0, errors = 0;
  const auto tell = [&](auto&& call) {
    try {
      call();
    } catch (const CudaError& error) {
      CHECK(error.code() == cudaErrorLaunchFailure);
      ++errors;
    }
  };
  {
    const Stream stream;
    const DeviceSlot value = DeviceArena(1, sizeof(int)).acquire(stream.get());
    const auto* number = reinterpret_cast<const int*>(value.data());
    Readback<int> readback(4);
    emulation::fail_operation(emulation::OperationKind::copy, cudaErrorLaunchFailure);
    for (int i = 0; i < 3; ++i)
      tell([&] { readback.push(number, stream.get(), [&](int) { ++calls; }); });
    tell([&] { readback.drain(); });
  }
  CHECK(calls == 0);
  CHECK(errors > 0);
  emulation::reset(emulation::options());
}

}  // namespace
}  // namespace penstock
