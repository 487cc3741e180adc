// SPDX-License-Identifier: Apache-2.0

// Graphs that are made node by node: the edges between nodes are all the order there is.

#include <initializer_list>
#include <vector>

#include "races.hpp"
#include "support/cuda_version.hpp"

namespace races {
namespace {

using Nodes = std::vector<cudaGraphNode_t>;
using penstock::test::add_dependency;
using penstock::test::remove_dependency;
using penstock::test::update_dependencies;

/// A graph that is made, launched and destroyed.
class Graph {
 public:
  Graph() { must(cudaGraphCreate(&graph_, 0)); }
  explicit Graph(cudaGraph_t graph) : graph_(graph) {}
  ~Graph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  cudaGraph_t get() const noexcept { return graph_; }

  // ---- Nodes
  cudaGraphNode_t copy(const Nodes& after, const Device& to, const Pinned& from) const {
    return copy(after, to.data(), from.data(), cudaMemcpyHostToDevice);
  }
  cudaGraphNode_t copy(const Nodes& after, const Pinned& to, const Device& from) const {
    return copy(after, to.data(), from.data(), cudaMemcpyDeviceToHost);
  }
  cudaGraphNode_t copy(const Nodes& after, void* to, const void* from, cudaMemcpyKind kind) const {
    cudaGraphNode_t node = nullptr;
    must(cudaGraphAddMemcpyNode1D(&node, graph_, after.data(), after.size(), to, from, size, kind));
    return node;
  }
  cudaGraphNode_t fill(const Nodes& after, void* data, unsigned element = 1) const {
    cudaMemsetParams params{};
    params.dst = data;
    params.value = 0x0102;
    params.elementSize = element;
    params.width = size / element;
    params.height = 1;
    cudaGraphNode_t node = nullptr;
    must(cudaGraphAddMemsetNode(&node, graph_, after.data(), after.size(), &params));
    return node;
  }
  /// A host function that writes the memory.
  cudaGraphNode_t host(const Nodes& after, const Pinned& memory) const {
    const auto write = [](void* data) {
      for (std::size_t i = 0; i < size; ++i) static_cast<unsigned char*>(data)[i] = 1;
    };
    const cudaHostNodeParams params{write, memory.data()};
    cudaGraphNode_t node = nullptr;
    must(cudaGraphAddHostNode(&node, graph_, after.data(), after.size(), &params));
    return node;
  }
  cudaGraphNode_t empty(const Nodes& after) const {
    cudaGraphNode_t node = nullptr;
    must(cudaGraphAddEmptyNode(&node, graph_, after.data(), after.size()));
    return node;
  }
  cudaGraphNode_t child(const Nodes& after, const Graph& graph) const {
    cudaGraphNode_t node = nullptr;
    must(cudaGraphAddChildGraphNode(&node, graph_, after.data(), after.size(), graph.get()));
    return node;
  }
  cudaGraphNode_t allocate(const Nodes& after, void** data) const {
    cudaMemAllocNodeParams params{};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location = {cudaMemLocationTypeDevice, 0};
    params.bytesize = size;
    cudaGraphNode_t node = nullptr;
    must(cudaGraphAddMemAllocNode(&node, graph_, after.data(), after.size(), &params));
    *data = params.dptr;
    return node;
  }
  cudaGraphNode_t free(const Nodes& after, void* data) const {
    cudaGraphNode_t node = nullptr;
    must(cudaGraphAddMemFreeNode(&node, graph_, after.data(), after.size(), data));
    return node;
  }

  // ---- Launches
  cudaGraphExec_t exec() {
    if (exec_ == nullptr) must(cudaGraphInstantiate(&exec_, graph_, 0));
    return exec_;
  }
  void launch(const penstock::Stream& stream) { must(cudaGraphLaunch(exec(), stream.get())); }
  void run() {
    const penstock::Stream stream;
    launch(stream);
    stream.synchronize();
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

/// The node, or none.
Nodes if_right(Version version, std::initializer_list<cudaGraphNode_t> nodes) {
  return is_right(version) ? Nodes(nodes) : Nodes{};
}

// ---- Edges between two nodes

void copy_after_copy(Version version) {
  const Pinned source, result;
  const Device device;
  Graph graph;
  const cudaGraphNode_t upload = graph.copy({}, device, source);
  graph.copy(if_right(version, {upload}), result, device);
  graph.run();
}

void copy_after_fill(Version version) {
  const Pinned result;
  const Device device;
  Graph graph;
  const cudaGraphNode_t fill = graph.fill({}, device.data());
  graph.copy(if_right(version, {fill}), result, device);
  graph.run();
}

void copy_after_fill_of_elements(Version version) {
  const Pinned result;
  const Device device;
  Graph graph;
  const cudaGraphNode_t fill = graph.fill({}, device.data(), 4);
  graph.copy(if_right(version, {fill}), result, device);
  graph.run();
}

void copy_after_host_node(Version version) {
  const Pinned source;
  const Device device;
  Graph graph;
  const cudaGraphNode_t host = graph.host({}, source);
  graph.copy(if_right(version, {host}), device, source);
  graph.run();
}

void host_node_after_copy(Version version) {
  const Pinned source;
  const Device device;
  Graph graph;
  const cudaGraphNode_t upload = graph.copy({}, device, source);
  graph.host(if_right(version, {upload}), source);
  graph.run();
}

void edge_added_later(Version version) {
  const Pinned source;
  const Device device;
  Graph graph;
  const cudaGraphNode_t upload = graph.copy({}, device, source);
  const cudaGraphNode_t host = graph.host({}, source);
  if (is_right(version)) must(add_dependency(graph.get(), host, upload));
  graph.run();
}

void edge_removed(Version version) {
  const Pinned source;
  const Device device;
  Graph graph;
  const cudaGraphNode_t host = graph.host({}, source);
  const cudaGraphNode_t upload = graph.copy({host}, device, source);
  if (!is_right(version)) must(remove_dependency(graph.get(), host, upload));
  graph.run();
}

void middle_node_destroyed(Version version) {
  const Pinned source;
  const Device device;
  Graph graph;
  const cudaGraphNode_t host = graph.host({}, source);
  const cudaGraphNode_t middle = graph.empty({host});
  const cudaGraphNode_t upload = graph.copy({middle}, device, source);
  must(cudaGraphDestroyNode(middle));  // and with it both edges
  if (is_right(version)) must(add_dependency(graph.get(), host, upload));
  graph.run();
}

// ---- Shapes

/// The edge of one of two nodes to the third is missing.
void join_of_two(Version version) {
  const Pinned first, second, result;
  const Device device;
  Graph graph;
  const cudaGraphNode_t left = graph.copy({}, device, first);
  const cudaGraphNode_t other = graph.host({}, second);
  graph.copy(is_right(version) ? Nodes{left, other} : Nodes{other}, result, device);
  graph.run();
}

/// Two nodes that both follow a third do not follow each other.
void siblings(Version version) {
  const Pinned source, first, second;
  const Device device;
  Graph graph;
  const cudaGraphNode_t upload = graph.copy({}, device, source);
  const cudaGraphNode_t left = graph.copy({upload}, first, device);
  graph.fill(is_right(version) ? Nodes{left} : Nodes{upload}, device.data());
  graph.run();
}

/// Phases between empty nodes; a node of the second is tied to one of the first only.
void phases(Version version) {
  const std::vector<Pinned> sources(3);
  const std::vector<Device> devices(3);
  Graph graph;
  Nodes uploads;
  for (std::size_t i = 0; i < 3; ++i) uploads.push_back(graph.copy({}, devices[i], sources[i]));
  const cudaGraphNode_t barrier = graph.empty(uploads);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t next = (i + 1) % 3;
    graph.host(is_right(version) ? Nodes{barrier} : Nodes{uploads[i]}, sources[next]);
  }
  graph.run();
}

void behind_child_graph(Version version) {
  const Pinned source;
  const Device device;
  Graph child, graph;
  child.copy({}, device, source);
  const cudaGraphNode_t inner = graph.child({}, child);
  graph.host(if_right(version, {inner}), source);
  graph.run();
}

void before_child_graph(Version version) {
  const Pinned source;
  const Device device;
  Graph child, graph;
  child.copy({}, device, source);
  const cudaGraphNode_t host = graph.host({}, source);
  graph.child(if_right(version, {host}), child);
  graph.run();
}

void within_child_graph(Version version) {
  const Pinned source;
  const Device device;
  Graph child, graph;
  const cudaGraphNode_t host = child.host({}, source);
  child.copy(if_right(version, {host}), device, source);
  graph.child({}, child);
  graph.run();
}

void clone_keeps_edges(Version version) {
  const Pinned source;
  const Device device;
  const Graph original;
  const cudaGraphNode_t host = original.host({}, source);
  original.copy(if_right(version, {host}), device, source);
  cudaGraph_t made = nullptr;
  must(cudaGraphClone(&made, original.get()));
  Graph(made).run();
}

/// A disabled node keeps its place: with it go the edges of what is before and behind it.
void disabled_node(Version version) {
  const Pinned source, other;
  const Device device, second;
  Graph graph;
  const cudaGraphNode_t host = graph.host({}, source);
  const cudaGraphNode_t between = graph.copy(if_right(version, {host}), second, other);
  graph.copy({between}, device, source);
  must(cudaGraphNodeSetEnabled(graph.exec(), between, 0));
  graph.run();
}

// ---- Graphs and what is outside

void event_node_for_a_stream(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream stream, other;
  penstock::Event copied;
  Graph graph;
  const cudaGraphNode_t upload = graph.copy({}, device, source);
  const Nodes after = if_right(version, {upload});
  cudaGraphNode_t record = nullptr;
  must(cudaGraphAddEventRecordNode(&record, graph.get(), after.data(), after.size(), copied.get()));
  graph.launch(stream);
  copied.make_wait(other.get());
  Graph writer;
  writer.host({}, source);
  writer.launch(other);
  other.synchronize();
  stream.synchronize();
}

void wait_node_for_a_stream(Version version) {
  const Pinned source, result;
  const Device device;
  const penstock::Stream stream, other;
  penstock::Event copied;
  Graph graph;
  cudaGraphNode_t wait = nullptr;
  must(cudaGraphAddEventWaitNode(&wait, graph.get(), nullptr, 0, copied.get()));
  graph.copy(if_right(version, {wait}), result, device);
  copy(device, source, other.get());
  copied.record(other.get());
  graph.launch(stream);
  stream.synchronize();
  other.synchronize();
}

/// The next batch is written while the launch before still reads.
void source_of_the_launch_before(Version version) {
  const Pinned sources[2];
  const Device device;
  const penstock::Stream stream;
  Graph graph;
  const cudaGraphNode_t upload = graph.copy({}, device, sources[0]);
  for (std::size_t batch = 0; batch < 2; ++batch) {
    const Pinned& source = sources[is_right(version) ? batch : 0];
    source.fill(static_cast<unsigned char>(batch));
    must(cudaGraphExecMemcpyNodeSetParams1D(graph.exec(), upload, device.data(), source.data(),
                                            size, cudaMemcpyHostToDevice));
    graph.launch(stream);
  }
  stream.synchronize();
}

void result_of_an_explicit_graph(Version version) {
  const Pinned source, result;
  const Device device;
  const penstock::Stream stream;
  Graph graph;
  const cudaGraphNode_t upload = graph.copy({}, device, source);
  graph.copy({upload}, result, device);
  graph.launch(stream);
  if (is_right(version)) stream.synchronize();
  result.read();
  stream.synchronize();
}

// ---- Memory nodes

void use_after_allocation_node(Version version) {
  void* data = nullptr;
  Graph graph;
  const cudaGraphNode_t allocation = graph.allocate({}, &data);
  const cudaGraphNode_t fill = graph.fill(if_right(version, {allocation}), data);
  graph.free({fill, allocation}, data);
  graph.run();
}

void use_before_free_node(Version version) {
  void* data = nullptr;
  Graph graph;
  const cudaGraphNode_t allocation = graph.allocate({}, &data);
  const cudaGraphNode_t fill = graph.fill({allocation}, data);
  graph.free({is_right(version) ? fill : allocation}, data);
  graph.run();
}

void freed_by_another_graph(Version version) {
  void* data = nullptr;
  const Pinned result;
  const penstock::Stream stream, other;
  Graph graph, freeing;
  const cudaGraphNode_t allocation = graph.allocate({}, &data);
  graph.fill({allocation}, data);
  freeing.free({}, data);
  graph.launch(stream);
  must(cudaMemcpyAsync(result.data(), data, size, cudaMemcpyDeviceToHost, stream.get()));
  penstock::Event copied;
  copied.record(stream.get());
  if (is_right(version)) copied.make_wait(other.get());
  freeing.launch(other);
  stream.synchronize();
  other.synchronize();
}

// ---- Captures into graphs

void capture_behind_a_node(Version version) {
  const Pinned source;
  const Device device;
  const penstock::Stream stream;
  Graph graph;
  const cudaGraphNode_t host = graph.host({}, source);
  const Nodes after = if_right(version, {host});
  must(cudaStreamBeginCaptureToGraph(stream.get(), graph.get(), after.data(), nullptr, after.size(),
                                     cudaStreamCaptureModeThreadLocal));
  copy(device, source, stream.get());
  cudaGraph_t same = nullptr;
  must(cudaStreamEndCapture(stream.get(), &same));
  graph.run();
}

void dependencies_of_a_capture(Version version) {
  const Pinned source, result;
  const Device device;
  const penstock::Stream stream;
  must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  copy(device, source, stream.get());
  if (!is_right(version))
    must(update_dependencies(stream.get(), nullptr, 0, cudaStreamSetCaptureDependencies));
  copy(result, device, stream.get());
  cudaGraph_t made = nullptr;
  must(cudaStreamEndCapture(stream.get(), &made));
  Graph(made).run();
}

}  // namespace

const std::vector<Scenario> explicit_graphs{
    {"copy_after_copy", copy_after_copy},
    {"copy_after_fill", copy_after_fill},
    {"copy_after_fill_of_elements", copy_after_fill_of_elements},
    {"copy_after_host_node", copy_after_host_node},
    {"host_node_after_copy", host_node_after_copy},
    {"edge_added_later", edge_added_later},
    {"edge_removed", edge_removed},
    {"middle_node_destroyed", middle_node_destroyed},
    {"join_of_two", join_of_two},
    {"siblings", siblings},
    {"phases", phases},
    {"behind_child_graph", behind_child_graph},
    {"before_child_graph", before_child_graph},
    {"within_child_graph", within_child_graph},
    {"clone_keeps_edges", clone_keeps_edges},
    {"disabled_node", disabled_node},
    {"event_node_for_a_stream", event_node_for_a_stream},
    {"wait_node_for_a_stream", wait_node_for_a_stream},
    {"source_of_the_launch_before", source_of_the_launch_before},
    {"result_of_an_explicit_graph", result_of_an_explicit_graph},
    {"use_after_allocation_node", use_after_allocation_node},
    {"use_before_free_node", use_before_free_node},
    {"freed_by_another_graph", freed_by_another_graph},
    {"capture_behind_a_node", capture_behind_a_node},
    {"dependencies_of_a_capture", dependencies_of_a_capture},
};

}  // namespace races
