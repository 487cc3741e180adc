// SPDX-License-Identifier: Apache-2.0

// Graphs that are made node by node, where CUDA leaves open what is shown here, or a GPU would not
// survive it: handles of nothing, failing calls, what the timeline has, how many streams a graph
// takes.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <penstock/emulation.hpp>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/graph_nodes.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

using Bytes = std::vector<std::uint8_t>;

std::size_t threads() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                    std::filesystem::directory_iterator()));
}

}  // namespace

// ---- Handles

// CUDA leaves a use of a destroyed node undefined.
TEST_CASE("a handle of a node that is gone names nothing", "[emulation][graph][stricter]") {
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t kept = add_empty(graph, {});
  cudaGraphNode_t gone = add_empty(graph, {});
  SECTION("destroyed") {
    REQUIRE_CUDA(cudaGraphDestroyNode(gone));
  }
  SECTION("with its graph") {
    const TestGraph other = empty_graph();
    gone = add_empty(other, {});
  }
  SECTION("never a node") {
    gone = reinterpret_cast<cudaGraphNode_t>(std::uintptr_t{1} << 40);
  }
  SECTION("of a graph") {
    gone = reinterpret_cast<cudaGraphNode_t>(static_cast<cudaGraph_t>(graph));
  }
  SECTION("null") {
    gone = nullptr;
  }
  auto type = cudaGraphNodeTypeEmpty;
  std::size_t count = 0;
  cudaGraphNode_t node = nullptr;
  cudaHostNodeParams host{};
  const TestGraphExec exec(graph);
  check_invalid(cudaGraphNodeGetType(gone, &type));
  check_invalid(dependencies_of(gone, nullptr, &count));
  check_invalid(dependents_of(gone, nullptr, &count));
  check_invalid(cudaGraphAddEmptyNode(&node, graph, &gone, 1));
  check_invalid(add_dependency(graph, kept, gone));
  check_invalid(add_dependency(graph, gone, kept));
  check_invalid(cudaGraphDestroyNode(gone));
  check_invalid(cudaGraphHostNodeGetParams(gone, &host));
  check_invalid(cudaGraphNodeFindInClone(&node, gone, graph));
  host = {&HostLog::append, nullptr};
  check_invalid(cudaGraphHostNodeSetParams(gone, &host));
  check_invalid(cudaGraphExecHostNodeSetParams(exec, gone, &host));
  check_invalid(cudaGraphNodeSetEnabled(exec, gone, 0));
  CHECK(graph.nodes() >= 1);
}

// CUDA leaves a use of a destroyed graph undefined.
TEST_CASE("a handle of a graph that is gone names nothing", "[emulation][graph][stricter]") {
  cudaGraph_t gone = nullptr;
  REQUIRE_CUDA(cudaGraphCreate(&gone, 0));
  REQUIRE_CUDA(cudaGraphDestroy(gone));
  const TestGraph graph = empty_graph();
  const TestStream stream;
  cudaGraphNode_t node = nullptr;
  cudaGraph_t clone = nullptr;
  std::size_t count = 0;
  check_invalid(cudaGraphAddEmptyNode(&node, gone, nullptr, 0));
  check_invalid(cudaGraphAddChildGraphNode(&node, graph, nullptr, 0, gone));
  check_invalid(cudaGraphClone(&clone, gone));
  check_invalid(cudaGraphGetRootNodes(gone, nullptr, &count));
  check_invalid(edges_of(gone, nullptr, nullptr, &count));
  check_invalid(cudaGraphDebugDotPrint(gone, "/dev/null", 0));
  check_invalid(cudaStreamBeginCaptureToGraph(stream, gone, nullptr, nullptr, 0,
                                              cudaStreamCaptureModeThreadLocal));
}

// A GPU may accept copies and fills of no bytes, and check others when the graph is launched.
TEST_CASE("what nodes are made of is checked", "[emulation][graph][stricter]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestGraph graph = empty_graph();
  cudaGraphNode_t node = nullptr;
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaGraphAddMemcpyNode1D(&node, graph, nullptr, 0, to, from, bytes, kind);
  };
  check_invalid(copy(device.data(), host.data(), 65, cudaMemcpyHostToDevice));
  check_invalid(copy(device.data(), host.data(), 64, cudaMemcpyDeviceToHost));
  check_invalid(copy(device.data(), host.data(), 0, cudaMemcpyHostToDevice));
  check_invalid(copy(nullptr, host.data(), 64, cudaMemcpyHostToDevice));
  CHECK(copy(device.data(), host.data(), 64, static_cast<cudaMemcpyKind>(7)) ==
        cudaErrorInvalidMemcpyDirection);
  cudaMemsetParams fill = fill_params(device.data() + 1, 1, 4);
  fill.elementSize = 4;
  check_invalid(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill));  // not aligned
  fill.dst = device.data();
  fill.width = 17;
  check_invalid(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &fill));
  check_invalid(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, nullptr));
  const cudaHostNodeParams nothing{};
  check_invalid(cudaGraphAddHostNode(&node, graph, nullptr, 0, &nothing));
  check_invalid(cudaGraphAddEventRecordNode(&node, graph, nullptr, 0, nullptr));
  check_invalid(cudaGraphAddEventWaitNode(&node, graph, nullptr, 0, nullptr));
  check_invalid(cudaGraphAddEmptyNode(nullptr, graph, nullptr, 0));
  cudaMemAllocNodeParams allocation = allocation_params(0);
  check_invalid(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation));
  allocation = allocation_params(64);
  allocation.poolProps.location.id = 7;
  check_invalid(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation));
  allocation = allocation_params(std::size_t{1} << 50);
  CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation) ==
        cudaErrorMemoryAllocation);
  cudaGraphNodeParams any{};
  any.type = cudaGraphNodeTypeKernel;
  CHECK(add_node(&node, graph, nullptr, 0, &any) == cudaErrorNotSupported);
  any.type = cudaGraphNodeTypeEmpty;
  any.reserved1[0] = 1;  // "All unused bytes must be zero."
  check_invalid(add_node(&node, graph, nullptr, 0, &any));
  any = {};
  any.type = cudaGraphNodeTypeEmpty;
  cudaGraphNode_t first = nullptr;
  REQUIRE_CUDA(add_node(&first, graph, nullptr, 0, &any));
  cudaGraphEdgeData programmatic{};
  programmatic.from_port = 1;  // which kernels have
  check_invalid(add_node(&node, graph, &first, 1, &any, &programmatic));
  CHECK(graph.nodes() == 1);
}

// A GPU may remove nodes of a graph while a capture adds to it.
TEST_CASE("a graph that is captured loses no node", "[emulation][graph][stricter]") {
  HostLog log;
  const TestStream stream;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t first = add_note(graph, {}, log, 1);
  const auto begin = [&](cudaStream_t of) {
    return cudaStreamBeginCaptureToGraph(of, graph, &first, nullptr, 1,
                                         cudaStreamCaptureModeThreadLocal);
  };
  REQUIRE_CUDA(begin(stream));
  CHECK(emulation::live().graphs == 1);
  check_invalid(cudaGraphDestroyNode(first));
  check_invalid(cudaGraphDestroy(graph));
  const TestStream other;
  check_invalid(begin(other));  // one capture at a time
  cudaGraphNode_t beside = add_note(graph, {first}, log, 2);
  log.enqueue(stream, 3);
  SECTION("and keeps what a broken capture has added") {
    CHECK(cudaStreamQuery(stream) == cudaErrorStreamCaptureUnsupported);
    cudaGraph_t ended = nullptr;
    CHECK(cudaStreamEndCapture(stream, &ended) == cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
    CHECK(ended == nullptr);
  }
  SECTION("nor when its stream is destroyed") {
    cudaGraph_t ended = nullptr;
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &ended));
    cudaStream_t short_lived = nullptr;
    REQUIRE_CUDA(cudaStreamCreate(&short_lived));
    REQUIRE_CUDA(begin(short_lived));
    REQUIRE_CUDA(cudaStreamDestroy(short_lived));
  }
  CHECK(graph.nodes() == 3);
  REQUIRE_CUDA(cudaGraphDestroyNode(beside));
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1, 3});
}

// A GPU takes some of these changes, which CUDA documents as cudaErrorInvalidValue.
TEST_CASE("a copy of an executable graph stays flat, and its own", "[emulation][graph][stricter]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64, 1);
  const TestGraph graph = empty_graph(), other = empty_graph();
  cudaMemcpy3DParms rows{};
  rows.srcPtr = {host.data(), 16, 16, 4};
  rows.dstPtr = {device.data(), 16, 16, 4};
  rows.extent = {8, 2, 1};
  rows.kind = cudaMemcpyHostToDevice;
  cudaGraphNode_t of_rows = nullptr;
  REQUIRE_CUDA(cudaGraphAddMemcpyNode(&of_rows, graph, nullptr, 0, &rows));
  const cudaGraphNode_t flat = add_copy(graph, {of_rows}, device, host);
  const cudaGraphNode_t stranger = add_copy(other, {}, device, host);
  const TestGraphExec exec(graph);
  check_invalid(cudaGraphExecMemcpyNodeSetParams(exec, of_rows, &rows));
  check_invalid(cudaGraphExecMemcpyNodeSetParams(exec, flat, &rows));
  check_invalid(cudaGraphExecMemcpyNodeSetParams1D(exec, stranger, device.data(), host.data(), 64,
                                                   cudaMemcpyHostToDevice));
  check_invalid(cudaGraphExecMemcpyNodeSetParams1D(exec, flat, host.data(), device.data(), 64,
                                                   cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaGraphExecMemcpyNodeSetParams1D(exec, flat, device.data(), host.data(), 64,
                                                cudaMemcpyHostToDevice));
}

// ---- Child graphs

TEST_CASE("the graph of a node belongs to it", "[emulation][graph][held]") {
  HostLog log;
  const TestGraph child = empty_graph();
  const cudaGraphNode_t original = add_note(child, {}, log, 1);
  cudaGraph_t inner = nullptr;
  cudaGraphNode_t copy = nullptr;
  {
    const TestGraph graph = empty_graph();
    const cudaGraphNode_t node = add_child(graph, {}, child);
    CHECK(emulation::live().graphs == 2);  // the program's
    REQUIRE_CUDA(cudaGraphChildGraphNodeGetGraph(node, &inner));
    check_invalid(cudaGraphDestroy(inner));
    REQUIRE_CUDA(cudaGraphNodeFindInClone(&copy, original, inner));
    const TestGraphExec alone(inner);
    add_child(graph, {node}, graph);  // a copy of the graph as it is
    const TestStream stream;
    run_once(graph, stream);
    CHECK(log.entries() == std::vector{1, 1});
    REQUIRE_CUDA(cudaGraphDestroyNode(node));
    run_once(graph, stream);
    CHECK(log.entries() == std::vector{1, 1, 1});
  }
  auto type = cudaGraphNodeTypeEmpty;
  std::size_t count = 0;
  check_invalid(cudaGraphNodeGetType(copy, &type));
  check_invalid(cudaGraphGetNodes(inner, nullptr, &count));
}

#if CUDART_VERSION >= 12090
// cudaGraphChildGraphOwnershipMove: "Cannot be independently instantiated or destroyed; cannot be
// added as a child graph of a separate parent graph; cannot be used as an argument to
// cudaGraphExecUpdate; cannot have additional memory allocation or free nodes added."
TEST_CASE("a graph with memory nodes moves into its parent", "[emulation][graph][held]") {
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  const TestGraph graph = empty_graph(), other = empty_graph();
  cudaGraph_t child = nullptr;
  REQUIRE_CUDA(cudaGraphCreate(&child, 0));
  void* data = nullptr;
  const cudaGraphNode_t allocation = add_allocation(child, {}, 64, &data);
  const cudaGraphNode_t fill = add_fill(child, {allocation}, fill_params(data, 3, 64));
  const cudaGraphNode_t copy =
      add_copy(child, {fill}, host.data(), data, 64, cudaMemcpyDeviceToHost);
  add_free(child, {copy}, data);
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeGraph;
  params.graph.graph = child;
  params.graph.ownership = cudaGraphChildGraphOwnershipMove;
  cudaGraphNode_t node = nullptr;
  check_invalid(add_node(&node, child, nullptr, 0, &params));  // into itself
  REQUIRE_CUDA(add_node(&node, graph, nullptr, 0, &params));
  cudaGraph_t inner = nullptr;
  REQUIRE_CUDA(cudaGraphChildGraphNodeGetGraph(node, &inner));
  CHECK(inner == child);
  check_invalid(cudaGraphDestroy(child));
  cudaGraphExec_t exec = nullptr;
  check_invalid(cudaGraphInstantiate(&exec, child, 0));
  check_invalid(add_node(&node, other, nullptr, 0, &params));
  cudaMemAllocNodeParams more = allocation_params(64);
  CHECK(cudaGraphAddMemAllocNode(&node, child, nullptr, 0, &more) != cudaSuccess);
  CHECK(cudaGraphClone(&inner, graph) != cudaSuccess);
  {
    const TestGraphExec parent(graph);
    cudaGraphExecUpdateResultInfo info{};
    check_invalid(cudaGraphExecUpdate(parent, child, &info));
    CHECK(cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess);  // one at a time
    for (int launch = 0; launch < 2; ++launch) {
      host.set(0);
      REQUIRE_CUDA(cudaGraphLaunch(parent, stream));
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
      CHECK(host.all(3));
    }
  }
  cudaGetLastError();
}
#endif

// ---- Memory

// CUDA leaves a free of memory that is not allocated undefined.
TEST_CASE("a graph frees only memory that is there", "[emulation][graph][stricter]") {
  const TestStream stream;
  const TestGraph graph = empty_graph(), freeing = empty_graph();
  void* data = nullptr;
  add_allocation(graph, {}, 64, &data);
  add_free(freeing, {}, data);
  const TestGraphExec allocate(graph), free(freeing);
  check_invalid(cudaGraphLaunch(free, stream));
  REQUIRE_CUDA(cudaGraphLaunch(allocate, stream));
  check_invalid(cudaGraphLaunch(allocate, stream));
  REQUIRE_CUDA(cudaGraphLaunch(free, stream));
  check_invalid(cudaFreeAsync(data, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("memory of a graph has its place while somebody frees it", "[emulation][graph][held]") {
  const TestStream stream;
  const TestGraph freeing = empty_graph();
  void* data = nullptr;
  {
    const TestGraph graph = empty_graph();
    add_allocation(graph, {}, 64, &data);
    add_free(freeing, {}, data);
    const TestGraphExec allocate(graph);
    REQUIRE_CUDA(cudaGraphLaunch(allocate, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  CHECK(emulation::live().device_bytes == 64);
  run_once(freeing, stream);
}

// CUDA asks that the free comes after the allocation: ThreadSanitizer reports where it does not.
TEST_CASE("a captured free is one of another graph's memory, too", "[emulation][graph][looser]") {
  const TestStream stream;
  const TestGraph graph = empty_graph();
  void* data = nullptr;
  add_allocation(graph, {}, 64, &data);
  const TestGraph freeing = capture(stream, [&] { REQUIRE_CUDA(cudaFreeAsync(data, stream)); });
  const TestGraphExec allocate(graph), free(freeing);
  for (int launch = 0; launch < 2; ++launch) {
    REQUIRE_CUDA(cudaGraphLaunch(allocate, stream));
    REQUIRE_CUDA(cudaGraphLaunch(free, stream));
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("an allocation node keeps what devices may access it", "[emulation][graph][held]") {
  const TestGraph graph = empty_graph();
  const cudaMemAccessDesc access{{cudaMemLocationTypeDevice, 0}, cudaMemAccessFlagsProtReadWrite};
  cudaMemAllocNodeParams params = allocation_params(64);
  params.accessDescs = &access;
  params.accessDescCount = 1;
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  cudaMemAllocNodeParams now{};
  REQUIRE_CUDA(cudaGraphMemAllocNodeGetParams(node, &now));
  REQUIRE(now.accessDescCount == 1);
  CHECK(now.accessDescs[0].location.id == 0);
  CHECK(now.accessDescs[0].flags == cudaMemAccessFlagsProtReadWrite);
}

// ---- Captured and explicit graphs are the same

// A GPU tells the parameters that were set: here a copy's direction is the one that was found.
TEST_CASE("nodes of a capture have parameters as any others", "[emulation][graph][looser]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64, 1), other(64, 2);
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] {
    copy_async(device, host, stream);
    REQUIRE_CUDA(cudaMemset2DAsync(device.data(), 16, 0x1ff, 4, 2, stream));
    REQUIRE_CUDA(cudaMemset3DAsync({device.data(), 16, 16, 2}, 3, {4, 2, 2}, stream));
    REQUIRE_CUDA(cudaMemset3DAsync({device.data(), 8, 8, 4}, 3, {4, 2, 2}, stream));
  });
  Nodes nodes(4);
  std::size_t count = 4;
  REQUIRE_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  REQUIRE(count == 4);
  cudaMemcpy3DParms copy{};
  REQUIRE_CUDA(cudaGraphMemcpyNodeGetParams(nodes[0], &copy));
  CHECK(copy.srcPtr.ptr == host.data());
  CHECK(copy.kind == cudaMemcpyHostToDevice);
  cudaMemsetParams fill{};
  REQUIRE_CUDA(cudaGraphMemsetNodeGetParams(nodes[1], &fill));
  CHECK(fill.value == 0xff);
  CHECK(fill.width == 4);
  CHECK(fill.height == 2);
  CHECK(fill.pitch == 16);
  REQUIRE_CUDA(cudaGraphMemsetNodeGetParams(nodes[2], &fill));
  CHECK(fill.height == 4);
  CHECK(cudaGraphMemsetNodeGetParams(nodes[3], &fill) == cudaErrorNotSupported);
  cudaGetLastError();
  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaGraphExecMemcpyNodeSetParams1D(exec, nodes[0], device.data(), other.data(), 64,
                                                  cudaMemcpyHostToDevice));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  CHECK(device.read()[63] == 2);
  REQUIRE_CUDA(cudaGraphAddEmptyNode(&nodes[0], graph, &nodes[3], 1));
  CHECK(graph.nodes() == 5);
}

TEST_CASE("a captured graph is updated by one that is made by hand", "[emulation][graph][held]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> first(64), second(64);
  const TestStream stream;
  const TestGraph captured = capture(stream, [&] {
    fill_async(device, 1, stream);
    copy_async(first, device, stream);
  });
  const TestGraph made = empty_graph();
  const cudaGraphNode_t fill = add_fill(made, {}, device, 2);
  add_copy(made, {fill}, second, device);
  const TestGraphExec exec(captured);
  cudaGraphExecUpdateResultInfo info{};
  REQUIRE_CUDA(cudaGraphExecUpdate(exec, made, &info));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(second.all(2));
  CHECK(first.all(0));
}

TEST_CASE("an update with a cycle, or of another number of nodes, changes nothing",
          "[emulation][graph][held]") {
  HostLog log;
  const TestStream stream;
  const TestGraph graph = empty_graph(), cycle = empty_graph(), longer = empty_graph();
  const cudaGraphNode_t one = add_note(graph, {}, log, 1);
  add_note(graph, {one}, log, 2);
  const cudaGraphNode_t first = add_note(cycle, {}, log, 3);
  const cudaGraphNode_t second = add_note(cycle, {first}, log, 4);
  REQUIRE_CUDA(add_dependency(cycle, second, first));
  const cudaGraphNode_t begin = add_note(longer, {}, log, 5);
  add_note(longer, {begin}, log, 6);
  add_empty(longer, {});
  const TestGraphExec exec(graph);
  for (const TestGraph* other : {&cycle, &longer}) {
    cudaGraphExecUpdateResultInfo info{};
    CHECK(cudaGraphExecUpdate(exec, *other, &info) == cudaErrorGraphExecUpdateFailure);
    CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    CHECK(info.errorNode == nullptr);
    cudaGetLastError();
  }
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1, 2});
}

// ---- Streams of a graph

TEST_CASE("branches of a graph run side by side", "[emulation][graph][held]") {
  if (emulation::options().schedule != emulation::Schedule::eager) return;
  static std::atomic<int> begun;
  static std::atomic<int> met;
  begun = met = 0;
  const auto meet = [](void*) {
    ++begun;
    if (eventually([] { return begun == 3; })) ++met;
  };
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t root = add_empty(graph, {});
  for (int branch = 0; branch < 3; ++branch) add_host(graph, {root}, meet, nullptr);
  const TestStream stream;
  run_once(graph, stream);
  CHECK(met == 3);
}

TEST_CASE("phases of a graph share their streams", "[emulation][graph]") {
  constexpr int width = 4, phases = 25;
  HostLog log;
  const TestGraph graph = empty_graph();
  Nodes before;
  for (int phase = 0; phase < phases; ++phase) {
    Nodes nodes;
    for (int i = 0; i < width; ++i) nodes.push_back(add_note(graph, before, log, phase));
    before = {add_empty(graph, nodes)};
  }
  const TestStream stream;
  const TestGraphExec exec(graph);
  const std::size_t idle = threads();
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  CHECK(threads() <= idle + width + 2);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const std::vector<int> entries = log.entries();
  CHECK(entries.size() == std::size_t{width} * phases);
  CHECK(std::is_sorted(entries.begin(), entries.end()));
}

TEST_CASE("a chain of many nodes is one stream's work", "[emulation][graph]") {
  constexpr int nodes = 3000;
  std::atomic<int> sum{0};
  const TestGraph graph = empty_graph();
  Nodes last;
  for (int i = 0; i < nodes; ++i)
    last = {add_host(
        graph, last, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &sum)};
  const TestStream stream;
  run_once(graph, stream);
  CHECK(sum == nodes);
}

// ---- What is told

TEST_CASE("the timeline has the nodes that do something", "[emulation][graph]") {
  using emulation::OperationKind;
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  HostLog log;
  const TestStream stream;
  const TestEvent event;
  const TestGraph graph = empty_graph(), child = empty_graph();
  add_note(child, {}, log, 1);
  const cudaGraphNode_t upload = add_copy(graph, {}, device, host);
  const cudaGraphNode_t fill = add_fill(graph, {upload}, device, 1);
  const cudaGraphNode_t empty = add_empty(graph, {fill});
  const cudaGraphNode_t inner = add_child(graph, {empty}, child);
  cudaGraphNode_t record = nullptr;
  REQUIRE_CUDA(cudaGraphAddEventRecordNode(&record, graph, &inner, 1, event));
  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaGraphNodeSetEnabled(exec, fill, 0));
  emulation::record_timeline(true);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  std::vector<OperationKind> kinds;
  for (const emulation::Operation& operation : emulation::timeline()) {
    kinds.push_back(operation.kind);
    CHECK(operation.name == std::string("cudaGraphLaunch"));
  }
  CHECK(kinds == std::vector{OperationKind::graph, OperationKind::copy,
                             OperationKind::host_function, OperationKind::event_record,
                             OperationKind::graph});
}

TEST_CASE("making a graph is creating, changing one is not", "[emulation][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph();
  emulation::reset_counters();
  const cudaGraphNode_t node = add_note(graph, {}, log, 1);
  CHECK(emulation::call_classes().creating == 1);
  const TestGraphExec exec(graph);
  emulation::reset_counters();
  const cudaHostNodeParams params{&HostLog::append, log.note(2)};
  REQUIRE_CUDA(cudaGraphExecHostNodeSetParams(exec, node, &params));
  const emulation::CallClasses classes = emulation::call_classes();
  CHECK(classes.all == 1);
  CHECK(classes.creating + classes.allocating + classes.blocking + classes.launching == 0);
}

// A GPU writes other labels.
TEST_CASE("a graph is written as text, with what its nodes do", "[emulation][graph][looser]") {
  const TestGraph graph = empty_graph();
  CHECK(cudaGraphDebugDotPrint(graph, "/no/such/folder/graph.dot", 0) == cudaErrorOperatingSystem);
  check_invalid(cudaGraphDebugDotPrint(graph, nullptr, 0));
}

// ---- Failing calls

namespace {

/// Makes, changes and runs a graph of every kind of node. Cleans up, whatever fails: true when all
/// went well.
bool graph_of_everything(void* device, void* host, std::atomic<int>& ran) {
  struct Objects {
    cudaGraph_t graph = nullptr, child = nullptr, clone = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    ~Objects() {  // One of all calls fails, once: the second one of each does it.
      for (int attempt = 0; attempt < 2; ++attempt) (void)cudaDeviceSynchronize();
      for (int attempt = 0; attempt < 2; ++attempt) {
        if (exec != nullptr && cudaGraphExecDestroy(exec) == cudaSuccess) exec = nullptr;
        for (cudaGraph_t* made : {&graph, &child, &clone})
          if (*made != nullptr && cudaGraphDestroy(*made) == cudaSuccess) *made = nullptr;
        if (event != nullptr && cudaEventDestroy(event) == cudaSuccess) event = nullptr;
        if (stream != nullptr && cudaStreamDestroy(stream) == cudaSuccess) stream = nullptr;
      }
    }
  } o;
  cudaGraphNode_t node = nullptr, empty = nullptr, upload = nullptr, inner = nullptr;
  cudaGraphNode_t allocation = nullptr, note = nullptr;
  cudaMemAllocNodeParams params = allocation_params(64);
  cudaMemsetParams fill = fill_params(device, 1, 64);
  const cudaHostNodeParams count{[](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &ran};
  cudaGraph_t captured = nullptr;
  unsigned enabled = 0;
  std::size_t nodes = 0;
  const auto ok = [](cudaError_t status) { return status == cudaSuccess; };
  return ok(cudaGraphCreate(&o.graph, 0)) && ok(cudaGraphCreate(&o.child, 0)) &&
         ok(cudaStreamCreateWithFlags(&o.stream, cudaStreamNonBlocking)) &&
         ok(cudaEventCreate(&o.event)) &&
         ok(cudaGraphAddHostNode(&node, o.child, nullptr, 0, &count)) &&
         ok(cudaGraphClone(&o.clone, o.child)) &&
         ok(cudaGraphNodeFindInClone(&node, node, o.clone)) && ok(cudaGraphDestroyNode(node)) &&
         ok(cudaGraphAddEmptyNode(&empty, o.graph, nullptr, 0)) &&
         ok(cudaGraphAddMemcpyNode1D(&upload, o.graph, &empty, 1, device, host, 64,
                                     cudaMemcpyHostToDevice)) &&
         ok(cudaGraphAddMemsetNode(&node, o.graph, &upload, 1, &fill)) &&
         ok(cudaGraphAddHostNode(&note, o.graph, nullptr, 0, &count)) &&
         ok(add_dependency(o.graph, node, note)) &&
         ok(cudaGraphAddChildGraphNode(&inner, o.graph, &note, 1, o.child)) &&
         ok(cudaGraphAddEventRecordNode(&node, o.graph, &inner, 1, o.event)) &&
         ok(cudaGraphAddMemAllocNode(&allocation, o.graph, &node, 1, &params)) &&
         ok(cudaGraphAddMemFreeNode(&node, o.graph, &allocation, 1, params.dptr)) &&
         ok(cudaStreamBeginCaptureToGraph(o.stream, o.graph, &node, nullptr, 1,
                                          cudaStreamCaptureModeRelaxed)) &&
         ok(update_dependencies(o.stream, &note, 1, cudaStreamAddCaptureDependencies)) &&
         ok(cudaLaunchHostFunc(o.stream, count.fn, count.userData)) &&
         ok(cudaStreamEndCapture(o.stream, &captured)) &&
         ok(cudaGraphGetRootNodes(o.graph, nullptr, &nodes)) &&
         ok(cudaGraphInstantiate(&o.exec, o.graph, 0)) &&
         ok(cudaGraphExecMemcpyNodeSetParams1D(o.exec, upload, device, host, 32,
                                               cudaMemcpyHostToDevice)) &&
         ok(cudaGraphExecHostNodeSetParams(o.exec, note, &count)) &&
         ok(cudaGraphExecChildGraphNodeSetParams(o.exec, inner, o.child)) &&
         ok(cudaGraphNodeGetEnabled(o.exec, upload, &enabled)) &&
         ok(cudaGraphLaunch(o.exec, o.stream)) && ok(cudaStreamSynchronize(o.stream));
}

}  // namespace

TEST_CASE("every call about graphs fails once, and nothing is left behind", "[emulation][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const emulation::Live before = emulation::live();
  bool reached = true;
  std::uint64_t calls = 0;
  for (std::uint64_t nth = 1; reached && nth < 200; ++nth) {
    std::atomic<int> ran{0};
    emulation::fail_call("*", cudaErrorUnknown, nth);
    const bool well = graph_of_everything(device.data(), host.data(), ran);
    reached = !emulation::clear_failures();
    if (!reached) {
      CHECK(well);
      CHECK(ran == 3);
    }
    INFO("call " << nth);
    CHECK(emulation::live() == before);
    calls = nth;
  }
  CHECK_FALSE(reached);
  CHECK(calls > 35);
  cudaGetLastError();
}
