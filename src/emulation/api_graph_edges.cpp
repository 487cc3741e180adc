// SPDX-License-Identifier: Apache-2.0
//
// Calls about the shape of a graph: its nodes and edges, and copies of it.

#include <algorithm>
#include <set>
#include <utility>

#include "graph_dot.hpp"
#include "graph_handles.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

using Nodes = std::vector<cudaGraphNode_t>;

/// Reports that all edges are ordinary.
void tell_ordinary(cudaGraphEdgeData* edges, std::size_t count) {
  if (edges != nullptr) std::fill_n(edges, count, cudaGraphEdgeData{});
}

cudaError_t list_nodes(const Nodes& all, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                       std::size_t* count) {
  if (count == nullptr || (edges != nullptr && nodes == nullptr)) return cudaErrorInvalidValue;
  list(all, nodes, count);
  tell_ordinary(edges, *count);
  return cudaSuccess;
}

/// The edges of a call, as pairs of nodes of the graph.
using Edges = std::vector<std::pair<GraphNode*, GraphNode*>>;
cudaError_t find_edges(const Call& call, const Graph& graph, const cudaGraphNode_t* from,
                       const cudaGraphNode_t* to, const cudaGraphEdgeData* data, std::size_t count,
                       Edges& edges) {
  if (count != 0 && (from == nullptr || to == nullptr)) return cudaErrorInvalidValue;
  std::set<std::pair<GraphNode*, GraphNode*>> known;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode *const one = find(call, from[i]), *const other = find(call, to[i]);
    if (one == nullptr || other == nullptr || one == other || &one->graph != &graph ||
        &other->graph != &graph || !known.emplace(one, other).second)
      return cudaErrorInvalidValue;
    edges.emplace_back(one, other);
  }
  return ordinary(data, count) ? cudaSuccess : cudaErrorInvalidValue;
}

bool depends(const GraphNode& node, const GraphNode& on) {
  return std::find(node.after.begin(), node.after.end(), &on) != node.after.end();
}

/// Changes all of the edges, or nothing if the call is invalid.
cudaError_t change_edges(const Call& call, cudaGraph_t handle, const cudaGraphNode_t* from,
                         const cudaGraphNode_t* to, const cudaGraphEdgeData* data,
                         std::size_t count, bool add) {
  const Graph* const graph = find(call, handle);
  if (graph == nullptr) return cudaErrorInvalidValue;
  Edges edges;
  const cudaError_t status = find_edges(call, *graph, from, to, data, count, edges);
  if (status != cudaSuccess) return status;
  for (const auto& [one, other] : edges)
    if (depends(*other, *one) == add) return cudaErrorInvalidValue;
  if (!add && !edges.empty() && graph->orders_memory()) return cudaErrorNotSupported;
  for (const auto& [one, other] : edges)
    add ? other->after.push_back(one) : static_cast<void>(std::erase(other->after, one));
  return cudaSuccess;
}

cudaError_t destroy_node(const Call& call, cudaGraphNode_t handle) {
  GraphNode* const node = find(call, handle);
  // While the graph is captured, a stream or an event may refer to the node.
  if (node == nullptr || call.runtime.captures.captures(node->graph)) return cudaErrorInvalidValue;
  if (node->graph.orders_memory()) return cudaErrorNotSupported;
  if (node->child && call.runtime.captures.captures(*node->child)) return cudaErrorInvalidValue;
  node->graph.remove(*node);
  return cudaSuccess;
}

}  // namespace

cudaError_t graph_edges(cudaGraph_t handle, cudaGraphNode_t* from, cudaGraphNode_t* to,
                        cudaGraphEdgeData* edges, std::size_t* count) {
  return enter(Function::cudaGraphGetEdges, [&](Call& call) {
    const Graph* const graph = find(call, handle);
    if (graph == nullptr || count == nullptr || (from == nullptr) != (to == nullptr) ||
        (edges != nullptr && from == nullptr))
      return cudaErrorInvalidValue;
    Nodes all_from, all_to;
    for (const Ref<GraphNode>& node : graph->nodes())
      for (const GraphNode* earlier : node->after) {
        all_from.push_back(handle_of(*earlier));
        all_to.push_back(handle_of(*node));
      }
    std::size_t room = *count;
    list(all_from, from, count);
    list(all_to, to, &room);
    tell_ordinary(edges, *count);
    return cudaSuccess;
  });
}

cudaError_t node_dependencies(cudaGraphNode_t handle, cudaGraphNode_t* nodes,
                              cudaGraphEdgeData* edges, std::size_t* count) {
  return enter(Function::cudaGraphNodeGetDependencies, [&](Call& call) {
    const GraphNode* const node = find(call, handle);
    if (node == nullptr) return cudaErrorInvalidValue;
    Nodes all;
    for (const GraphNode* earlier : node->after) all.push_back(handle_of(*earlier));
    return list_nodes(all, nodes, edges, count);
  });
}

cudaError_t node_dependents(cudaGraphNode_t handle, cudaGraphNode_t* nodes,
                            cudaGraphEdgeData* edges, std::size_t* count) {
  return enter(Function::cudaGraphNodeGetDependentNodes, [&](Call& call) {
    const GraphNode* const node = find(call, handle);
    if (node == nullptr) return cudaErrorInvalidValue;
    Nodes all;
    for (const Ref<GraphNode>& other : node->graph.nodes())
      if (depends(*other, *node)) all.push_back(handle_of(*other));
    return list_nodes(all, nodes, edges, count);
  });
}

cudaError_t add_dependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                             const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                             std::size_t count) {
  return enter(Function::cudaGraphAddDependencies,
               [&](Call& call) { return change_edges(call, graph, from, to, edges, count, true); });
}

cudaError_t remove_dependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                std::size_t count) {
  return enter(Function::cudaGraphRemoveDependencies, [&](Call& call) {
    return change_edges(call, graph, from, to, edges, count, false);
  });
}

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count) {
  return enter(Function::cudaGraphGetNodes, [&](Call& call) {
    const Graph* const graph = find(call, handle);
    if (graph == nullptr) return cudaErrorInvalidValue;
    Nodes all;
    for (const Ref<GraphNode>& node : graph->nodes()) all.push_back(handle_of(*node));
    return list_nodes(all, nodes, nullptr, count);
  });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count) {
  return enter(Function::cudaGraphGetRootNodes, [&](Call& call) {
    const Graph* const graph = find(call, handle);
    if (graph == nullptr) return cudaErrorInvalidValue;
    Nodes roots;
    for (const Ref<GraphNode>& node : graph->nodes())
      if (node->after.empty()) roots.push_back(handle_of(*node));
    return list_nodes(roots, nodes, nullptr, count);
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, cudaGraphNodeType* type) {
  return enter(Function::cudaGraphNodeGetType, [&](Call& call) {
    const GraphNode* const node = find(call, handle);
    if (node == nullptr || type == nullptr) return cudaErrorInvalidValue;
    *type = node->action.type;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return enter(Function::cudaGraphDestroyNode,
               [&](Call& call) { return destroy_node(call, node); });
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t original) {
  return enter(Function::cudaGraphClone, [&](Call& call) {
    const Graph* const graph = find(call, original);
    if (clone == nullptr || graph == nullptr) return cudaErrorInvalidValue;
    if (graph->orders_memory()) return cudaErrorNotSupported;
    *clone = handle_of(*graph->clone());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* twin, cudaGraphNode_t original,
                                     cudaGraph_t clone) {
  return enter(Function::cudaGraphNodeFindInClone, [&](Call& call) {
    const Graph* const graph = find(call, clone);
    const GraphNode* const node = find(call, original);
    if (twin == nullptr || graph == nullptr || node == nullptr) return cudaErrorInvalidValue;
    for (const Ref<GraphNode>& copy : graph->nodes()) {
      if (copy->cloned_from != node->handle) continue;
      *twin = handle_of(*copy);
      return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t handle, const char* path, unsigned flags) {
  return enter(Function::cudaGraphDebugDotPrint, [&](Call& call) {
    const Graph* const graph = find(call, handle);
    if (graph == nullptr || path == nullptr) return cudaErrorInvalidValue;
    return write_dot(*graph, path, flags) ? cudaSuccess : cudaErrorOperatingSystem;
  });
}

}  // extern "C"
