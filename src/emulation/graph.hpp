// SPDX-License-Identifier: Apache-2.0
#pragma once

// Graphs: nodes and the edges between them, created by a capture or node by node; the actions of
// nodes; the memory that nodes allocate; and the user objects that a graph keeps alive.
// graph_plan.hpp prepares a graph for launches, and graph_exec.hpp launches it. Use it with the
// runtime's lock held.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "annotations.hpp"
#include "event.hpp"
#include "memory.hpp"
#include "task.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

class Runtime;
class Graph;
struct Device;

// ---- User objects

class UserObject : public Counted {
 public:
  UserObject(void* data, cudaHostFn_t destroy, unsigned references)
      : data_(data), destroy_(destroy), references_(references) {}

  void retain(unsigned count) { references_ += count; }
  /// Returns false if there are fewer references.
  bool release(unsigned count);
  bool unreferenced() const { return references_ == 0; }
  /// The call that destroys the program's object when it is unreferenced.
  HostWork destruction() const { return {destroy_, nullptr, nullptr, data_}; }
  /// Records the last launch of a graph that refers to it.
  void used_by(const TaskEdgesPtr& launch) {
    if (launch) before_destruction_.emplace_back(launch, &launch->completed);
  }
  /// Edges that make every release, and the work of launched graphs, happen before the destruction.
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

/// The references to user objects that a graph holds.
class UserObjectRefs {
 public:
  explicit UserObjectRefs(Runtime& runtime) : runtime_(runtime) {}
  UserObjectRefs(const UserObjectRefs&) = delete;
  UserObjectRefs& operator=(const UserObjectRefs&) = delete;
  ~UserObjectRefs();

  void add(UserObject& object, unsigned count) { counts_[object.handle] += count; }
  /// Adds as many references as `other` has.
  void copy(const UserObjectRefs& other);
  /// See UserObject::used_by.
  void used_by(const TaskEdgesPtr& launch);
  /// Removes references from this list. Returns false if there are fewer. The caller must still
  /// release them.
  bool remove(const UserObject& object, unsigned count);

 private:
  Runtime& runtime_;
  std::map<std::uint64_t, unsigned> counts_;  // number of references by handle of the user object
};

// ---- Memory allocated inside a graph

/// Memory that a graph node allocates. Its address stays reserved while a graph that allocates or
/// frees it, or an executable of such a graph, exists.
class GraphMemory : public Counted {
 public:
  /// `owner`: the handle of the graph that allocates it.
  GraphMemory(Runtime& runtime, void* data, std::uint64_t owner);
  ~GraphMemory() override;

  void* data() const { return data_; }
  std::uint64_t owner() const { return owner_; }
  bool freed_by_owner = false;   ///< the graph that allocates it has a node that frees it
  bool freed_by_other = false;   ///< another graph has such a node
  bool outlives_launch = false;  ///< it was allocated by a launch and not freed since

 private:
  Runtime& runtime_;
  void* data_;
  std::uint64_t owner_;
};

// ---- Nodes

/// The action of a node: the program sets it when it adds the node, and may change it later.
struct NodeAction {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  Work work = JoinWork{};
  Ref<Event> event{};  ///< an event that the node records or waits for
};

struct GraphNode : Counted {
  GraphNode(Graph& owner, NodeAction what, std::vector<GraphNode*> dependencies)
      : graph(owner), action(std::move(what)), after(std::move(dependencies)) {}

  Graph& graph;
  NodeAction action;
  Ref<Graph> child{};             ///< the child graph of a cudaGraphNodeTypeGraph
  std::vector<GraphNode*> after;  ///< the dependencies, in the order in which the edges were added
  std::uint64_t handle = 0;
  std::uint64_t cloned_from = 0;            ///< handle of the node from which this one was cloned
  std::vector<cudaMemAccessDesc> access{};  ///< of cudaGraphNodeTypeMemAlloc; only returned to the
                                            ///< program
};

// ---- Graphs

/// Whether the graph is the child graph of a node, and whether it was cloned or moved there.
enum class Embedded { no, cloned, moved };

class Graph : public Counted {
 public:
  explicit Graph(Runtime& runtime) : objects(runtime), runtime_(runtime) {}
  ~Graph() override;

  /// The nodes in the order in which they were added.
  const std::vector<Ref<GraphNode>>& nodes() const { return nodes_; }
  /// The nodes in topological order; among several candidates, the one that was added first. Nodes
  /// on a cycle, or that depend on one, are missing.
  std::vector<const GraphNode*> in_order() const;

  GraphNode& add(NodeAction action, std::vector<GraphNode*> after);
  /// Adds a node with a child graph. `child` has a handle, and belongs to the node from now on.
  GraphNode& add_child(const Ref<Graph>& child, Embedded how, std::vector<GraphNode*> after);
  /// Adds a node that allocates memory, whose address is known at once, or a node that frees the
  /// memory of such a node of this graph or of another one.
  cudaError_t add_allocation(Device& device, std::size_t bytes, std::vector<GraphNode*> after,
                             GraphNode** node);
  cudaError_t add_free(void* data, std::vector<GraphNode*> after, GraphNode** node);
  void remove(GraphNode& node);

  /// Returns a new graph with the same nodes, edges and references. Not for a graph that orders
  /// memory.
  Ref<Graph> clone() const;

  /// Whether a node, or a node of a child graph, allocates or frees memory. Such a graph can have
  /// only one executable at a time and cannot be cloned.
  bool orders_memory() const;
  /// The memory that the nodes allocate, and the memory that they free.
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
