// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finds the graphs and nodes of the handles that calls pass. For an invalid handle the call returns
// cudaErrorInvalidValue.

#include <algorithm>
#include <vector>

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

inline Graph* find(const Call& call, cudaGraph_t handle) {
  return call.runtime.graphs.find(reinterpret_cast<std::uint64_t>(handle));
}
inline GraphExec* find(const Call& call, cudaGraphExec_t handle) {
  return call.runtime.graph_execs.find(reinterpret_cast<std::uint64_t>(handle));
}
inline GraphNode* find(const Call& call, cudaGraphNode_t handle) {
  return call.runtime.nodes.find(reinterpret_cast<std::uint64_t>(handle));
}

inline cudaGraph_t handle_of(const Graph& graph) {
  return reinterpret_cast<cudaGraph_t>(graph.handle);
}
inline cudaGraphNode_t handle_of(const GraphNode& node) {
  return reinterpret_cast<cudaGraphNode_t>(node.handle);
}

/// Whether all edges are ordinary, or there is no edge data. Only kernels can have other edges.
bool ordinary(const cudaGraphEdgeData* edges, std::size_t count);

/// Finds the nodes of a list of handles. All must belong to this graph, and none may occur twice.
cudaError_t find_all(const Call& call, const Graph& graph, const cudaGraphNode_t* handles,
                     const cudaGraphEdgeData* edges, std::size_t count,
                     std::vector<GraphNode*>& nodes);

/// Writes at most `*count` handles and fills the rest with null. `*count` becomes the number of
/// handles that were written or, if `out` is null, the number of all.
template <class Handle>
void list(const std::vector<Handle>& all, Handle* out, std::size_t* count) {
  if (out == nullptr) {
    *count = all.size();
    return;
  }
  for (std::size_t i = 0; i < *count; ++i) out[i] = i < all.size() ? all[i] : nullptr;
  *count = std::min(*count, all.size());
}

}  // namespace penstock::emulation::detail
