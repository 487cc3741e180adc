// SPDX-License-Identifier: Apache-2.0
#pragma once

// Captured graphs for tests:
//
//   const TestGraph graph = capture(stream, [&] { copy_async(device, host, stream); });
//   const TestGraphExec exec(graph);
//   cudaGraphLaunch(exec, stream);

#include <utility>

#include "catch.hpp"

namespace penstock::test {

/// Owns a graph, or none.
class TestGraph {
 public:
  explicit TestGraph(cudaGraph_t graph) : graph_(graph) {}
  TestGraph(TestGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  TestGraph& operator=(TestGraph&&) = delete;
  ~TestGraph() {
    if (graph_ != nullptr) CHECK_CUDA(cudaGraphDestroy(graph_));
  }

  // NOLINTNEXTLINE(google-explicit-constructor): stands for the handle in CUDA calls.
  operator cudaGraph_t() const noexcept { return graph_; }

  std::size_t nodes() const {
    std::size_t count = 0;
    REQUIRE_CUDA(cudaGraphGetNodes(graph_, nullptr, &count));
    return count;
  }

 private:
  cudaGraph_t graph_;
};

class TestGraphExec {
 public:
  explicit TestGraphExec(cudaGraph_t graph) {
    REQUIRE_CUDA(cudaGraphInstantiate(&exec_, graph, 0));
  }
  ~TestGraphExec() { CHECK_CUDA(cudaGraphExecDestroy(exec_)); }
  TestGraphExec(const TestGraphExec&) = delete;
  TestGraphExec& operator=(const TestGraphExec&) = delete;

  // NOLINTNEXTLINE(google-explicit-constructor): stands for the handle in CUDA calls.
  operator cudaGraphExec_t() const noexcept { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

/// What `enqueue` puts on `stream`, as a graph.
template <class Enqueue>
TestGraph capture(cudaStream_t stream, Enqueue&& enqueue,
                  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, mode));
  enqueue();
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
  return TestGraph(graph);
}

}  // namespace penstock::test
