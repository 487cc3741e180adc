// SPDX-License-Identifier: Apache-2.0
#pragma once

// A graph laid out for launching. The nodes of child graphs stand in line with the others. A chain
// of nodes goes to the launching stream, every branch beside it to a stream of the executable
// graph's own (a lane), so that branches run at the same time and nothing but the graph's edges
// orders them. Used under the runtime's lock.

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph.hpp"

namespace penstock::emulation::detail {

struct GraphPlan {
  struct Step {
    NodeAction action;
    std::vector<std::size_t> after;  ///< steps before this one, in the order of the edges
    std::uint64_t node = 0;          ///< handle of the node
    std::size_t begin = 0;           ///< of the end of a child graph: the step where it begins
    std::size_t lane = 0;            ///< 0: the launching stream
    bool enabled = true;             ///< else only its place in the order is left
  };
  std::vector<Step> steps;
  std::vector<Ref<GraphMemory>> allocated, freed;
  std::size_t lanes = 1;
  std::uint64_t in_cycle = 0;  ///< handle of a node that comes after itself: there is no plan

  explicit GraphPlan(const Graph& graph);

  /// The step that does what the node does, or that ends its child graph. Null: it has none.
  Step* find(std::uint64_t node);

 private:
  std::vector<std::size_t> append(const Graph& graph, const std::vector<std::size_t>& entry);
  void assign_lanes();

  std::unordered_map<std::uint64_t, std::size_t> by_node_;
};

}  // namespace penstock::emulation::detail
