// SPDX-License-Identifier: Apache-2.0
#include "graph_plan.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// Returns a node on a cycle. Each node that is not in `placed` has a predecessor that is not in it
/// either, so following predecessors reaches a cycle.
std::uint64_t find_cycle(const Graph& graph,
                         const std::unordered_map<const GraphNode*, std::size_t>& placed) {
  const auto missing = [&](const GraphNode* node) { return placed.count(node) == 0; };
  const GraphNode* node = nullptr;
  for (const Ref<GraphNode>& any : graph.nodes())
    if (missing(any.get())) node = any.get();
  for (std::size_t i = 0; i < graph.nodes().size(); ++i)
    node = *std::find_if(node->after.begin(), node->after.end(), missing);
  return node->handle;
}

}  // namespace

GraphPlan::GraphPlan(const Graph& graph) {
  append(graph, {});
  for (std::size_t i = 0; i < steps.size(); ++i) by_node_[steps[i].node] = i;
  if (in_cycle == 0) assign_lanes();
}

GraphPlan::Step* GraphPlan::find(std::uint64_t node) {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? nullptr : &steps[found->second];
}

/// Adds the steps of a graph whose first steps follow `entry`. Returns the steps that no other step
/// follows.
std::vector<std::size_t> GraphPlan::append(const Graph& graph,
                                           const std::vector<std::size_t>& entry) {
  allocated.insert(allocated.end(), graph.allocated().begin(), graph.allocated().end());
  freed.insert(freed.end(), graph.freed().begin(), graph.freed().end());
  const std::vector<const GraphNode*> order = graph.in_order();
  std::unordered_map<const GraphNode*, std::size_t> end_of;
  std::unordered_set<std::size_t> followed;
  for (const GraphNode* node : order) {
    std::vector<std::size_t> after;
    for (const GraphNode* earlier : node->after) {
      after.push_back(end_of[earlier]);
      followed.insert(end_of[earlier]);
    }
    if (node->after.empty()) after = entry;
    std::size_t begin = steps.size();
    if (node->child) {
      steps.push_back({{}, std::move(after), node->handle});
      after = append(*node->child, {begin});
      if (after.empty()) after = {begin};
    }
    end_of[node] = steps.size();
    steps.push_back({node->action, std::move(after), node->handle, begin});
  }
  if (order.size() < graph.nodes().size()) in_cycle = find_cycle(graph, end_of);
  std::vector<std::size_t> exits;
  for (const GraphNode* node : order)
    if (followed.count(end_of[node]) == 0) exits.push_back(end_of[node]);
  return exits;
}

/// A step extends a lane if it depends on the last step of the lane, directly or indirectly. So the
/// order within a lane is never stricter than the graph's.
void GraphPlan::assign_lanes() {
  std::vector<std::size_t> lengths;            // number of steps of each lane so far
  std::vector<std::vector<std::size_t>> seen;  // for each step: steps of each lane before it
  std::vector<std::size_t> places;             // for each step: its place in its lane, from 1
  for (Step& step : steps) {
    std::vector<std::size_t> before;
    for (const std::size_t earlier : step.after) {
      const std::vector<std::size_t>& of_earlier = seen[earlier];
      before.resize(std::max({before.size(), of_earlier.size(), steps[earlier].lane + 1}));
      for (std::size_t lane = 0; lane < of_earlier.size(); ++lane)
        before[lane] = std::max(before[lane], of_earlier[lane]);
      std::size_t& in_its_lane = before[steps[earlier].lane];
      in_its_lane = std::max(in_its_lane, places[earlier]);
    }
    step.lane = 0;
    while (step.lane < before.size() && (before[step.lane] != lengths[step.lane])) ++step.lane;
    if (step.lane == before.size()) step.lane = lengths.size();
    if (step.lane == lengths.size()) lengths.push_back(0);
    places.push_back(++lengths[step.lane]);
    seen.push_back(std::move(before));
  }
  lanes = std::max<std::size_t>(1, lengths.size());
}

}  // namespace penstock::emulation::detail
