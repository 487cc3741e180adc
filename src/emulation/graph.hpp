// SPDX-License-Identifier: Apache-2.0
#pragma once

// Graphs: nodes and the edges between them, made by a capture or node by node. What a node does,
// the memory that nodes allocate, and the objects of the program's that a graph keeps alive. A
// graph is laid out for launching by graph_plan.hpp, and launched by graph_exec.hpp. Used under the
// runtime's lock.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "annotations.hpp"
#include "event.hpp"
#include "memory.hpp"
#include "task.hpp"

namespace penstock::emulation::detail {

class Runtime;
class Graph;
struct Device;

// ---- User objects

class UserObject : public Counted {
 public:
  UserObject(void* data, cudaHostFn_t destroy, unsigned references)
      : data_(data), destroy_(destroy), references_(references) {}

  void retain(unsigned count) { references_ += count; }
  /// False when there are not that many references.
  bool release(unsigned count);
  bool unreferenced() const { return references_ == 0; }
  /// How to destroy the program's object, once unreferenced.
  HostWork destruction() const { return {destroy_, nullptr, nullptr, data_}; }
  /// A graph that refers to it was launched, the last time here.
  void used_by(const TaskEdgesPtr& launch) {
    if (launch) before_destruction_.emplace_back(launch, &launch->completed);
  }
  /// Every release, and what launched graphs do, happens before the destruction.
  const std::vector<std::shared_ptr<Edge>>& before_destruction() const {
    return before_destruction_;
  }

  std::uint64_t handle = 0;

 private:
  void* data_;
  cudaHostFn_t destroy_;
  std::uint64_t references_;
  const std::shared_ptr<Edge> released_ = detects_races() ? std::make_shared<Edge>() : nullptr;
  std::vector<std::shared_ptr<Edge>> before_destruction_{released_};
};

/// References that a graph holds.
class UserObjectRefs {
 public:
  explicit UserObjectRefs(Runtime& runtime) : runtime_(runtime) {}
  UserObjectRefs(const UserObjectRefs&) = delete;
  UserObjectRefs& operator=(const UserObjectRefs&) = delete;
  ~UserObjectRefs();

  void add(UserObject& object, unsigned count) { counts_[object.handle] += count; }
  /// As many references as `other` has, beside those that are here.
  void copy(const UserObjectRefs& other);
  /// See UserObject.
  void used_by(const TaskEdgesPtr& launch);
  /// False when there are not that many. The references themselves are still to be released.
  bool remove(const UserObject& object, unsigned count);

 private:
  Runtime& runtime_;
  std::map<std::uint64_t, unsigned> counts_;  // by handle
};

// ---- Memory allocated inside a graph

/// Keeps its place for as long as a graph that allocates or frees it, or an executable of one,
/// exists.
class GraphMemory : public Counted {
 public:
  /// `owner`: handle of the graph that allocates it.
  GraphMemory(Runtime& runtime, void* data, std::uint64_t owner);
  ~GraphMemory() override;

  void* data() const { return data_; }
  std::uint64_t owner() const { return owner_; }
  bool freed_by_owner = false;   ///< the graph that allocates it has a node that frees it
  bool freed_by_other = false;   ///< another graph has
  bool outlives_launch = false;  ///< launched, and not freed since

 private:
  Runtime& runtime_;
  void* data_;
  std::uint64_t owner_;
};

// ---- Nodes

/// What a node does: what the program sets when it adds the node, and may change later.
struct NodeAction {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  Work work = JoinWork{};
  Ref<Event> event{};  ///< recorded or waited for outside the graph
};

struct GraphNode : Counted {
  GraphNode(Graph& owner, NodeAction what, std::vector<GraphNode*> dependencies)
      : graph(owner), action(std::move(what)), after(std::move(dependencies)) {}

  Graph& graph;
  NodeAction action;
  Ref<Graph> child{};             ///< of cudaGraphNodeTypeGraph
  std::vector<GraphNode*> after;  ///< in the order in which the edges were added
  std::uint64_t handle = 0;
  std::uint64_t cloned_from = 0;            ///< handle of the node that this one is a copy of
  std::vector<cudaMemAccessDesc> access{};  ///< of cudaGraphNodeTypeMemAlloc: kept for the program
};

// ---- Graphs

/// Whether the graph is the child graph of a node, and how it became so.
enum class Embedded { no, cloned, moved };

class Graph : public Counted {
 public:
  explicit Graph(Runtime& runtime) : objects(runtime), runtime_(runtime) {}
  ~Graph() override;

  /// In the order in which they were added.
  const std::vector<Ref<GraphNode>>& nodes() const { return nodes_; }
  /// Each after all that it depends on; of several that could be next, the one that was added
  /// first. Those that are on a cycle of edges, or behind one, are missing.
  std::vector<const GraphNode*> in_order() const;

  GraphNode& add(NodeAction action, std::vector<GraphNode*> after);
  /// `child` has a handle, and belongs to the node from now on.
  GraphNode& add_child(const Ref<Graph>& child, Embedded how, std::vector<GraphNode*> after);
  /// A node that allocates, of which the memory has its address at once; or one that frees the
  /// memory of such a node, of this graph or of another one.
  cudaError_t add_allocation(Device& device, std::size_t bytes, std::vector<GraphNode*> after,
                             GraphNode** node);
  cudaError_t add_free(void* data, std::vector<GraphNode*> after, GraphNode** node);
  void remove(GraphNode& node);

  /// The same nodes, edges and references, in a new graph. Not of a graph that orders memory.
  Ref<Graph> clone() const;

  /// Whether a node, or one of a child graph, allocates or frees memory: then there is one
  /// executable at a time, and no copy.
  bool orders_memory() const;
  /// What the nodes allocate, and what they free.
  const std::vector<Ref<GraphMemory>>& allocated() const { return allocated_; }
  const std::vector<Ref<GraphMemory>>& freed() const { return freed_; }

  UserObjectRefs objects;
  std::uint64_t handle = 0;
  Embedded embedded = Embedded::no;

 private:
  Runtime& runtime_;
  std::vector<Ref<GraphNode>> nodes_;
  std::vector<Ref<GraphMemory>> allocated_, freed_;
};

}  // namespace penstock::emulation::detail
