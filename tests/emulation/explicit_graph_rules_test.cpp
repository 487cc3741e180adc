// SPDX-License-Identifier: Apache-2.0

// The rules of graphs, where they are made node by node: edges, captures into a graph, executable
// graphs, a whole step of a pipeline.

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
#include "support/graph_nodes.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

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
  CHECK(device.read() == std::vector<std::uint8_t>(64, 9));
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
