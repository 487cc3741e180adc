// SPDX-License-Identifier: Apache-2.0

// The rules of graphs in graphs: child graphs, copies of graphs, graphs with memory of their own.

#include <atomic>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/eventually.hpp"
#include "support/graph_nodes.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

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
