// SPDX-License-Identifier: Apache-2.0
#pragma once

// The handles of graphs, and the nodes that calls name by them. A wrong handle finds nothing: the
// call returns cudaErrorInvalidValue.

#include <algorithm>
#include <vector>

#include "seam.hpp"

namespace penstock::emulation::detail {

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

/// Whether the data of the edges, of which there may be none, are those of an ordinary edge. Only
/// kernels have others.
bool ordinary(const cudaGraphEdgeData* edges, std::size_t count);

/// The nodes that a list names: of this graph, and none of them twice.
cudaError_t find_all(const Call& call, const Graph& graph, const cudaGraphNode_t* handles,
                     const cudaGraphEdgeData* edges, std::size_t count,
                     std::vector<GraphNode*>& nodes);

/// Writes as many handles as `*count` has room for, then null. Without room, `*count` becomes the
/// number of all there are; else, of what was written.
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
