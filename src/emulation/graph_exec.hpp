// SPDX-License-Identifier: Apache-2.0
#pragma once

// An executable graph: a plan of a graph, as it was when it was instantiated, with what updates
// have changed since. A launch puts the steps into streams. Used under the runtime's lock.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "graph.hpp"
#include "graph_plan.hpp"
#include "stream.hpp"

namespace penstock::emulation::detail {

class GraphExec : public Counted {
 public:
  /// The plan is one of `graph`, without a cycle.
  GraphExec(Runtime& runtime, const Graph& graph, GraphPlan plan, unsigned long long flags);
  ~GraphExec() override;

  bool is_of(const Graph& graph) const { return graph_ == graph.handle; }
  unsigned long long flags() const { return flags_; }
  /// Queues one launch behind what the stream holds, and behind the launch before.
  cudaError_t launch(Stream& stream, const char* name);

  // ---- Updates. A node is named by its handle in the graph that was instantiated.
  /// Takes over what the nodes of `graph` do, if that is all that differs.
  void update(const Graph& graph, cudaGraphExecUpdateResultInfo& info);
  /// The same of the child graph of one node.
  cudaError_t update_child(std::uint64_t node, const Graph& child);
  cudaError_t set(std::uint64_t node, const NodeAction& action);
  /// Null: no such node. Only copies and fills can be disabled.
  bool* enabled(std::uint64_t node);

 private:
  cudaError_t claim_memory();
  cudaGraphExecUpdateResult compare(const GraphPlan& plan, std::size_t first, std::size_t count,
                                    cudaGraphExecUpdateResultInfo& info) const;
  void take_over(const GraphPlan& plan, std::size_t first);
  void share_objects(const Graph& graph);
  void make_lanes(Stream& stream);
  void close_lanes();
  Stream& lane(std::size_t number, Stream& stream) const;
  Mark launch_step(const GraphPlan::Step& step, Stream& stream, const char* name,
                   const Mark& begin);

  Runtime& runtime_;
  std::uint64_t graph_;  // handle
  UserObjectRefs objects_;
  GraphPlan plan_;
  unsigned long long flags_;
  std::vector<Ref<Stream>> lanes_;  // of lane 1 and up
  Mark last_launch_;

  // Of the launch that is being queued; members, so that a launch allocates nothing.
  std::vector<Mark> ends_;       // of each step so far
  std::vector<Mark> lane_ends_;  // of each lane; unset while it has had no step
};

}  // namespace penstock::emulation::detail
