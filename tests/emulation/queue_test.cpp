// SPDX-License-Identifier: Apache-2.0

// The queue of a stream is bounded: a call that finds it full blocks, as on a GPU.

#include <atomic>
#include <chrono>
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
#include "support/standard_error.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

constexpr int kQueue = 1024;  // docs/emulation.md

void report_after(std::chrono::milliseconds time) {
  emulation::Options options = emulation::options();
  options.report_after = time;
  emulation::reset(options);
}

}  // namespace

TEST_CASE("a call blocks while its stream holds a full queue", "[emulation][queue][stream][held]") {
  report_after(std::chrono::milliseconds(20));
  constexpr int more = 100;
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const std::uint64_t before = emulation::calls("cudaMemsetAsync");
  std::atomic<int> queued{0};
  std::atomic<bool> all_succeeded{true};
  const CapturedStandardError errors;
  Gate gate;
  gate.hold(stream);  // the first of the queue
  std::thread thread([&] {
    for (int i = 0; i < kQueue + more; ++i) {
      if (cudaMemsetAsync(device.data(), 1, 64, stream) != cudaSuccess) all_succeeded = false;
      ++queued;
    }
  });
  const auto called = [&] { return emulation::calls("cudaMemsetAsync") - before; };
  // Either the runtime reports that the call is blocked, or it is not, and another one follows.
  const auto is_blocked = [&] { return errors.contains("for room in the queue"); };
  CHECK(eventually([&] { return is_blocked() || called() > kQueue; }));
  CHECK(queued == kQueue - 1);
  CHECK(called() == kQueue);
  gate.open();
  thread.join();
  CHECK(queued == kQueue + more);
  CHECK(all_succeeded);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == std::vector<std::uint8_t>(64, 1));
}

TEST_CASE("a full queue does not hold another stream", "[emulation][queue]") {
  const DeviceMemory<std::uint8_t> device(64), other(64);
  const TestStream full, free;
  Gate gate;
  gate.hold(full);
  for (int i = 1; i < kQueue; ++i) fill_async(device, 1, full);
  fill_async(other, 2, free);
  REQUIRE_CUDA(cudaStreamSynchronize(free));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(full));
}

TEST_CASE("many more operations than a queue holds run in their order",
          "[emulation][queue][stream][held]") {
  constexpr int count = 5 * kQueue;
  HostLog log;
  const TestStream stream;
  for (int i = 0; i < count; ++i) log.enqueue(stream, i);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const std::vector<int> entries = log.entries();
  REQUIRE(entries.size() == count);
  int wrong = 0;
  for (int i = 0; i < count; ++i)
    if (entries[static_cast<std::size_t>(i)] != i) ++wrong;
  CHECK(wrong == 0);
}

TEST_CASE("the launch of a graph takes one place of the queue", "[emulation][queue][graph][held]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] {
    for (int i = 0; i < 2 * kQueue; ++i) fill_async(device, 1, stream);
  });
  const TestGraphExec exec(graph);
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("a call that waits for room for long is reported", "[emulation][queue]") {
  report_after(std::chrono::milliseconds(50));
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const CapturedStandardError errors;
  Gate gate;
  gate.hold(stream);
  std::thread opener([&] {
    (void)eventually([&] { return errors.contains("room in the queue"); });
    gate.open();
  });
  for (int i = 0; i < kQueue; ++i) fill_async(device, 1, stream);
  opener.join();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(errors.contains("cudaMemsetAsync has waited for 50 ms for room in the queue of stream 1"));
  CHECK(
      errors.contains("of device 0, which holds 1024 operations. The first of them, by "
                      "cudaLaunchHostFunc, does not end"));
}
