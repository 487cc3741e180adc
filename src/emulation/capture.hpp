// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stream capture: while a stream is captured, its work becomes nodes of a graph. Events extend the
// capture to other streams. Calls that CUDA forbids during a capture return an error, and most such
// errors invalidate the capture. Use it with the runtime's lock held.

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "event.hpp"
#include "graph.hpp"
#include "stream.hpp"
#include "thread_state.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

class Runtime;

struct Capture {
  std::uint64_t number;
  cudaStreamCaptureMode mode;
  std::uint64_t thread;  ///< the thread that began it
  Stream* origin;
  Ref<Graph> graph;
  bool makes_graph;  ///< false: the graph belonged to the program before
  bool valid = true;
  std::vector<Stream*> streams;       ///< all streams that take part; the origin is the first
  std::vector<cudaGraphNode_t> told;  ///< the handles that cudaStreamGetCaptureInfo has returned
};

class Captures {
 public:
  explicit Captures(Runtime& runtime) : runtime_(runtime) {}

  /// Whether a capture adds nodes to the graph.
  bool captures(const Graph& graph) const;
  /// Whether a capture adds nodes to the graph and gives it to the program when it ends.
  bool makes(const Graph& graph) const;

  // ---- Begin and end
  cudaError_t begin(Stream& stream, cudaStreamCaptureMode mode, const ThreadState& thread);
  /// Adds the work to a graph of the program, after these nodes of it.
  cudaError_t begin(Stream& stream, cudaStreamCaptureMode mode, const ThreadState& thread,
                    Graph& graph, std::vector<GraphNode*> after);
  /// Ends the capture. Sets `graph` to the captured graph, unless there is an error.
  cudaError_t end(Stream& stream, const ThreadState& thread, Ref<Graph>* graph);

  // ---- Checks whether a call is allowed now
  /// For a potentially unsafe call: checks the capture modes of this thread and of the others.
  cudaError_t admit_unsafe(const ThreadState& thread);
  /// For work on `stream`, or a query whether it is captured.
  cudaError_t admit(Stream& stream);
  /// For a wait for, or a query of, the work of `stream`.
  cudaError_t admit_wait(Stream& stream);
  /// For a wait for all work of a device.
  cudaError_t admit_wait(const Device& device);
  /// For a query that must not invalidate a capture. The legacy stream cannot be used while a
  /// blocking stream of its device is captured.
  cudaError_t admit_look(const Stream& stream) const;

  // ---- Captured work of a stream in a valid capture
  void add(Stream& stream, NodeAction action);
  /// Makes the stream's next node depend on this one.
  void advance(Stream& stream, GraphNode& node) { stream.capture_tail = {&node}; }
  /// Makes the stream's next node depend on these nodes, in addition to its present dependencies or
  /// (`replace`) instead of them.
  void depend(Stream& stream, const std::vector<GraphNode*>& nodes, bool replace);
  void record(Stream& stream, Event& event);
  /// Makes `stream` wait for an event. One of the two is captured.
  cudaError_t wait(Stream& stream, const Event& event);
  bool concerns(const Stream& stream, const Event& event) const {
    return stream.capture != nullptr || event.capture() != 0;
  }

  /// Call it when the stream is destroyed.
  void forget(Stream& stream);
  /// Call it when all streams are destroyed.
  void forget_all();

 private:
  void start(Stream& stream, cudaStreamCaptureMode mode, const ThreadState& thread,
             Ref<Graph> graph, bool makes_graph);
  Capture* find(std::uint64_t number) const;
  bool joined(const Capture& capture) const;
  void drop(Capture& capture);

  Runtime& runtime_;
  std::uint64_t begun_ = 0;
  std::vector<std::unique_ptr<Capture>> captures_;
};

/// Returns the type of node for the work.
cudaGraphNodeType node_type(const Work& work);

}  // namespace penstock::emulation::detail
