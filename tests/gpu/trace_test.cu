// SPDX-License-Identifier: Apache-2.0

// penstock::trace on a GPU: what is in a timeline of work whose kernels, copies, calls, times and
// graphs are known.

#include <cuda.h>
#include <penstock/trace/session.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "trace_events.cuh"

namespace trace = penstock::trace;
using penstock::test::bytes_of;
using penstock::test::call_of;
using penstock::test::calls;
using penstock::test::capture;
using penstock::test::check_order;
using penstock::test::copies;
using penstock::test::copy_async;
using penstock::test::DeviceMemory;
using penstock::test::fill_async;
using penstock::test::Gate;
using penstock::test::host_time;
using penstock::test::kBytes;
using penstock::test::launch_add;
using penstock::test::launch_spin;
using penstock::test::of_kind;
using penstock::test::PinnedMemory;
using penstock::test::TestEvent;
using penstock::test::TestGraph;
using penstock::test::TestGraphExec;
using penstock::test::TestStream;
using penstock::test::thread_id;
using trace::Direction;
using trace::Event;
using trace::Kind;
using trace::Session;
using trace::SessionOptions;
using trace::Time;
using trace::Timeline;

// ---- What is there

TEST_CASE("kernels, copies and fills are in the trace with their bytes", "[gpu][trace]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes), other(kBytes);
  const PinnedMemory<unsigned char> host(kBytes);
  Session session;
  for (int i = 0; i < 3; ++i) copy_async(device, host, stream);
  for (int i = 0; i < 5; ++i) launch_add(device, stream);
  for (int i = 0; i < 2; ++i) copy_async(host, device, stream);
  REQUIRE_CUDA(
      cudaMemcpyAsync(other.data(), device.data(), kBytes, cudaMemcpyDeviceToDevice, stream));
  for (int i = 0; i < 4; ++i) fill_async(device, 1, stream);
  const Timeline timeline = session.stop();

  check_order(timeline);
  CHECK(timeline.dropped == 0);
  CHECK(timeline.origin.recorder.substr(0, 5) == "CUPTI");
  CHECK_FALSE(timeline.origin.emulated);
  CHECK_FALSE(timeline.origin.device.empty());
  const auto kernels = of_kind(timeline, Kind::kernel);
  REQUIRE(kernels.size() == 5);
  CHECK(timeline.name(kernels.front()).find("add_one") != std::string::npos);
  CHECK(copies(timeline, Direction::host_to_device).size() == 3);
  CHECK(bytes_of(copies(timeline, Direction::host_to_device)) == 3 * kBytes);
  CHECK(copies(timeline, Direction::device_to_host).size() == 2);
  CHECK(bytes_of(copies(timeline, Direction::device_to_host)) == 2 * kBytes);
  CHECK(copies(timeline, Direction::device_to_device).size() == 1);
  CHECK(of_kind(timeline, Kind::copy).size() == 6);
  CHECK(of_kind(timeline, Kind::fill).size() == 4);
  CHECK(bytes_of(of_kind(timeline, Kind::fill)) == 4 * kBytes);
  for (const Event& event : timeline.events) {
    if (!trace::on_device(event.kind)) continue;
    CHECK(event.flags == 0);
    CHECK(event.track == kernels.front().track);
    CHECK(timeline.track(event).device == 0);
  }
}

TEST_CASE("pageable and synchronous copies and fills are told", "[gpu][trace]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  const PinnedMemory<unsigned char> pinned(kBytes);
  std::vector<unsigned char> pageable(kBytes);
  Session session;
  SECTION("asynchronous, pageable") {
    REQUIRE_CUDA(
        cudaMemcpyAsync(device.data(), pageable.data(), kBytes, cudaMemcpyHostToDevice, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    const Timeline timeline = session.stop();
    CHECK(bytes_of(of_kind(timeline, Kind::copy)) == kBytes);
    for (const Event& copy : of_kind(timeline, Kind::copy)) CHECK(copy.flags == trace::pageable);
  }
  SECTION("synchronous, pageable") {
    REQUIRE_CUDA(cudaMemcpy(pageable.data(), device.data(), kBytes, cudaMemcpyDeviceToHost));
    const Timeline timeline = session.stop();
    CHECK(bytes_of(copies(timeline, Direction::device_to_host)) == kBytes);
    for (const Event& copy : of_kind(timeline, Kind::copy))
      CHECK(copy.flags == (trace::pageable | trace::synchronous));
  }
  SECTION("synchronous, pinned") {
    REQUIRE_CUDA(cudaMemcpy(device.data(), pinned.data(), kBytes, cudaMemcpyHostToDevice));
    const Timeline timeline = session.stop();
    REQUIRE(of_kind(timeline, Kind::copy).size() == 1);
    CHECK(of_kind(timeline, Kind::copy).front().flags == trace::synchronous);
  }
  SECTION("a synchronous fill") {
    REQUIRE_CUDA(cudaMemset(device.data(), 1, kBytes));
    const Timeline timeline = session.stop();
    REQUIRE(of_kind(timeline, Kind::fill).size() == 1);
    CHECK(of_kind(timeline, Kind::fill).front().flags == trace::synchronous);
  }
}

TEST_CASE("each kernel, copy and fill has the call that submitted it", "[gpu][trace]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  const PinnedMemory<unsigned char> host(kBytes);
  Session session;
  for (int i = 0; i < 10; ++i) {
    copy_async(device, host, stream);
    launch_add(device, stream);
    fill_async(device, 0, stream);
  }
  const Timeline timeline = session.stop();
  std::map<std::string, int> names;
  for (const Event& event : timeline.events) {
    if (!trace::on_device(event.kind)) continue;
    const auto call = call_of(timeline, event);
    REQUIRE(call);
    ++names[timeline.name(*call)];
    CHECK(timeline.track(*call).id == thread_id());
    CHECK(call->value == cudaSuccess);
    CHECK(call->flags == 0);
  }
  CHECK(names["cudaMemcpyAsync"] == 10);
  CHECK(names["cudaMemsetAsync"] == 10);
  CHECK(names.size() == 3);  // The third is the launch, whose name depends on the compiler.
  // Once, although the runtime calls the driver.
  CHECK(of_kind(timeline, Kind::call).size() == 30);
}

TEST_CASE("work that the driver's API submits has its call too", "[gpu][trace]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  REQUIRE_CUDA(cudaGetDriverEntryPointByVersion("cuMemsetD8Async", &entry, 12000, cudaEnableDefault,
                                                &found));
  REQUIRE(entry != nullptr);
  const auto fill =
      reinterpret_cast<CUresult (*)(CUdeviceptr, unsigned char, std::size_t, CUstream)>(entry);
  Session session;
  REQUIRE(fill(reinterpret_cast<CUdeviceptr>(device.data()), 3, kBytes, stream) == CUDA_SUCCESS);
  const Timeline timeline = session.stop();
  REQUIRE(of_kind(timeline, Kind::fill).size() == 1);
  const auto call = call_of(timeline, of_kind(timeline, Kind::fill).front());
  REQUIRE(call);
  CHECK(timeline.name(*call) == "cuMemsetD8Async");
}

TEST_CASE("a call that fails is told, an answer that is no failure is not", "[gpu][trace]") {
  TestStream stream;
  TestEvent event;
  Session session;
  void* too_much = nullptr;
  CHECK(cudaMalloc(&too_much, std::size_t{1} << 60) == cudaErrorMemoryAllocation);
  static_cast<void>(cudaGetLastError());
  launch_spin(2'000'000, stream);
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const Timeline timeline = session.stop();
  REQUIRE(calls(timeline, "cudaMalloc").size() == 1);
  CHECK(calls(timeline, "cudaMalloc").front().has(trace::failed));
  CHECK(calls(timeline, "cudaMalloc").front().value == cudaErrorMemoryAllocation);
  REQUIRE(calls(timeline, "cudaEventQuery").size() == 1);
  CHECK_FALSE(calls(timeline, "cudaEventQuery").front().has(trace::failed));
  CHECK(calls(timeline, "cudaStreamSynchronize").size() == 1);
}

// ---- Times

TEST_CASE("the host's and the device's times are of one clock", "[gpu][trace]") {
  constexpr Time kTolerance = 50'000;  // CUPTI interpolates between readings of both clocks.
  TestStream stream;
  launch_spin(1000, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  std::vector<std::pair<Time, Time>> around;
  Session session;
  for (int i = 0; i < 50; ++i) {
    const Time begin = host_time();
    launch_spin(200'000, stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    around.emplace_back(begin, host_time());
  }
  const Timeline timeline = session.stop();
  const auto kernels = of_kind(timeline, Kind::kernel);
  REQUIRE(kernels.size() == around.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    CHECK(kernels[i].begin > around[i].first - kTolerance);
    CHECK(kernels[i].end < around[i].second + kTolerance);
    const auto call = call_of(timeline, kernels[i]);
    REQUIRE(call);
    CHECK(call->begin >= around[i].first);
    CHECK(call->end <= around[i].second);
    CHECK(kernels[i].begin > call->begin - kTolerance);
  }
}

// Between two events there is more than the kernel: the device comes to it, and leaves it. None of
// the host's time is in between: all three are queued before the stream goes on. The first launch
// may load the kernel's code.
TEST_CASE("a kernel takes in the trace what events measure", "[gpu][trace]") {
  TestStream stream;
  launch_spin(1, stream);
  TestEvent begin(cudaEventDefault), end(cudaEventDefault);
  std::vector<float> measured;
  Session session;
  for (const unsigned long long nanoseconds : {2'000'000ull, 5'000'000ull, 20'000'000ull}) {
    Gate gate;
    gate.hold(stream);
    REQUIRE_CUDA(cudaEventRecord(begin, stream));
    launch_spin(nanoseconds, stream);
    REQUIRE_CUDA(cudaEventRecord(end, stream));
    gate.open();
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    REQUIRE_CUDA(cudaEventElapsedTime(&measured.emplace_back(), begin, end));
  }
  const Timeline timeline = session.stop();
  const auto kernels = of_kind(timeline, Kind::kernel);
  REQUIRE(kernels.size() == measured.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const double traced = static_cast<double>(kernels[i].duration()) / 1e6;  // ms
    CHECK(traced <= static_cast<double>(measured[i]) + 0.001);
    CHECK(static_cast<double>(measured[i]) - traced < 0.02 * traced + 0.2);
  }
}

// ---- Graphs

namespace {

/// Three kernels, a copy and a fill; the synchronous calls' flags are not theirs.
TestGraph five_nodes(const DeviceMemory<unsigned char>& device,
                     const PinnedMemory<unsigned char>& host, cudaStream_t stream) {
  return capture(stream, [&] {
    copy_async(device, host, stream);
    for (int i = 0; i < 3; ++i) launch_add(device, stream);
    fill_async(device, 0, stream);
  });
}

void check_four_replays(const Timeline& timeline) {
  CHECK(of_kind(timeline, Kind::kernel).size() == 12);
  CHECK(of_kind(timeline, Kind::copy).size() == 4);
  CHECK(of_kind(timeline, Kind::fill).size() == 4);
  CHECK(calls(timeline, "cudaGraphLaunch").size() == 4);
  for (const Event& event : timeline.events) {
    if (!trace::on_device(event.kind)) continue;
    CHECK_FALSE(event.has(trace::synchronous));
    const auto call = call_of(timeline, event);
    REQUIRE(call);
    CHECK(timeline.name(*call) == "cudaGraphLaunch");
  }
}

}  // namespace

TEST_CASE("a graph's nodes are in the trace, of each launch", "[gpu][trace][graph]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  const PinnedMemory<unsigned char> host(kBytes);
  Session session;
  const TestGraph graph = five_nodes(device, host, stream);
  const TestGraphExec exec(graph);
  for (int i = 0; i < 4; ++i) REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  check_four_replays(session.stop());
}

TEST_CASE("a graph that was there before the session is traced as well", "[gpu][trace][graph]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  const PinnedMemory<unsigned char> host(kBytes);
  const TestGraph graph = five_nodes(device, host, stream);
  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  Session session;
  for (int i = 0; i < 4; ++i) REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  check_four_replays(session.stop());
}

TEST_CASE("a graph can be traced as a whole", "[gpu][trace][graph]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  const PinnedMemory<unsigned char> host(kBytes);
  SessionOptions options;
  options.graph_nodes = false;
  Session session(options);
  const TestGraph graph = five_nodes(device, host, stream);
  const TestGraphExec exec(graph);
  for (int i = 0; i < 4; ++i) REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  const Timeline timeline = session.stop();
  CHECK(of_kind(timeline, Kind::graph).size() == 4);
  CHECK(of_kind(timeline, Kind::kernel).empty());
  for (const Event& launch : of_kind(timeline, Kind::graph)) CHECK(call_of(timeline, launch));
}
