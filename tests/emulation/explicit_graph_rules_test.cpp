// SPDX-License-Identifier: Apache-2.0

// The rules of graphs, where they are made node by node: edges, what nodes do, child graphs, copies
// of graphs, memory nodes, captures into a graph, updates of single nodes.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graph_nodes.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

cudaMemcpy3DParms row_params(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpy3DParms params{};
  params.srcPtr = {const_cast<void*>(from), bytes, bytes, 1};
  params.dstPtr = {to, bytes, bytes, 1};
  params.extent = {bytes, 1, 1};
  params.kind = kind;
  return params;
}

}  // namespace

// ---- Edges

// CUDA C++ Programming Guide, CUDA Graphs: "An operation may be scheduled at any time once the
// nodes on which it depends are complete."
TEST_CASE("nodes run in the order of their edges", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> source(64, 7), first(64), second(64);
  HostLog log;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t begin = add_note(graph, {}, log, 1);
  const cudaGraphNode_t upload = add_copy(graph, {begin}, device, source);
  const cudaGraphNode_t left = add_copy(graph, {upload}, first, device);
  const cudaGraphNode_t right = add_copy(graph, {upload}, second, device);
  const cudaGraphNode_t both = add_empty(graph, {left, right});
  const cudaGraphNode_t fill = add_fill(graph, {both}, device, 9);
  add_note(graph, {fill}, log, 2);
  CHECK(graph.nodes() == 7);
  const TestStream stream;
  const TestGraphExec exec(graph);
  for (int launch = 0; launch < 20; ++launch) {
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(first.all(7));
    CHECK(second.all(7));
    first.set(0);
    second.set(0);
  }
  CHECK(device.read() == Bytes(64, 9));
  CHECK(log.entries().size() == 40);
}

// CUDA Runtime API, Graph Management, cudaGraphAddDependencies: "Elements in pFrom and pTo at
// corresponding indices define a dependency."
TEST_CASE("an edge can lead to a node that was added before", "[rules][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t last = add_note(graph, {}, log, 3);
  const cudaGraphNode_t middle = add_note(graph, {}, log, 2);
  const cudaGraphNode_t first = add_note(graph, {}, log, 1);
  REQUIRE_CUDA(add_dependency(graph, first, middle));
  REQUIRE_CUDA(add_dependency(graph, middle, last));
  const TestStream stream;
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1, 2, 3});
}

// The same: "Specifying an existing dependency will return an error." cudaGraphRemoveDependencies:
// "Specifying an edge that does not exist in the graph ... results in an error."
TEST_CASE("an edge is added once and removed once", "[rules][graph]") {
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t first = add_empty(graph, {});
  const cudaGraphNode_t second = add_empty(graph, {first});
  check_invalid(add_dependency(graph, first, second));
  CHECK_CUDA(remove_dependency(graph, first, second));
  check_invalid(remove_dependency(graph, first, second));
  check_invalid(remove_dependency(graph, second, first));
  CHECK_CUDA(add_dependency(graph, second, first));
  std::size_t edges = 0;
  CHECK_CUDA(edges_of(graph, nullptr, nullptr, &edges));
  CHECK(edges == 1);
}

// CUDA Runtime API, Graph Management, cudaGraphAddEmptyNode: "pDependencies may not have any
// duplicate entries." cudaGraphAddDependencies: "Each node in pFrom and pTo must belong to graph."
TEST_CASE("edges are between different nodes of one graph", "[rules][graph]") {
  const TestGraph graph = empty_graph(), other = empty_graph();
  const cudaGraphNode_t here = add_empty(graph, {}), there = add_empty(other, {});
  cudaGraphNode_t node = nullptr;
  const Nodes twice{here, here};
  check_invalid(cudaGraphAddEmptyNode(&node, graph, twice.data(), twice.size()));
  check_invalid(cudaGraphAddEmptyNode(&node, graph, &there, 1));
  check_invalid(cudaGraphAddEmptyNode(&node, graph, nullptr, 1));
  check_invalid(add_dependency(graph, here, there));
  check_invalid(add_dependency(graph, here, here));
  CHECK(graph.nodes() == 1);
  CHECK(other.nodes() == 1);
}

// CUDA Runtime API, Graph Management, cudaGraphGetRootNodes, cudaGraphGetEdges,
// cudaGraphNodeGetDependencies, cudaGraphNodeGetDependentNodes: "may be NULL, in which case this
// function will return the number"; "the remaining entries ... will be set to NULL".
TEST_CASE("a graph tells its roots and edges, and a node its neighbours", "[rules][graph]") {
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t root = add_empty(graph, {}), other_root = add_empty(graph, {});
  const cudaGraphNode_t middle = add_empty(graph, {root, other_root});
  const cudaGraphNode_t end = add_empty(graph, {middle, root});
  const auto sorted = [](Nodes nodes) {
    std::sort(nodes.begin(), nodes.end());
    return nodes;
  };
  std::size_t count = 0;
  REQUIRE_CUDA(cudaGraphGetRootNodes(graph, nullptr, &count));
  CHECK(count == 2);
  Nodes roots(2);
  REQUIRE_CUDA(cudaGraphGetRootNodes(graph, roots.data(), &count));
  CHECK(sorted(roots) == sorted({root, other_root}));

  REQUIRE_CUDA(edges_of(graph, nullptr, nullptr, &count));
  CHECK(count == 4);
  Nodes from(4), to(4);
  std::vector<cudaGraphEdgeData> data(4);
  REQUIRE_CUDA(edges_of(graph, from.data(), to.data(), &count, data.data()));
  std::vector<std::pair<cudaGraphNode_t, cudaGraphNode_t>> edges;
  for (std::size_t i = 0; i < 4; ++i) {
    edges.emplace_back(from[i], to[i]);
    CHECK(data[i].from_port == 0);
    CHECK(data[i].to_port == 0);
    CHECK(data[i].type == 0);
  }
  for (const auto& edge : {std::pair(root, middle), std::pair(other_root, middle),
                           std::pair(middle, end), std::pair(root, end)})
    CHECK(std::count(edges.begin(), edges.end(), edge) == 1);

  int anything = 0;
  Nodes nodes(3, reinterpret_cast<cudaGraphNode_t>(&anything));
  count = 3;
  REQUIRE_CUDA(dependencies_of(end, nodes.data(), &count));
  CHECK(count == 2);
  CHECK(nodes[2] == nullptr);
  nodes.resize(2);
  CHECK(sorted(nodes) == sorted({middle, root}));
  REQUIRE_CUDA(dependents_of(root, nullptr, &count));
  CHECK(count == 2);
  nodes.assign(2, nullptr);
  REQUIRE_CUDA(dependents_of(root, nodes.data(), &count));
  CHECK(sorted(nodes) == sorted({middle, end}));
  REQUIRE_CUDA(dependents_of(end, nullptr, &count));
  CHECK(count == 0);
}

// CUDA Runtime API, cudaGraphInstantiateWithParams: "cudaGraphInstantiateInvalidStructure, if the
// graph structure is invalid. errNode_out will be set to one of the offending nodes."
TEST_CASE("a graph with a cycle is not instantiated", "[rules][graph]") {
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t first = add_empty(graph, {});
  const cudaGraphNode_t second = add_empty(graph, {first});
  add_empty(graph, {second});  // behind the cycle, and not on it
  const cudaError_t closed = add_dependency(graph, second, first);
  if (closed != cudaSuccess) {  // Refused at once is as good.
    cudaGetLastError();
    return;
  }
  cudaGraphExec_t exec = nullptr;
  check_refused(cudaGraphInstantiate(&exec, graph, 0));
  cudaGraphInstantiateParams params{};
  check_refused(cudaGraphInstantiateWithParams(&exec, graph, &params));
  CHECK(params.result_out == cudaGraphInstantiateInvalidStructure);
  CHECK((params.errNode_out == first || params.errNode_out == second));
  REQUIRE_CUDA(remove_dependency(graph, second, first));
  const TestGraphExec now(graph);
}

// CUDA Runtime API, Graph Management, cudaGraphDestroyNode: "This operation also severs any
// dependencies of other nodes on node and vice versa."
TEST_CASE("a node leaves its graph with its edges", "[rules][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t first = add_note(graph, {}, log, 1);
  const cudaGraphNode_t second = add_note(graph, {first}, log, 2);
  const cudaGraphNode_t third = add_note(graph, {second}, log, 3);
  REQUIRE_CUDA(cudaGraphDestroyNode(second));
  CHECK(graph.nodes() == 2);
  std::size_t edges = 7;
  CHECK_CUDA(edges_of(graph, nullptr, nullptr, &edges));
  CHECK(edges == 0);
  REQUIRE_CUDA(add_dependency(graph, first, third));
  const TestStream stream;
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1, 3});
}

// CUDA C++ Programming Guide, CUDA Graphs: instantiation "takes a snapshot of the graph template".
TEST_CASE("an executable graph is what the graph was", "[rules][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t first = add_note(graph, {}, log, 1);
  const TestGraphExec exec(graph);
  const cudaGraphNode_t second = add_note(graph, {first}, log, 2);
  const cudaHostNodeParams other{&HostLog::append, log.note(4)};
  REQUIRE_CUDA(cudaGraphHostNodeSetParams(first, &other));
  const TestStream stream;
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1});
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1, 4, 2});
  REQUIRE_CUDA(cudaGraphDestroyNode(second));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1, 4, 2, 1});
}

// ---- What nodes do

// CUDA Runtime API, Graph Management, cudaGraphMemcpyNodeGetParams, cudaGraphMemcpyNodeSetParams.
TEST_CASE("a copy node has the parameters that were set", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> first(64, 1), second(64, 2);
  const TestGraph graph = empty_graph();
  const auto params = row_params(device.data(), first.data(), 64, cudaMemcpyHostToDevice);
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &params));
  auto type = cudaGraphNodeTypeEmpty;
  CHECK_CUDA(cudaGraphNodeGetType(node, &type));
  CHECK(type == cudaGraphNodeTypeMemcpy);
  cudaMemcpy3DParms now{};
  REQUIRE_CUDA(cudaGraphMemcpyNodeGetParams(node, &now));
  CHECK(now.srcPtr.ptr == first.data());
  CHECK(now.dstPtr.ptr == device.data());
  CHECK(now.extent.width == 64);
  CHECK(now.extent.height == 1);
  CHECK(now.extent.depth == 1);
  CHECK(now.srcArray == nullptr);
  const TestStream stream;
  run_once(graph, stream);
  CHECK(device.read() == Bytes(64, 1));
  now.srcPtr.ptr = second.data();
  REQUIRE_CUDA(cudaGraphMemcpyNodeSetParams(node, &now));
  run_once(graph, stream);
  CHECK(device.read() == Bytes(64, 2));
  REQUIRE_CUDA(cudaGraphMemcpyNodeSetParams1D(node, device.data(), first.data(), 32,
                                              cudaMemcpyHostToDevice));
  run_once(graph, stream);
  Bytes expected(64, 2);
  std::fill_n(expected.begin(), 32, std::uint8_t{1});
  CHECK(device.read() == expected);
}

// The same, of rows: "See cudaMemcpy3D() for a description of the structure".
TEST_CASE("a copy node copies a box of bytes", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64, 5);
  const TestGraph graph = empty_graph();
  cudaMemcpy3DParms params{};  // 2 rows of 3 bytes, at column 1 of row 2, of rows of 8
  params.srcPtr = {host.data(), 8, 8, 8};
  params.dstPtr = {device.data(), 8, 8, 8};
  params.dstPos = {1, 2, 0};
  params.extent = {3, 2, 1};
  params.kind = cudaMemcpyHostToDevice;
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddMemcpyNode(&node, graph, nullptr, 0, &params));
  const TestStream stream;
  run_once(graph, stream);
  Bytes expected(64, 0);
  for (const std::size_t row : {2, 3}) std::fill_n(&expected[row * 8 + 1], 3, std::uint8_t{5});
  CHECK(device.read() == expected);
  // What is asked for and set again copies the same.
  cudaMemcpy3DParms now{};
  REQUIRE_CUDA(cudaGraphMemcpyNodeGetParams(node, &now));
  REQUIRE_CUDA(cudaGraphMemcpyNodeSetParams(node, &now));
  REQUIRE_CUDA(cudaMemset(device.data(), 0, 64));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  run_once(graph, stream);
  CHECK(device.read() == expected);
}

// A copy node may name pageable memory, which is read and written when the node runs.
TEST_CASE("a copy node reaches pageable memory when it runs", "[rules][graph]") {
  Bytes source(64, 1), result(64, 0);
  const DeviceMemory<std::uint8_t> device(64);
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t upload =
      add_copy(graph, {}, device.data(), source.data(), 64, cudaMemcpyHostToDevice);
  add_copy(graph, {upload}, result.data(), device.data(), 64, cudaMemcpyDeviceToHost);
  const TestGraphExec exec(graph);
  const TestStream stream;
  std::fill(source.begin(), source.end(), std::uint8_t{2});
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(result == Bytes(64, 2));
}

// CUDA Runtime API, Graph Management, cudaGraphAddMemsetNode: "The element size must be 1, 2, or 4
// bytes." cudaMemsetParams: "width: Width of the row in elements"; "pitch: ... Unused if height
// is 1".
TEST_CASE("a fill node writes elements of one, two or four bytes", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestGraph graph = empty_graph();
  cudaMemsetParams params = fill_params(device.data(), 0x01020304, 16);
  const auto pattern = [](const Bytes& bytes) {
    Bytes filled(64, 0);
    for (std::size_t i = 0; i < 16 * bytes.size(); ++i) filled[i] = bytes[i % bytes.size()];
    return filled;
  };
  Bytes expected;
  SECTION("one") {
    params.value = 0x04;
    expected = pattern({4});
  }
  SECTION("two") {
    params.value = 0x0304;
    params.elementSize = 2;
    expected = pattern({4, 3});
  }
  SECTION("four") {
    params.elementSize = 4;
    expected = pattern({4, 3, 2, 1});
  }
  SECTION("rows of four") {
    params.elementSize = 4;
    params.width = 2;
    params.height = 3;
    params.pitch = 16;
    expected = Bytes(64, 0);
    for (std::size_t i = 0; i < 48; ++i)
      if (i % 16 < 8) expected[i] = static_cast<std::uint8_t>(4 - i % 4);
  }
  const cudaGraphNode_t node = add_fill(graph, {}, params);
  const TestStream stream;
  run_once(graph, stream);
  CHECK(device.read() == expected);
  cudaMemsetParams now{};
  REQUIRE_CUDA(cudaGraphMemsetNodeGetParams(node, &now));
  CHECK(now.dst == params.dst);
  CHECK(now.value == params.value);
  CHECK(now.elementSize == params.elementSize);
  CHECK(now.width == params.width);
  CHECK(now.height == params.height);
}

TEST_CASE("a fill node has an element size that there is", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestGraph graph = empty_graph();
  for (const unsigned size : {0u, 3u, 8u}) {
    cudaMemsetParams params = fill_params(device.data(), 1, 2);
    params.elementSize = size;
    cudaGraphNode_t node = nullptr;
    check_invalid(cudaGraphAddMemsetNode(&node, graph, nullptr, 0, &params));
  }
  CHECK(graph.nodes() == 0);
}

// CUDA Runtime API, Graph Management, cudaGraphMemsetNodeSetParams.
TEST_CASE("a fill node has the parameters that were set", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t node = add_fill(graph, {}, device, 1);
  const cudaMemsetParams other = fill_params(device.data() + 16, 2, 8);
  REQUIRE_CUDA(cudaGraphMemsetNodeSetParams(node, &other));
  const TestStream stream;
  run_once(graph, stream);
  Bytes expected(64, 0);
  std::fill_n(&expected[16], 8, std::uint8_t{2});
  CHECK(device.read() == expected);
}

// CUDA Runtime API, Graph Management, cudaGraphHostNodeGetParams.
TEST_CASE("a host node has the parameters that were set", "[rules][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph();
  void* const note = log.note(1);
  const cudaGraphNode_t node = add_host(graph, {}, &HostLog::append, note);
  cudaHostNodeParams params{};
  REQUIRE_CUDA(cudaGraphHostNodeGetParams(node, &params));
  CHECK(params.fn == &HostLog::append);
  CHECK(params.userData == note);
  params.userData = log.note(2);
  REQUIRE_CUDA(cudaGraphHostNodeSetParams(node, &params));
  const TestStream stream;
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{2});
}

// A call about one type of node, given another: cudaErrorInvalidValue.
TEST_CASE("a node has no parameters of another type", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t fill = add_fill(graph, {}, device, 1), empty = add_empty(graph, {});
  cudaHostNodeParams host{};
  cudaMemcpy3DParms copy{};
  cudaGraph_t child = nullptr;
  cudaEvent_t event = nullptr;
  check_invalid(cudaGraphHostNodeGetParams(fill, &host));
  check_invalid(cudaGraphMemcpyNodeGetParams(fill, &copy));
  check_invalid(cudaGraphChildGraphNodeGetGraph(empty, &child));
  check_invalid(cudaGraphEventRecordNodeGetEvent(empty, &event));
  check_invalid(cudaGraphEventWaitNodeGetEvent(fill, &event));
}

// CUDA Runtime API, Graph Management, cudaGraphAddEventRecordNode: "Each launch of the graph will
// record event to capture execution of the node's dependencies."
TEST_CASE("a node records an event for work outside", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream, reader;
  const TestEvent event, other;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t fill = add_fill(graph, {}, device, 3);
  cudaGraphNode_t record = nullptr;
  REQUIRE_CUDA(cudaGraphAddEventRecordNode(&record, graph, &fill, 1, event));
  cudaEvent_t recorded = nullptr;
  REQUIRE_CUDA(cudaGraphEventRecordNodeGetEvent(record, &recorded));
  CHECK(recorded == event);
  const TestGraphExec exec(graph);
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  REQUIRE_CUDA(cudaStreamWaitEvent(reader, event, 0));
  copy_async(host, device, reader);
  gate.open_and_publish();
  REQUIRE_CUDA(cudaStreamSynchronize(reader));
  CHECK(host.all(3));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  // cudaGraphExecEventRecordNodeSetEvent: "The modifications only affect future launches".
  REQUIRE_CUDA(cudaGraphExecEventRecordNodeSetEvent(exec, record, other));
  gate.open();
  Gate again;
  again.hold(stream);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(cudaEventQuery(other) == cudaErrorNotReady);
  again.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaGraphEventRecordNodeGetEvent(record, &recorded));
  CHECK(recorded == event);  // "hNode is also not modified by this call."
  REQUIRE_CUDA(cudaGraphEventRecordNodeSetEvent(record, other));
  REQUIRE_CUDA(cudaGraphEventRecordNodeGetEvent(record, &recorded));
  CHECK(recorded == other);
}

// CUDA Runtime API, Graph Management, cudaGraphAddEventWaitNode: "The graph node will wait for all
// work captured in event."
TEST_CASE("a node waits for an event of work outside", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream writer, stream;
  const TestEvent event;
  const TestGraph graph = empty_graph();
  cudaGraphNode_t wait = nullptr;
  REQUIRE_CUDA(cudaGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));
  add_copy(graph, {wait}, host, device);
  cudaEvent_t awaited = nullptr;
  REQUIRE_CUDA(cudaGraphEventWaitNodeGetEvent(wait, &awaited));
  CHECK(awaited == event);
  const TestGraphExec exec(graph);
  Gate gate;
  gate.hold(writer);
  fill_async(device, 4, writer);
  REQUIRE_CUDA(cudaEventRecord(event, writer));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(host.all(4));
}

// CUDA Runtime API, Graph Management, cudaGraphAddNode: "nodeParams is a tagged union. The node
// type should be specified in the type field, and type-specific parameters in the corresponding
// union member. All unused bytes ... must be set to zero."
TEST_CASE("a node of any type is added by one call", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> source(64, 1), result(64);
  HostLog log;
  const TestStream stream;
  const TestEvent event;
  const TestGraph graph = empty_graph(), child = empty_graph();
  add_note(child, {}, log, 2);
  Nodes nodes;
  const auto add = [&](cudaGraphNodeParams params) {
    cudaGraphNode_t node = nullptr;
    const std::size_t count = nodes.empty() ? 0 : 1;
    REQUIRE_CUDA(add_node(&node, graph, nodes.empty() ? nullptr : &nodes.back(), count, &params));
    nodes.push_back(node);
  };
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeEmpty;
  add(params);
  params.type = cudaGraphNodeTypeHost;
  params.host.fn = &HostLog::append;
  params.host.userData = log.note(1);
  add(params);
  params = {};
  params.type = cudaGraphNodeTypeMemcpy;
  params.memcpy.copyParams = row_params(device.data(), source.data(), 64, cudaMemcpyHostToDevice);
  add(params);
  params = {};
  params.type = cudaGraphNodeTypeMemset;
  params.memset.dst = device.data();
  params.memset.value = 2;
  params.memset.elementSize = 1;
  params.memset.width = 32;
  params.memset.height = 1;
  add(params);
  params = {};
  params.type = cudaGraphNodeTypeGraph;
  params.graph.graph = child;
  add(params);
  params = {};
  params.type = cudaGraphNodeTypeEventRecord;
  params.eventRecord.event = event;
  add(params);
  params = {};
  params.type = cudaGraphNodeTypeMemcpy;
  params.memcpy.copyParams = row_params(result.data(), device.data(), 64, cudaMemcpyDeviceToHost);
  add(params);
  CHECK(graph.nodes() == 7);

  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(log.entries() == std::vector{1, 2});
  CHECK(result[0] == 2);
  CHECK(result[63] == 1);

  // cudaGraphExecNodeSetParams: "Sets the parameters of a node in an executable graph".
  params = {};
  params.type = cudaGraphNodeTypeHost;
  params.host.fn = &HostLog::append;
  params.host.userData = log.note(3);
  REQUIRE_CUDA(cudaGraphExecNodeSetParams(exec, nodes[1], &params));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{1, 2, 3, 2});
  // cudaGraphNodeSetParams: "The node type specified by nodeParams->type must match the type of
  // node."
  REQUIRE_CUDA(cudaGraphNodeSetParams(nodes[1], &params));
  check_refused(cudaGraphNodeSetParams(nodes[2], &params));
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1, 2, 3, 2, 3, 2});
}

// ---- Single nodes of an executable graph

// CUDA Runtime API, Graph Management, cudaGraphExecMemcpyNodeSetParams1D: "The modifications only
// affect future launches of hGraphExec. Already enqueued or running launches of hGraphExec are not
// affected by this call. node is also not modified by this call."
TEST_CASE("a node of an executable graph is changed for later launches", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64), second_device(64);
  const PinnedMemory<std::uint8_t> one(64, 1), two(64, 2), first_result(64), second_result(64);
  HostLog log;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t upload = add_copy(graph, {}, device, one);
  const cudaGraphNode_t download = add_copy(graph, {upload}, first_result, device);
  const cudaGraphNode_t fill = add_fill(graph, {download}, second_device, 8);
  const cudaGraphNode_t note = add_note(graph, {fill}, log, 1);
  const TestGraphExec exec(graph);
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaGraphExecMemcpyNodeSetParams1D(exec, upload, device.data(), two.data(), 64,
                                                  cudaMemcpyHostToDevice));
  const auto params = row_params(second_result.data(), device.data(), 64, cudaMemcpyDeviceToHost);
  REQUIRE_CUDA(cudaGraphExecMemcpyNodeSetParams(exec, download, &params));
  const cudaMemsetParams filled = fill_params(second_device.data(), 9, 64);
  REQUIRE_CUDA(cudaGraphExecMemsetNodeSetParams(exec, fill, &filled));
  const cudaHostNodeParams noted{&HostLog::append, log.note(2)};
  REQUIRE_CUDA(cudaGraphExecHostNodeSetParams(exec, note, &noted));
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(first_result.all(1));
  CHECK(second_result.all(0));
  CHECK(second_device.read() == Bytes(64, 8));
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(second_result.all(2));
  CHECK(second_device.read() == Bytes(64, 9));
  CHECK(log.entries() == std::vector{1, 2});
  cudaMemcpy3DParms of_node{};
  REQUIRE_CUDA(cudaGraphMemcpyNodeGetParams(upload, &of_node));
  CHECK(of_node.srcPtr.ptr == one.data());
}

// CUDA Runtime API, Graph Management, cudaGraphNodeSetEnabled: "Disabled nodes are functionally
// equivalent to empty nodes until they are reenabled. Existing node parameters are not affected by
// disabling/enabling the node." "Currently only kernel, memset and memcpy nodes are supported."
TEST_CASE("a disabled node keeps its place and does nothing", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64, 1), result(64);
  HostLog log;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t upload = add_copy(graph, {}, device, host);
  const cudaGraphNode_t fill = add_fill(graph, {upload}, device, 2);
  const cudaGraphNode_t download = add_copy(graph, {fill}, result, device);
  const cudaGraphNode_t note = add_note(graph, {download}, log, 1);
  const TestGraphExec exec(graph);
  const TestStream stream;
  const auto run = [&] {
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  };
  unsigned enabled = 7;
  REQUIRE_CUDA(cudaGraphNodeGetEnabled(exec, fill, &enabled));
  CHECK(enabled == 1);
  REQUIRE_CUDA(cudaGraphNodeSetEnabled(exec, fill, 0));
  REQUIRE_CUDA(cudaGraphNodeGetEnabled(exec, fill, &enabled));
  CHECK(enabled == 0);
  run();
  CHECK(result.all(1));
  REQUIRE_CUDA(cudaGraphNodeSetEnabled(exec, fill, 1));
  run();
  CHECK(result.all(2));
  check_refused(cudaGraphNodeSetEnabled(exec, note, 0));
}

// ---- Child graphs

// CUDA Runtime API, Graph Management, cudaGraphAddChildGraphNode: "The node executes an embedded
// child graph. The child graph is cloned in this call."
TEST_CASE("a child graph runs in the place of its node", "[rules][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph(), child = empty_graph(), empty = empty_graph();
  const cudaGraphNode_t first = add_note(child, {}, log, 2);
  add_note(child, {first}, log, 3);
  const cudaGraphNode_t begin = add_note(graph, {}, log, 1);
  const cudaGraphNode_t inner = add_child(graph, {begin}, child);
  const cudaGraphNode_t nothing = add_child(graph, {inner}, empty);
  add_note(graph, {nothing}, log, 4);
  REQUIRE_CUDA(cudaGraphDestroyNode(first));  // of the original, which is not what runs
  CHECK(graph.nodes() == 4);
  auto type = cudaGraphNodeTypeEmpty;
  CHECK_CUDA(cudaGraphNodeGetType(inner, &type));
  CHECK(type == cudaGraphNodeTypeGraph);
  const TestStream stream;
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1, 2, 3, 4});
}

// CUDA Runtime API, Graph Management, cudaGraphChildGraphNodeGetGraph: "This call does not clone
// the graph. Changes to the graph will be reflected in the node, and the node retains ownership of
// the graph."
TEST_CASE("the graph of a node can be changed", "[rules][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph(), child = empty_graph();
  add_note(child, {}, log, 1);
  const cudaGraphNode_t node = add_child(graph, {}, child);
  cudaGraph_t inner = nullptr;
  REQUIRE_CUDA(cudaGraphChildGraphNodeGetGraph(node, &inner));
  CHECK(inner != child);
  cudaGraphNode_t root = nullptr;
  std::size_t count = 1;
  REQUIRE_CUDA(cudaGraphGetRootNodes(inner, &root, &count));
  REQUIRE(count == 1);
  add_note(inner, {root}, log, 2);
  const TestStream stream;
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1, 2});
  // cudaGraphAddMemAllocNode cannot: "Allocation and free nodes cannot be added to the returned
  // graph."
  cudaMemAllocNodeParams params = allocation_params(64);
  check_refused(cudaGraphAddMemAllocNode(&root, inner, nullptr, 0, &params));
}

// CUDA Runtime API, Graph Management, cudaGraphExecChildGraphNodeSetParams: "Updates the work
// represented by node in hGraphExec as though the nodes contained in node's graph had the
// parameters contained in childGraph's nodes at instantiation." "The topology of childGraph, as
// well as the node insertion order, must match that of the graph contained in node."
TEST_CASE("the child graph of an executable graph is changed as a whole", "[rules][graph]") {
  HostLog log;
  const auto chain = [&](int from, bool joined) {
    TestGraph made = empty_graph();
    const cudaGraphNode_t first = add_note(made, {}, log, from);
    add_note(made, joined ? Nodes{first} : Nodes{}, log, from + 1);
    return made;
  };
  const TestGraph graph = empty_graph(), child = chain(1, true);
  const cudaGraphNode_t begin = add_note(graph, {}, log, 0);
  const cudaGraphNode_t node = add_child(graph, {begin}, child);
  add_note(graph, {node}, log, 9);
  const TestGraphExec exec(graph);
  const TestGraph changed = chain(3, true), shapeless = chain(5, false);
  CHECK(cudaGraphExecChildGraphNodeSetParams(exec, node, shapeless) ==
        cudaErrorGraphExecUpdateFailure);
  cudaGetLastError();
  REQUIRE_CUDA(cudaGraphExecChildGraphNodeSetParams(exec, node, changed));
  const TestStream stream;
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{0, 3, 4, 9});
}

// cudaGraphExecUpdate, of child graphs: "The update is recursive".
TEST_CASE("an update reaches into child graphs", "[rules][graph]") {
  HostLog log;
  const auto nested = [&](int number) {
    const TestGraph inner = empty_graph();
    add_note(inner, {}, log, number);
    TestGraph outer = empty_graph();
    const cudaGraphNode_t begin = add_note(outer, {}, log, number + 1);
    add_child(outer, {begin}, inner);
    return outer;
  };
  const TestGraph graph = nested(1), changed = nested(5);
  const TestGraphExec exec(graph);
  cudaGraphExecUpdateResultInfo info{};
  REQUIRE_CUDA(cudaGraphExecUpdate(exec, changed, &info));
  const TestStream stream;
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == std::vector{6, 5});
}

// ---- Copies of graphs

// CUDA Runtime API, Graph Management, cudaGraphClone: "All parameters are copied into the cloned
// graph. The original graph may be modified after this call without affecting the clone."
// cudaGraphNodeFindInClone: "This function returns the node in clonedGraph corresponding to
// originalNode in the original graph."
TEST_CASE("a clone is a graph of its own", "[rules][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t first = add_note(graph, {}, log, 1);
  const cudaGraphNode_t second = add_note(graph, {first}, log, 2);
  cudaGraph_t made = nullptr;
  REQUIRE_CUDA(cudaGraphClone(&made, graph));
  const TestGraph clone(made);
  const cudaGraphNode_t later = add_note(graph, {second}, log, 3);
  cudaGraphNode_t twin = nullptr;
  REQUIRE_CUDA(cudaGraphNodeFindInClone(&twin, second, clone));
  CHECK(twin != second);
  const cudaHostNodeParams other{&HostLog::append, log.note(7)};
  REQUIRE_CUDA(cudaGraphHostNodeSetParams(twin, &other));
  const TestStream stream;
  run_once(graph, stream);
  run_once(clone, stream);
  CHECK(log.entries() == std::vector{1, 2, 3, 1, 7});
  // "originalNode must have been in originalGraph at the time of the call to cudaGraphClone, and
  // the corresponding cloned node in clonedGraph must not have been removed."
  cudaGraphNode_t none = nullptr;
  check_invalid(cudaGraphNodeFindInClone(&none, later, clone));
  check_invalid(cudaGraphNodeFindInClone(&none, first, graph));
  REQUIRE_CUDA(cudaGraphDestroyNode(twin));
  check_invalid(cudaGraphNodeFindInClone(&none, second, clone));
}

// The same: "Child graph nodes in the original graph are recursively copied into the clone."
TEST_CASE("a clone has child graphs of its own", "[rules][graph]") {
  HostLog log;
  const TestGraph graph = empty_graph(), child = empty_graph();
  add_note(child, {}, log, 1);
  const cudaGraphNode_t node = add_child(graph, {}, child);
  cudaGraph_t made = nullptr;
  REQUIRE_CUDA(cudaGraphClone(&made, graph));
  const TestGraph clone(made);
  cudaGraphNode_t twin = nullptr;
  REQUIRE_CUDA(cudaGraphNodeFindInClone(&twin, node, clone));
  cudaGraph_t inner = nullptr, inner_twin = nullptr;
  REQUIRE_CUDA(cudaGraphChildGraphNodeGetGraph(node, &inner));
  REQUIRE_CUDA(cudaGraphChildGraphNodeGetGraph(twin, &inner_twin));
  CHECK(inner != inner_twin);
  add_note(inner_twin, {}, log, 2);
  const TestStream stream;
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1});
  run_once(clone, stream);
  CHECK(log.entries().size() == 3);
}

// CUDA C++ Programming Guide, CUDA User Objects: "A cloned cudaGraph_t retains a copy of every
// reference owned by the source cudaGraph_t, with the same multiplicity."
TEST_CASE("a clone keeps a user object as its original does", "[rules][graph]") {
  std::atomic<int> destroyed{0};
  cudaUserObject_t object = nullptr;
  REQUIRE_CUDA(cudaUserObjectCreate(
      &object, &destroyed, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, 2,
      cudaUserObjectNoDestructorSync));
  cudaGraph_t made = nullptr;
  {
    const TestGraph graph = empty_graph();
    REQUIRE_CUDA(cudaGraphRetainUserObject(graph, object, 2, cudaGraphUserObjectMove));
    REQUIRE_CUDA(cudaGraphClone(&made, graph));
  }
  const TestGraph clone(made);
  REQUIRE_CUDA(cudaGraphReleaseUserObject(clone, object, 1));
  CHECK(destroyed == 0);
  REQUIRE_CUDA(cudaGraphReleaseUserObject(clone, object, 1));
  CHECK(eventually([&] { return destroyed == 1; }));
}

// ---- Memory nodes

// CUDA Runtime API, Graph Management, cudaGraphAddMemAllocNode: "it returns the address of the
// allocation in nodeParams.dptr. The allocation's address remains fixed across instantiations and
// launches." "If the allocation is freed in the same graph ... the allocation can be accessed by
// nodes ordered after the allocation node but before the free node."
TEST_CASE("memory of a graph is used between its nodes", "[rules][graph]") {
  const PinnedMemory<std::uint8_t> host(64);
  const TestGraph graph = empty_graph();
  void* data = nullptr;
  const cudaGraphNode_t allocation = add_allocation(graph, {}, 64, &data);
  REQUIRE(data != nullptr);
  const cudaGraphNode_t fill = add_fill(graph, {allocation}, fill_params(data, 5, 64));
  const cudaGraphNode_t copy =
      add_copy(graph, {fill}, host.data(), data, 64, cudaMemcpyDeviceToHost);
  const cudaGraphNode_t free = add_free(graph, {copy}, data);
  cudaMemAllocNodeParams params{};
  REQUIRE_CUDA(cudaGraphMemAllocNodeGetParams(allocation, &params));
  CHECK(params.dptr == data);
  CHECK(params.bytesize == 64);
  CHECK(params.poolProps.location.type == cudaMemLocationTypeDevice);
  CHECK(params.poolProps.location.id == 0);
  void* freed = nullptr;
  REQUIRE_CUDA(cudaGraphMemFreeNodeGetParams(free, static_cast<void*>(&freed)));
  CHECK(freed == data);
  const TestStream stream;
  const TestGraphExec exec(graph);
  for (int launch = 0; launch < 3; ++launch) {
    host.set(0);
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(host.all(5));
  }
}

// The same: "If the allocation is not freed in the same graph, then it can be accessed not only by
// nodes in the graph which are ordered after the allocation node, but also by stream operations
// ordered after the graph's execution but before the allocation is freed." "Allocations which are
// not freed in the same graph can be freed by: passing the allocation to cudaMemFreeAsync or
// cudaMemFree; launching a graph with a free node for that allocation".
TEST_CASE("memory of a graph can outlive the launch", "[rules][graph]") {
  const PinnedMemory<std::uint8_t> host(64);
  const TestGraph graph = empty_graph();
  void* data = nullptr;
  const cudaGraphNode_t allocation = add_allocation(graph, {}, 64, &data);
  add_fill(graph, {allocation}, fill_params(data, 6, 64));
  const TestStream stream;
  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaMemcpyAsync(host.data(), data, 64, cudaMemcpyDeviceToHost, stream));
  SECTION("freed by a stream") {
    REQUIRE_CUDA(cudaFreeAsync(data, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(host.all(6));
  }
  SECTION("freed by another graph, as often as it is allocated") {
    const TestGraph freeing = empty_graph();
    add_free(freeing, {}, data);
    const TestGraphExec free(freeing);
    REQUIRE_CUDA(cudaGraphLaunch(free, stream));
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaGraphLaunch(free, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(host.all(6));
    // "If the allocation is freed in another graph, a free node can no longer be added to the
    // owning graph."
    cudaGraphNode_t node = nullptr;
    check_refused(cudaGraphAddMemFreeNode(&node, graph, nullptr, 0, data));
  }
}

// CUDA Runtime API, Graph Management, cudaGraphAddMemFreeNode returns cudaErrorInvalidValue "if the
// user attempts to free: an allocation twice in the same graph; an address that was not returned by
// an allocation node; an invalid address."
TEST_CASE("a graph frees memory of allocation nodes, once", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestGraph graph = empty_graph(), other = empty_graph();
  void* data = nullptr;
  const cudaGraphNode_t allocation = add_allocation(graph, {}, 64, &data);
  add_free(graph, {allocation}, data);
  cudaGraphNode_t node = nullptr;
  check_invalid(cudaGraphAddMemFreeNode(&node, graph, &allocation, 1, data));
  check_invalid(cudaGraphAddMemFreeNode(&node, graph, &allocation, 1, device.data()));
  // "If the allocation is freed in the same graph, a free node cannot be added to another graph."
  check_refused(cudaGraphAddMemFreeNode(&node, other, nullptr, 0, data));
  CHECK(graph.nodes() == 2);
}

// The same: "The following restrictions apply to graphs which contain allocation and/or memory free
// nodes: Nodes and edges of the graph cannot be deleted. The graph can only be used in a child node
// if the ownership is moved to the parent. Only one instantiation of the graph may exist at any
// point in time. The graph cannot be cloned."
TEST_CASE("a graph with memory nodes is not copied, and loses nothing", "[rules][graph]") {
  const TestGraph graph = empty_graph(), parent = empty_graph();
  void* data = nullptr;
  const cudaGraphNode_t allocation = add_allocation(graph, {}, 64, &data);
  const cudaGraphNode_t end = add_empty(graph, {allocation});
  add_free(graph, {end}, data);
  check_refused(cudaGraphDestroyNode(end));
  check_refused(remove_dependency(graph, allocation, end));
  cudaGraph_t clone = nullptr;
  check_refused(cudaGraphClone(&clone, graph));
  cudaGraphNode_t node = nullptr;
  check_refused(cudaGraphAddChildGraphNode(&node, parent, nullptr, 0, graph));
  const TestGraphExec exec(graph);
  cudaGraphExec_t second = nullptr;
  check_refused(cudaGraphInstantiate(&second, graph, 0));
  CHECK(graph.nodes() == 3);
}

// ---- Captures and graphs

// CUDA Runtime API, Stream Management, cudaStreamBeginCaptureToGraph: "all operations pushed into
// the stream will not be executed, but will instead be captured into graph, which will be returned
// via cudaStreamEndCapture." "dependencies: Dependencies of the first node captured in the stream."
TEST_CASE("a capture adds to a graph", "[rules][capture]") {
  HostLog log;
  const TestStream stream;
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t first = add_note(graph, {}, log, 1);
  const cudaGraphNode_t last = add_note(graph, {}, log, 4);
  REQUIRE_CUDA(cudaStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1,
                                             cudaStreamCaptureModeThreadLocal));
  auto status = cudaStreamCaptureStatusNone;
  REQUIRE_CUDA(cudaStreamIsCapturing(stream, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  log.enqueue(stream, 2);
  log.enqueue(stream, 3);
  const cudaGraphNode_t* tail = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  REQUIRE_CUDA(capture_info(stream, &status, &tail, &edges, &count));
  REQUIRE(count == 1);
  const cudaGraphNode_t captured_last = *tail;
  cudaGraph_t same = nullptr;
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &same));
  CHECK(same == graph);
  CHECK(graph.nodes() == 4);
  REQUIRE_CUDA(add_dependency(graph, captured_last, last));
  run_once(graph, stream);
  CHECK(log.entries() == std::vector{1, 2, 3, 4});
  // And once more, without dependencies.
  REQUIRE_CUDA(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                             cudaStreamCaptureModeThreadLocal));
  log.enqueue(stream, 5);
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &same));
  CHECK(same == graph);
  std::size_t roots = 0;
  REQUIRE_CUDA(cudaGraphGetRootNodes(graph, nullptr, &roots));
  CHECK(roots == 2);
}

// CUDA Runtime API, Stream Management, cudaStreamUpdateCaptureDependencies: "Modifies the
// dependency set of a capturing stream. The dependency set is the set of nodes that the next
// captured node in the stream will depend on." "Nodes that are removed from the dependency set via
// this API do not result in cudaErrorStreamCaptureUnjoined if they are unreachable from the stream
// at cudaStreamEndCapture." "Returns cudaErrorIllegalState if the stream is not capturing."
TEST_CASE("what a capture comes after can be set", "[rules][capture]") {
  HostLog log;
  const TestStream stream;
  const TestGraph captured = capture(stream, [&] {
    log.enqueue(stream, 1);
    auto status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* tail = nullptr;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData* edges = nullptr;
    std::size_t count = 0;
    REQUIRE_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &tail, &edges, &count));
#else
    std::size_t count = 0;
    REQUIRE_CUDA(cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &tail, &count));
#endif
    REQUIRE(count == 1);
    cudaGraphNode_t first = *tail;
    // A node that is added by hand beside the capture, and then made a part of it.
    cudaGraphNode_t added = add_note(graph, {first}, log, 2);
    REQUIRE_CUDA(update_dependencies(stream, &added, 1, cudaStreamSetCaptureDependencies));
    log.enqueue(stream, 3);
    REQUIRE_CUDA(update_dependencies(stream, &first, 1, cudaStreamAddCaptureDependencies));
    log.enqueue(stream, 4);
    REQUIRE_CUDA(update_dependencies(stream, nullptr, 0, cudaStreamSetCaptureDependencies));
    log.enqueue(stream, 5);
  });
  CHECK(captured.nodes() == 5);
  std::size_t edges = 0, roots = 0;
  REQUIRE_CUDA(edges_of(captured, nullptr, nullptr, &edges));
  CHECK(edges == 4);
  REQUIRE_CUDA(cudaGraphGetRootNodes(captured, nullptr, &roots));
  CHECK(roots == 2);
  run_once(captured, stream);
  std::vector<int> entries = log.entries();
  std::erase(entries, 5);
  CHECK(entries == std::vector{1, 2, 3, 4});
  CHECK(update_dependencies(stream, nullptr, 0, cudaStreamSetCaptureDependencies) ==
        cudaErrorIllegalState);
  cudaGetLastError();
}

// ---- Executable graphs

// CUDA Runtime API, Graph Management, cudaGraphInstantiateWithParams:
// "cudaGraphInstantiateFlagUpload, which will perform an upload of the graph into uploadStream once
// the graph has been instantiated." cudaGraphExecGetFlags: "Returns the flags that were passed to
// instantiation".
TEST_CASE("an executable graph tells its flags", "[rules][graph]") {
  HostLog log;
  const TestStream stream;
  const TestGraph graph = empty_graph();
  add_note(graph, {}, log, 1);
  cudaGraphInstantiateParams params{};
  params.flags = cudaGraphInstantiateFlagUpload;
  params.uploadStream = stream;
  cudaGraphExec_t exec = nullptr;
  REQUIRE_CUDA(cudaGraphInstantiateWithParams(&exec, graph, &params));
  CHECK(params.result_out == cudaGraphInstantiateSuccess);
  CHECK(params.errNode_out == nullptr);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries().empty());
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
  unsigned long long flags = 0;
  CHECK_CUDA(cudaGraphExecGetFlags(exec, &flags));
  CHECK(flags == cudaGraphInstantiateFlagAutoFreeOnLaunch);
  CHECK_CUDA(cudaGraphExecDestroy(exec));
}

// CUDA Runtime API, Graph Management, cudaGraphDebugDotPrint: "write to path a DOT formatted
// description of the graph".
TEST_CASE("a graph is written as a picture's text", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t fill = add_fill(graph, {}, device, 1);
  add_empty(graph, {fill});
  char path[] = "/tmp/penstock_graph_XXXXXX";
  const int file = ::mkstemp(path);
  REQUIRE(file >= 0);
  CHECK_CUDA(cudaGraphDebugDotPrint(graph, path, cudaGraphDebugDotFlagsVerbose));
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  CHECK(text.rfind("digraph", 0) == 0);
  CHECK(text.find("->") != std::string::npos);
  std::remove(path);
}

// ---- A whole step of a pipeline

// A batch is copied to the device, a host function counts it, and the result is copied back; each
// launch is of another batch, by an update of the two copies.
TEST_CASE("a pipeline's step is a graph that is updated for each batch", "[rules][graph]") {
  constexpr std::size_t bytes = 4096;
  constexpr int batches = 200;
  struct Counts {
    std::atomic<int> begun{0};
  } counts;
  const PinnedMemory<std::uint8_t> sources[2]{PinnedMemory<std::uint8_t>(bytes),
                                              PinnedMemory<std::uint8_t>(bytes)};
  const PinnedMemory<std::uint8_t> results[2]{PinnedMemory<std::uint8_t>(bytes),
                                              PinnedMemory<std::uint8_t>(bytes)};
  const DeviceMemory<std::uint8_t> device(bytes);
  const TestGraph graph = empty_graph();
  const cudaGraphNode_t upload = add_copy(graph, {}, device, sources[0]);
  const cudaGraphNode_t step = add_host(
      graph, {upload}, [](void* data) { ++static_cast<Counts*>(data)->begun; }, &counts);
  const cudaGraphNode_t download = add_copy(graph, {step}, results[0], device);
  const TestGraphExec exec(graph);
  const TestStream stream;
  const TestEvent done[2];
  int wrong = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const int slot = batch % 2;
    REQUIRE_CUDA(cudaEventSynchronize(done[slot]));
    if (batch >= 2 && !results[slot].all(static_cast<std::uint8_t>(batch - 2))) ++wrong;
    sources[slot].set(static_cast<std::uint8_t>(batch));
    REQUIRE_CUDA(cudaGraphExecMemcpyNodeSetParams1D(
        exec, upload, device.data(), sources[slot].data(), bytes, cudaMemcpyHostToDevice));
    REQUIRE_CUDA(cudaGraphExecMemcpyNodeSetParams1D(exec, download, results[slot].data(),
                                                    device.data(), bytes, cudaMemcpyDeviceToHost));
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaEventRecord(done[slot], stream));
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(wrong == 0);
  CHECK(counts.begun == batches);
  CHECK(results[0].all(static_cast<std::uint8_t>(batches - 2)));
  CHECK(results[1].all(static_cast<std::uint8_t>(batches - 1)));
}
