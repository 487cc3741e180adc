// SPDX-License-Identifier: Apache-2.0
#include "graph_handles.hpp"

#include <unordered_set>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

bool ordinary(const cudaGraphEdgeData* edges, std::size_t count) {
  for (std::size_t i = 0; edges != nullptr && i < count; ++i) {
    if (edges[i].from_port != 0 || edges[i].to_port != 0 || edges[i].type != 0) return false;
    for (const unsigned char reserved : edges[i].reserved)
      if (reserved != 0) return false;
  }
  return true;
}

cudaError_t find_all(const Call& call, const Graph& graph, const cudaGraphNode_t* handles,
                     const cudaGraphEdgeData* edges, std::size_t count,
                     std::vector<GraphNode*>& nodes) {
  if (count != 0 && handles == nullptr) return cudaErrorInvalidValue;
  std::unordered_set<const GraphNode*> known;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* const node = find(call, handles[i]);
    if (node == nullptr || &node->graph != &graph || !known.insert(node).second)
      return cudaErrorInvalidValue;
    nodes.push_back(node);
  }
  return ordinary(edges, count) ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace penstock::emulation::detail
