// SPDX-License-Identifier: Apache-2.0

// The rules of the nodes of graphs: what each type does, its parameters, and single nodes of an
// executable graph.

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
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
