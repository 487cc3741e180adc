// SPDX-License-Identifier: Apache-2.0
#pragma once

// An executable graph: the plan of a graph at the time of its instantiation, with later updates. A
// launch submits the steps to streams. Use it with the runtime's lock held.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "graph.hpp"
#include "graph_plan.hpp"
#include "stream.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

class GraphExec : public Counted {
 public:
  /// `plan`: a plan of `graph` without a cycle.
  GraphExec(Runtime& runtime, const Graph& graph, GraphPlan plan, unsigned long long flags);
  ~GraphExec() override;

  bool is_of(const Graph& graph) const { return graph_ == graph.handle; }
  unsigned long long flags() const { return flags_; }
  /// Queues a launch after the work of the stream and after the previous launch.
  cudaError_t launch(Stream& stream, const char* name);

  // ---- Updates. A node is identified by its handle in the graph that was instantiated.
  /// Takes over the actions of the nodes of `graph`, if nothing else differs.
  void update(const Graph& graph, cudaGraphExecUpdateResultInfo& info);
  /// Like update(), for the child graph of one node.
  cudaError_t update_child(std::uint64_t node, const Graph& child);
  cudaError_t set(std::uint64_t node, const NodeAction& action);
  /// Returns whether the node is enabled, or null if there is no such node. Only copies and fills
  /// can be disabled.
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
  std::uint64_t graph_;  // handle of the graph
  UserObjectRefs objects_;
  GraphPlan plan_;
  unsigned long long flags_;
  std::vector<Ref<Stream>> lanes_;  // the streams of lanes 1, 2, ...
  Mark last_launch_;

  // State of the launch that is being queued. These are members, so that a launch does not
  // allocate.
  std::vector<Mark> ends_;       // the end of each step that was submitted
  std::vector<Mark> lane_ends_;  // the end of each lane; unset before its first step
};

}  // namespace penstock::emulation::detail
