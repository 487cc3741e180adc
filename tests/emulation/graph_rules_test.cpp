// SPDX-License-Identifier: Apache-2.0

// The rules of graphs: replay, lifetime, update, user objects. Functions: cudaGraph*,
// cudaUserObject*.

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

/// A user object that counts how often it was destroyed. "Destructor callbacks ... are executed by
/// a shared internal thread" (cudaUserObjectCreate), so some time after the last reference went.
class Counted {
 public:
  cudaUserObject_t create() {
    cudaUserObject_t object = nullptr;
    REQUIRE_CUDA(cudaUserObjectCreate(
        &object, &destroyed_, [](void* destroyed) { ++*static_cast<std::atomic<int>*>(destroyed); },
        1, cudaUserObjectNoDestructorSync));
    return object;
  }
  int destroyed() const { return destroyed_; }
  /// Not even when whatever is due by now has been destroyed.
  bool stays_alive() const {
    Counted sentinel;
    CHECK_CUDA(cudaUserObjectRelease(sentinel.create(), 1));
    return eventually([&] { return sentinel.destroyed() == 1; }) && destroyed_ == 0;
  }

 private:
  std::atomic<int> destroyed_{0};
};

}  // namespace

// CUDA Runtime API, Graph Management, cudaGraphLaunch: "Executes graphExec in stream."
TEST_CASE("a graph runs its nodes in the order of their capture", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> first(64), second(64);
  HostLog log;
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] {
    log.enqueue(stream, 1);
    fill_async(device, 1, stream);
    copy_async(first, device, stream);
    log.enqueue(stream, 2);
    fill_async(device, 2, stream);
    copy_async(second, device, stream);
    log.enqueue(stream, 3);
  });
  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(first.all(1));
  CHECK(second.all(2));
  CHECK(log.entries() == std::vector{1, 2, 3});
}

// CUDA C++ Programming Guide, CUDA Graphs: "An executable graph may be launched into a stream,
// similar to any other CUDA work. It may be launched any number of times without repeating the
// instantiation."
TEST_CASE("a graph runs as often as it is launched", "[rules][graph]") {
  constexpr int launches = 100;
  HostLog log;
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] {
    log.enqueue(stream, 1);
    log.enqueue(stream, 2);
  });
  const TestGraphExec exec(graph);
  std::vector<int> expected;
  for (int i = 0; i < launches; ++i) {
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    log.enqueue(stream, 3);
    expected.insert(expected.end(), {1, 2, 3});
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(log.entries() == expected);
}

// CUDA C++ Programming Guide, CUDA Graphs: a copy node keeps addresses, not contents.
TEST_CASE("a replayed copy takes what its source holds then", "[rules][graph]") {
  const PinnedMemory<std::uint8_t> source(64, 1);
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] { copy_async(device, source, stream); });
  const TestGraphExec exec(graph);
  for (std::uint8_t value = 5; value < 8; ++value) {
    source.set(value);
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(device.read() == Bytes(64, value));
  }
}

// CUDA Runtime API, Graph Management, cudaGraphLaunch: "Each launch is ordered behind both any
// previous work in stream and any previous launches of graphExec."
TEST_CASE("a launch waits for the work before it in its stream", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64, 9);
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] { copy_async(host, device, stream); });
  const TestGraphExec exec(graph);
  Gate gate;
  gate.hold(stream);
  fill_async(device, 4, stream);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  CHECK(host.all(9));
  gate.open_and_publish();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(host.all(4));
}

// The same sentence: "... and any previous launches of graphExec."
TEST_CASE("a graph waits for its own previous launch, in whichever stream", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream held, free;
  const TestGraph graph = capture(held, [&] {
    fill_async(device, 1, held);
    copy_async(host, device, held);
  });
  const TestGraphExec exec(graph), other(graph);
  Gate gate;
  gate.hold(held);
  REQUIRE_CUDA(cudaGraphLaunch(exec, held));
  SECTION("the same executable graph") {
    REQUIRE_CUDA(cudaGraphLaunch(exec, free));
    CHECK(cudaStreamQuery(free) == cudaErrorNotReady);
    gate.open();
    CHECK_CUDA(cudaStreamSynchronize(free));
  }
  // "To execute a graph concurrently, it must be instantiated multiple times into multiple
  // executable graphs."
  SECTION("another executable graph of the same graph") {
    REQUIRE_CUDA(cudaGraphLaunch(other, free));
    CHECK_CUDA(cudaStreamSynchronize(free));
    CHECK(cudaStreamQuery(held) == cudaErrorNotReady);
    gate.open_and_publish();
  }
  REQUIRE_CUDA(cudaStreamSynchronize(held));
  CHECK(host.all(1));
}

// CUDA Runtime API, Graph Management, cudaGraphLaunch: a launch is work of its stream.
TEST_CASE("events and waits around a launch include all of it", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> left(64), right(64), after(64);
  const TestStream origin, branch, reader;
  const TestEvent fork, join, launched;
  const TestGraph graph = capture(origin, [&] {
    REQUIRE_CUDA(cudaEventRecord(fork, origin));
    REQUIRE_CUDA(cudaStreamWaitEvent(branch, fork, 0));
    copy_async(left, device, origin);
    copy_async(right, device, branch);
    REQUIRE_CUDA(cudaEventRecord(join, branch));
    REQUIRE_CUDA(cudaStreamWaitEvent(origin, join, 0));
  });
  const TestGraphExec exec(graph);
  Gate gate;
  gate.hold(origin);
  fill_async(device, 6, origin);
  REQUIRE_CUDA(cudaGraphLaunch(exec, origin));
  REQUIRE_CUDA(cudaEventRecord(launched, origin));
  REQUIRE_CUDA(cudaStreamWaitEvent(reader, launched, 0));
  fill_async(device, 7, reader);  // must not overtake either copy of the graph
  copy_async(after, device, reader);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(reader));
  CHECK(left.all(6));
  CHECK(right.all(6));
  CHECK(after.all(7));
}

// CUDA Runtime API, Graph Management, cudaGraphInstantiate: "Instantiates graph as an executable
// graph", which needs the graph no longer; Programming Guide: "a snapshot of the graph template".
TEST_CASE("an executable graph outlives its graph", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  cudaGraphExec_t exec = nullptr;
  {
    const TestGraph graph = capture(stream, [&] { fill_async(device, 3, stream); });
    REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  }
  CHECK_CUDA(cudaGraphLaunch(exec, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK(device.read() == Bytes(64, 3));
}

// CUDA Runtime API, Graph Management, cudaGraphInstantiateWithFlags: as cudaGraphInstantiate.
TEST_CASE("a graph is uploaded without being executed", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] { fill_async(device, 3, stream); });
  cudaGraphExec_t exec = nullptr;
  REQUIRE_CUDA(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  // cudaGraphUpload: "Uploads hGraphExec to the device in hStream without executing it."
  CHECK_CUDA(cudaGraphUpload(exec, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == Bytes(64, 0));
  CHECK_CUDA(cudaGraphExecDestroy(exec));
}

// CUDA Runtime API, Graph Management, cudaGraphGetNodes: "nodes may be NULL, in which case this
// function will return the number of nodes in numNodes. ... If numNodes is higher than the actual
// number of nodes, the remaining entries in nodes will be set to NULL, and the number of nodes
// actually obtained will be returned in numNodes."
TEST_CASE("a graph lists its nodes and their types", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  HostLog log;
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] {
    fill_async(device, 1, stream);
    copy_async(host, device, stream);
    log.enqueue(stream, 1);
  });
  int anything = 0;
  std::vector<cudaGraphNode_t> nodes(5, reinterpret_cast<cudaGraphNode_t>(&anything));
  std::size_t count = nodes.size();
  REQUIRE_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  REQUIRE(count == 3);
  CHECK(nodes[3] == nullptr);
  CHECK(nodes[4] == nullptr);
  std::vector<int> types_found(3, 0);
  for (std::size_t i = 0; i < count; ++i) {
    auto type = cudaGraphNodeTypeEmpty;
    REQUIRE_CUDA(cudaGraphNodeGetType(nodes[i], &type));
    if (type == cudaGraphNodeTypeMemset) ++types_found[0];
    if (type == cudaGraphNodeTypeMemcpy) ++types_found[1];
    if (type == cudaGraphNodeTypeHost) ++types_found[2];
  }
  CHECK(types_found == std::vector{1, 1, 1});
}

// CUDA Runtime API, Graph Management, cudaGraphCreate: "Creates an empty graph". "flags - Graph
// creation flags, must be 0".
TEST_CASE("an empty graph does nothing", "[rules][graph]") {
  cudaGraph_t empty = nullptr;
  REQUIRE_CUDA(cudaGraphCreate(&empty, 0));
  const TestGraph graph(empty);
  CHECK(graph.nodes() == 0);
  const TestGraphExec exec(graph);
  const TestStream stream;
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(cudaGraphCreate(&empty, 1) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA Runtime API, Graph Management, cudaGraphInstantiate: "If graph contains any allocation or
// free nodes, there can be at most one executable graph in existence for that graph at a time. An
// attempt to instantiate a second executable graph before destroying the first with
// cudaGraphExecDestroy will result in an error."
TEST_CASE("a graph with memory of its own is instantiated once at a time", "[rules][graph]") {
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] {
    void* data = nullptr;
    REQUIRE_CUDA(cudaMallocAsync(&data, 64, stream));
    REQUIRE_CUDA(cudaFreeAsync(data, stream));
  });
  {
    const TestGraphExec exec(graph);
    cudaGraphExec_t second = nullptr;
    CHECK(cudaGraphInstantiate(&second, graph, 0) != cudaSuccess);
    CHECK(cudaGetLastError() != cudaSuccess);
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  const TestGraphExec again(graph);
}

// CUDA Runtime API, Graph Management, cudaGraphExecUpdate: "Updates the node parameters in the
// instantiated graph specified by hGraphExec with the node parameters in a topologically identical
// graph specified by hGraph."
TEST_CASE("an executable graph takes the parameters of another graph", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> first(64), second(64);
  const TestStream stream;
  const auto fill_and_copy = [&](unsigned char value, const PinnedMemory<std::uint8_t>& to) {
    return capture(stream, [&] {
      fill_async(device, value, stream);
      copy_async(to, device, stream);
    });
  };
  const TestGraph graph = fill_and_copy(1, first);
  const TestGraphExec exec(graph);
  const TestGraph changed = fill_and_copy(2, second);
  cudaGraphExecUpdateResultInfo result{};
  REQUIRE_CUDA(cudaGraphExecUpdate(exec, changed, &result));
  CHECK(result.result == cudaGraphExecUpdateSuccess);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(first.all(0));
  CHECK(second.all(2));
}

// The same description: "It returns cudaErrorGraphExecUpdateFailure if the graph update was not
// performed because it included changes which violated constraints specific to instantiated graph
// update." "cudaGraphExecUpdateErrorTopologyChanged if the graph topology changed";
// "cudaGraphExecUpdateErrorNodeTypeChanged if the type of a node changed".
TEST_CASE("an update does not change the shape of an executable graph", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] { fill_async(device, 1, stream); });
  const TestGraphExec exec(graph);
  cudaGraphExecUpdateResultInfo result{};
  SECTION("not the number of its nodes") {
    const TestGraph longer = capture(stream, [&] {
      fill_async(device, 2, stream);
      copy_async(host, device, stream);
    });
    CHECK(cudaGraphExecUpdate(exec, longer, &result) == cudaErrorGraphExecUpdateFailure);
    CHECK(result.result == cudaGraphExecUpdateErrorTopologyChanged);
  }
  SECTION("not their types") {
    const TestGraph other = capture(stream, [&] { copy_async(host, device, stream); });
    CHECK(cudaGraphExecUpdate(exec, other, &result) == cudaErrorGraphExecUpdateFailure);
    CHECK(result.result == cudaGraphExecUpdateErrorNodeTypeChanged);
  }
  CHECK(cudaGetLastError() == cudaErrorGraphExecUpdateFailure);
  // And it still is what it was.
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == Bytes(64, 1));
}

// The same description, of memcpy nodes: "Changing either the source or destination memory type ...
// is not supported." "cudaGraphExecUpdateErrorParametersChanged if any parameters to a node changed
// in a way that is not supported, in which case hErrorNode_out is set to the node from hGraph".
TEST_CASE("an update does not turn a copy round", "[rules][graph]") {
  const DeviceMemory<std::uint8_t> device(64), other(64);
  const PinnedMemory<std::uint8_t> host(64, 5);
  const TestStream stream;
  const TestGraph graph = capture(stream, [&] { copy_async(device, host, stream); });
  const TestGraphExec exec(graph);
  cudaGraphExecUpdateResultInfo result{};
  const auto is_refused = [&](const TestGraph& changed) {
    cudaGraphNode_t node = nullptr;
    std::size_t count = 1;
    REQUIRE_CUDA(cudaGraphGetNodes(changed, &node, &count));
    CHECK(cudaGraphExecUpdate(exec, changed, &result) == cudaErrorGraphExecUpdateFailure);
    CHECK(result.result == cudaGraphExecUpdateErrorParametersChanged);
    CHECK(result.errorNode == node);
    CHECK(cudaGetLastError() == cudaErrorGraphExecUpdateFailure);
  };
  SECTION("not to the host") {
    is_refused(capture(stream, [&] { copy_async(host, device, stream); }));
  }
  SECTION("not to within the device") {
    is_refused(capture(stream, [&] {
      REQUIRE_CUDA(
          cudaMemcpyAsync(device.data(), other.data(), 64, cudaMemcpyDeviceToDevice, stream));
    }));
  }
  // And it still is what it was.
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == Bytes(64, 5));
}

// CUDA Runtime API, User Objects, cudaUserObjectRelease: "The object's destructor is invoked if the
// reference count reaches zero."
TEST_CASE("a user object lives as long as its references", "[rules][graph]") {
  Counted counted;
  const cudaUserObject_t object = counted.create();
  REQUIRE_CUDA(cudaUserObjectRetain(object, 2));
  REQUIRE_CUDA(cudaUserObjectRelease(object, 2));
  CHECK(counted.stays_alive());
  REQUIRE_CUDA(cudaUserObjectRelease(object, 1));
  CHECK(eventually([&] { return counted.destroyed() == 1; }));
}

// CUDA C++ Programming Guide, CUDA User Objects: "When a reference is associated with a graph, CUDA
// will manage the graph operations automatically. A cloned cudaGraph_t retains a copy of every
// reference owned by the source cudaGraph_t, with the same multiplicity. An instantiated
// cudaGraphExec_t retains a copy of every reference in the source cudaGraph_t."
TEST_CASE("a graph and its executable graphs keep a user object alive", "[rules][graph]") {
  Counted counted;
  HostLog log;
  const TestStream stream;
  cudaGraphExec_t exec = nullptr;
  {
    const TestGraph graph = capture(stream, [&] { log.enqueue(stream, 1); });
    // "cudaGraphUserObjectMove: Transfer references from the caller rather than creating new
    // references."
    REQUIRE_CUDA(cudaGraphRetainUserObject(graph, counted.create(), 1, cudaGraphUserObjectMove));
    CHECK(counted.stays_alive());
    REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  }
  CHECK(counted.stays_alive());
  CHECK_CUDA(cudaGraphLaunch(exec, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(counted.stays_alive());
  CHECK_CUDA(cudaGraphExecDestroy(exec));
  CHECK(eventually([&] { return counted.destroyed() == 1; }));
  CHECK(log.entries() == std::vector{1});
}

// The same section: "When a cudaGraphExec_t is destroyed without being synchronized, the references
// are retained until the execution is completed."
TEST_CASE("a launched graph keeps a user object alive until it is done", "[rules][graph]") {
  Counted counted;
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  Gate gate;
  {
    const TestGraph graph = capture(stream, [&] { fill_async(device, 1, stream); });
    REQUIRE_CUDA(cudaGraphRetainUserObject(graph, counted.create(), 1, cudaGraphUserObjectMove));
    const TestGraphExec exec(graph);
    gate.hold(stream);
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  }
  CHECK(counted.destroyed() == 0);  // the gate may hold the thread that would destroy it
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(eventually([&] { return counted.destroyed() == 1; }));
  CHECK(device.read() == Bytes(64, 1));
}

// And the destructor comes behind what the launch does, also where nobody has waited for it.
TEST_CASE("a user object's destructor sees what a launched graph has done", "[rules][graph]") {
  static std::atomic<int> seen;
  static std::atomic<bool> launched;
  seen = 0, launched = false;
  auto* const value = new int(0);
  const TestStream stream;
  cudaUserObject_t object = nullptr;
  const auto destroy = [](void* data) {
    seen = *static_cast<int*>(data);
    delete static_cast<int*>(data);
  };
  REQUIRE_CUDA(cudaUserObjectCreate(&object, value, destroy, 1, cudaUserObjectNoDestructorSync));
  {
    const TestGraph graph = capture(stream, [&] {
      const auto count = [](void* data) { ++*static_cast<int*>(data); };
      REQUIRE_CUDA(cudaLaunchHostFunc(stream, count, value));
    });
    REQUIRE_CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    const TestGraphExec exec(graph);
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    const auto tell = [](void*) { launched.store(true, std::memory_order_relaxed); };
    REQUIRE_CUDA(cudaLaunchHostFunc(stream, tell, nullptr));
    // Mostly it is through then, and no order follows from this look; it need not be.
    for (int i = 0; i < 10'000 && !launched.load(std::memory_order_relaxed); ++i)
      std::this_thread::yield();
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(eventually([&] { return seen == 2; }));
}

// CUDA Runtime API, Graph Management, cudaGraphReleaseUserObject: "Releases user object references
// owned by a graph."
TEST_CASE("a graph lets go of a user object", "[rules][graph]") {
  Counted counted;
  const TestStream stream;
  const cudaUserObject_t object = counted.create();
  const TestGraph graph = capture(stream, [] {});
  REQUIRE_CUDA(cudaGraphRetainUserObject(graph, object, 1, 0));  // a new reference
  REQUIRE_CUDA(cudaUserObjectRelease(object, 1));
  CHECK(counted.stays_alive());
  REQUIRE_CUDA(cudaGraphReleaseUserObject(graph, object, 1));
  CHECK(eventually([&] { return counted.destroyed() == 1; }));
}
