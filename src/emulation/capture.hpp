// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stream capture: while a stream is captured, its work becomes nodes of a graph. Events carry the
// capture from stream to stream. What CUDA forbids meanwhile is an error, and most such errors
// invalidate the capture. Used under the runtime's lock.

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "event.hpp"
#include "graph.hpp"
#include "stream.hpp"
#include "thread_state.hpp"

namespace penstock::emulation::detail {

class Runtime;

struct Capture {
  std::uint64_t number;
  cudaStreamCaptureMode mode;
  std::uint64_t thread;  ///< that began it
  Stream* origin;
  Ref<Graph> graph;
  bool makes_graph;  ///< else the graph was the program's before
  bool valid = true;
  std::vector<Stream*> streams;       ///< all that take part; the origin is the first
  std::vector<cudaGraphNode_t> told;  ///< what cudaStreamGetCaptureInfo has pointed to
};

class Captures {
 public:
  explicit Captures(Runtime& runtime) : runtime_(runtime) {}

  /// Whether a capture adds nodes to the graph.
  bool captures(const Graph& graph) const;
  /// And will give it to the program when it ends.
  bool makes(const Graph& graph) const;

  // ---- Begin and end
  cudaError_t begin(Stream& stream, cudaStreamCaptureMode mode, const ThreadState& thread);
  /// Adds the work to a graph of the program's, behind these nodes of it.
  cudaError_t begin(Stream& stream, cudaStreamCaptureMode mode, const ThreadState& thread,
                    Graph& graph, std::vector<GraphNode*> after);
  /// The captured graph; none together with an error.
  cudaError_t end(Stream& stream, const ThreadState& thread, Ref<Graph>* graph);

  // ---- May this be done now?
  /// A potentially unsafe call, by the capture modes of this thread and of the others.
  cudaError_t admit_unsafe(const ThreadState& thread);
  /// Work for `stream`, or a look at whether it is captured.
  cudaError_t admit(Stream& stream);
  /// A wait for, or a query of, what `stream` holds.
  cudaError_t admit_wait(Stream& stream);
  /// A wait for all that a device holds.
  cudaError_t admit_wait(const Device& device);
  /// A query that must not disturb: the legacy stream cannot be used while a blocking stream of its
  /// device is captured.
  cudaError_t admit_look(const Stream& stream) const;

  // ---- Captured work, of a stream in a valid capture
  void add(Stream& stream, NodeAction action);
  /// The stream's next node comes after this one.
  void advance(Stream& stream, GraphNode& node) { stream.capture_tail = {&node}; }
  /// What the stream's next node comes after, besides what it came after (`replace`: instead).
  void depend(Stream& stream, const std::vector<GraphNode*>& nodes, bool replace);
  void record(Stream& stream, Event& event);
  /// `stream` waits for an event, and one of the two is captured.
  cudaError_t wait(Stream& stream, const Event& event);
  bool concerns(const Stream& stream, const Event& event) const {
    return stream.capture != nullptr || event.capture() != 0;
  }

  /// The stream is destroyed.
  void forget(Stream& stream);
  /// Everything is.
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

/// What kind of node the work becomes.
cudaGraphNodeType node_type(const Work& work);

}  // namespace penstock::emulation::detail
