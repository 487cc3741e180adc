// SPDX-License-Identifier: Apache-2.0
#pragma once

// The plan of a graph: its nodes as a list of steps for launches. The nodes of child graphs are
// part of the list. One chain of nodes runs on the launching stream. Every further branch runs on a
// stream of the executable graph (a lane), so that branches run concurrently and only the graph's
// edges order them. Use it with the runtime's lock held.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

struct GraphPlan {
  struct Step {
    NodeAction action;
    std::vector<std::size_t> after;  ///< steps that this one depends on, in the order of the edges
    std::uint64_t node = 0;          ///< handle of the node
    std::size_t begin = 0;           ///< for the end of a child graph: the step where that graph
                                     ///< begins
    std::size_t lane = 0;            ///< 0: the launching stream
    bool enabled = true;             ///< false: the step does nothing but keeps its place in the
                                     ///< order
  };
  std::vector<Step> steps;
  std::vector<Ref<GraphMemory>> allocated, freed;
  std::size_t lanes = 1;
  std::uint64_t in_cycle = 0;  ///< handle of a node on a cycle; then there is no plan

  explicit GraphPlan(const Graph& graph);

  /// Returns the step of a node, or the step that ends its child graph; null if there is none.
  Step* find(std::uint64_t node);

 private:
  std::vector<std::size_t> append(const Graph& graph, const std::vector<std::size_t>& entry);
  void assign_lanes();

  std::unordered_map<std::uint64_t, std::size_t> by_node_;
};

}  // namespace penstock::emulation::detail
