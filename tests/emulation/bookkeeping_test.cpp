// SPDX-License-Identifier: Apache-2.0

// penstock::emulation: counters, what is alive, the timeline.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

// ---- Counters

TEST_CASE("every call is counted by name", "[emulation]") {
  emulation::reset_counters();
  CHECK(emulation::calls("cudaMalloc") == 0);
  CHECK(emulation::calls().empty());
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMalloc(&memory, 64));
  REQUIRE_CUDA(cudaFree(memory));
  CHECK(cudaMalloc(nullptr, 64) == cudaErrorInvalidValue);  // a call that fails is a call
  cudaGetLastError();
  CHECK(emulation::calls("cudaMalloc") == 2);
  CHECK(emulation::calls("cudaFree") == 1);
  CHECK(emulation::calls("cudaMemcpy") == 0);

  std::vector<std::string> names;
  for (const emulation::CallCount& count : emulation::calls()) names.push_back(count.function);
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(std::find(names.begin(), names.end(), "cudaFree") != names.end());
  CHECK(std::find(names.begin(), names.end(), "cudaMemcpy") == names.end());
  emulation::reset_counters();
  CHECK(emulation::calls("cudaMalloc") == 0);
}

TEST_CASE("calls are classed by what they cost", "[emulation]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> pinned(64);
  std::vector<std::uint8_t> pageable(64);
  const TestStream stream;
  const TestEvent event;
  const auto classes_of = [](auto&& calls) {
    emulation::reset_counters();
    calls();
    return emulation::call_classes();
  };

  // The hot path of a pipeline: work, records, waits and questions.
  const emulation::CallClasses hot = classes_of([&] {
    copy_async(device, pinned, stream);
    fill_async(device, 1, stream);
    REQUIRE_CUDA(cudaEventRecord(event, stream));
    REQUIRE_CUDA(cudaStreamWaitEvent(stream, event, 0));
    (void)cudaEventQuery(event);
    (void)cudaStreamQuery(stream);
  });
  CHECK(hot.all == 6);
  CHECK(hot.launching == 4);
  CHECK(hot.allocating == 0);
  CHECK(hot.creating == 0);
  CHECK(hot.blocking == 0);

  const emulation::CallClasses allocating = classes_of([&] {
    void *memory = nullptr, *host = nullptr, *ordered = nullptr;
    REQUIRE_CUDA(cudaMalloc(&memory, 64));
    REQUIRE_CUDA(cudaMallocHost(&host, 64));
    REQUIRE_CUDA(cudaMallocAsync(&ordered, 64, stream));
    REQUIRE_CUDA(cudaFreeAsync(ordered, stream));
    REQUIRE_CUDA(cudaHostRegister(pageable.data(), 64, cudaHostRegisterDefault));
    REQUIRE_CUDA(cudaHostUnregister(pageable.data()));
    REQUIRE_CUDA(cudaFreeHost(host));
    REQUIRE_CUDA(cudaFree(memory));
  });
  CHECK(allocating.allocating == 8);
  CHECK(allocating.blocking >= 2);  // the frees
  CHECK(allocating.creating == 0);

  const emulation::CallClasses creating = classes_of([&] {
    const TestStream another;
    const TestEvent one_more;
  });
  CHECK(creating.creating == 4);
  CHECK(creating.allocating == 0);

  const emulation::CallClasses blocking = classes_of([&] {
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    REQUIRE_CUDA(cudaEventSynchronize(event));
    REQUIRE_CUDA(cudaDeviceSynchronize());
    REQUIRE_CUDA(cudaMemcpy(device.data(), pinned.data(), 64, cudaMemcpyHostToDevice));
    // Not blocking by its name, but by its memory.
    REQUIRE_CUDA(
        cudaMemcpyAsync(device.data(), pageable.data(), 64, cudaMemcpyHostToDevice, stream));
  });
  CHECK(blocking.blocking == 5);
  CHECK(blocking.launching == 2);
}

// ---- What is alive

TEST_CASE("everything that is alive is counted", "[emulation]") {
  using emulation::live;
  const TestStream stream;
  CHECK(live().streams == 1);
  {
    const TestEvent event;
    CHECK(live().events == 1);
  }
  CHECK(live().events == 0);
  {
    const DeviceMemory<std::uint8_t> first(100), second(200);
    CHECK(live().device_allocations == 2);
    CHECK(live().device_bytes == 300);
  }
  CHECK(live().device_allocations == 0);
  CHECK(live().device_bytes == 0);
  {
    const PinnedMemory<std::uint8_t> pinned(100);
    std::vector<std::uint8_t> registered(200);
    REQUIRE_CUDA(cudaHostRegister(registered.data(), 200, cudaHostRegisterDefault));
    CHECK(live().pinned_allocations == 2);
    CHECK(live().pinned_bytes == 300);
    REQUIRE_CUDA(cudaHostUnregister(registered.data()));
  }
  CHECK(live().pinned_allocations == 0);
  CHECK(live().pinned_bytes == 0);
  {
    const TestGraph graph = capture(stream, [] {});
    CHECK(live().graphs == 1);
    const TestGraphExec exec(graph);
    CHECK(live().graph_execs == 1);
  }
  CHECK(live().graphs == 0);
  CHECK(live().graph_execs == 0);
}

TEST_CASE("pools, their memory and user objects are counted while alive", "[emulation]") {
  using emulation::live;
  const TestStream stream;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t pool = nullptr;
  REQUIRE_CUDA(cudaMemPoolCreate(&pool, &properties));
  CHECK(live().memory_pools == 1);
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&memory, 100, pool, stream));
  CHECK(live().device_allocations == 1);
  CHECK(live().device_bytes == 100);
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(live().device_allocations == 0);
  REQUIRE_CUDA(cudaMemPoolDestroy(pool));
  CHECK(live().memory_pools == 0);

  cudaUserObject_t object = nullptr;
  REQUIRE_CUDA(cudaUserObjectCreate(
      &object, &memory, [](void*) {}, 1, cudaUserObjectNoDestructorSync));
  CHECK(live().user_objects == 1);
  REQUIRE_CUDA(cudaUserObjectRelease(object, 1));
  CHECK(eventually([] { return live().user_objects == 0; }));
}

TEST_CASE("what a launched graph needs is alive until it is done", "[emulation][graph][held]") {
  int nothing = 0;
  const TestStream stream;
  const DeviceMemory<std::uint8_t> device(64);
  Gate gate;
  {
    cudaUserObject_t object = nullptr;
    REQUIRE_CUDA(cudaUserObjectCreate(
        &object, &nothing, [](void*) {}, 1, cudaUserObjectNoDestructorSync));
    const TestGraph graph = capture(stream, [&] { fill_async(device, 1, stream); });
    REQUIRE_CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    const TestGraphExec exec(graph);
    gate.hold(stream);
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  }
  CHECK(emulation::live().graph_execs == 0);
  CHECK(emulation::live().user_objects == 1);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(emulation::live().user_objects == 0);
}

// ---- The timeline

TEST_CASE("the timeline records when it is asked to", "[emulation]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const auto fill = [&] {
    fill_async(device, 1, stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  };
  fill();
  CHECK(emulation::timeline().empty());
  emulation::record_timeline(true);
  fill();
  fill();
  emulation::record_timeline(false);
  fill();
  CHECK(emulation::timeline().size() == 2);
}

TEST_CASE("the timeline says what every operation was", "[emulation]") {
  using emulation::OperationKind;
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> pinned(64);
  std::vector<std::uint8_t> pageable(64);
  HostLog log;
  const TestStream stream;
  const TestEvent event;
  const auto start = std::chrono::steady_clock::now();
  emulation::record_timeline(true);
  copy_async(device, pinned, stream);
  fill_async(device, 1, stream);
  log.enqueue(stream, 1);
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  REQUIRE_CUDA(cudaMemcpyAsync(pageable.data(), device.data(), 32, cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const auto end = std::chrono::steady_clock::now();

  const std::vector<emulation::Operation> timeline = emulation::timeline();
  REQUIRE(timeline.size() == 5);
  const emulation::Operation &upload = timeline[0], &fill = timeline[1], &host = timeline[2],
                             &record = timeline[3], &download = timeline[4];
  CHECK(upload.kind == OperationKind::copy);
  CHECK(upload.name == std::string("cudaMemcpyAsync"));
  CHECK(upload.bytes == 64);
  CHECK(upload.copy == cudaMemcpyHostToDevice);
  CHECK_FALSE(upload.pageable);
  CHECK(fill.kind == OperationKind::fill);
  CHECK(fill.name == std::string("cudaMemsetAsync"));
  CHECK(fill.bytes == 64);
  CHECK(host.kind == OperationKind::host_function);
  CHECK(host.name == std::string("cudaLaunchHostFunc"));
  CHECK(record.kind == OperationKind::event_record);
  CHECK(download.kind == OperationKind::copy);
  CHECK(download.bytes == 32);
  CHECK(download.copy == cudaMemcpyDeviceToHost);
  CHECK(download.pageable);
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    CHECK(timeline[i].device == 0);
    CHECK(timeline[i].stream == upload.stream);
    CHECK(start <= timeline[i].submitted);
    CHECK(timeline[i].submitted <= timeline[i].begin);
    CHECK(timeline[i].begin <= timeline[i].end);
    CHECK(timeline[i].end <= end);
    if (i == 0) continue;
    CHECK(timeline[i - 1].end <= timeline[i].begin);
    CHECK(timeline[i - 1].correlation < timeline[i].correlation);
  }
}

TEST_CASE("the timeline knows the direction of every copy", "[emulation]") {
  const DeviceMemory<std::uint8_t> first(64), second(64);
  const PinnedMemory<std::uint8_t> pinned(64);
  const TestStream stream;
  const auto copy = [&](void* to, const void* from) {
    REQUIRE_CUDA(cudaMemcpyAsync(to, from, 64, cudaMemcpyDefault, stream));
  };
  emulation::record_timeline(true);
  copy(first.data(), pinned.data());
  copy(second.data(), first.data());
  copy(pinned.data(), second.data());
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  std::vector<cudaMemcpyKind> directions;
  for (const auto& operation : emulation::timeline()) directions.push_back(operation.copy);
  CHECK(directions ==
        std::vector{cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice, cudaMemcpyDeviceToHost});
}

TEST_CASE("the timeline records launches, waits and allocations", "[emulation]") {
  using emulation::OperationKind;
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream, other;
  const TestEvent event;
  const TestGraph graph = capture(stream, [&] { fill_async(device, 1, stream); });
  const TestGraphExec exec(graph);
  void* memory = nullptr;
  emulation::record_timeline(true);
  REQUIRE_CUDA(cudaMallocAsync(&memory, 64, other));
  REQUIRE_CUDA(cudaEventRecord(event, other));
  REQUIRE_CUDA(cudaStreamWaitEvent(stream, event, 0));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  std::vector<OperationKind> kinds;
  for (const auto& operation : emulation::timeline()) kinds.push_back(operation.kind);
  for (const OperationKind kind :
       {OperationKind::allocate, OperationKind::event_record, OperationKind::event_wait,
        OperationKind::graph, OperationKind::fill, OperationKind::free}) {
    CHECK(std::count(kinds.begin(), kinds.end(), kind) >= 1);
  }
  // A node of a graph lies between its graph's begin and end.
  const auto fill = std::find(kinds.begin(), kinds.end(), OperationKind::fill);
  const auto begin = std::find(kinds.begin(), kinds.end(), OperationKind::graph);
  CHECK(begin < fill);
  CHECK(std::find(fill, kinds.end(), OperationKind::graph) != kinds.end());
}

TEST_CASE("the timeline tells streams apart", "[emulation]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream first, second;
  emulation::record_timeline(true);
  for (const cudaStream_t stream :
       {static_cast<cudaStream_t>(first), static_cast<cudaStream_t>(second), cudaStreamLegacy}) {
    fill_async(device, 1, stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  const auto timeline = emulation::timeline();
  REQUIRE(timeline.size() == 3);
  CHECK(timeline[0].stream != 0);
  CHECK(timeline[0].stream < timeline[1].stream);  // in order of creation
  CHECK(timeline[2].stream == 0);                  // the legacy default stream
}
