// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepGraph: the kernels of a step as one CUDA graph for each device slot. The first launch for a
// slot captures the step; all later ones replay it, at the cost of one launch, whatever the number
// of kernels.
//
//   penstock::StepGraph graphs;
//   while (auto batch = prefetcher.next(stream))
//     graphs.launch(batch.slot(), stream, [&] { train_step(*batch, weights, stream); });
//
// A replay repeats the captured kernels with the captured arguments. A lease's slot has fixed
// addresses, so its batch is right again; whatever else changes from step to step (a learning rate,
// a step count, a seed) must lie in device memory. A short batch has other extents: leave it to
// drop_last, or run it without a graph.

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <penstock/error.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {
namespace detail {

struct GraphDeleter {
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const noexcept { cudaGraphExecDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDeleter>;
using GraphExec = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, GraphDeleter>;

/// Ends the capture of `stream`, and drops it unless it is fetched.
class StreamCapture {
 public:
  explicit StreamCapture(cudaStream_t stream) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;
  ~StreamCapture() {
    if (ended_) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_, &graph) != cudaSuccess) cudaGetLastError();
    const Graph dropped(graph);
  }

  Graph fetch() {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph),
          "cudaStreamEndCapture (the step may not wait for the device, allocate with cudaMalloc, "
          "use the legacy default stream, or leave streams that it forked unjoined)");
    ended_ = true;
    return Graph(graph);
  }

 private:
  cudaStream_t stream_;
  bool ended_ = false;
};

}  // namespace detail

/// Belongs to one thread at a time. Move-only; graphs that still run may be dropped.
class StepGraph {
 public:
  StepGraph() = default;

  /// Runs `step`, which takes nothing or the stream, and queues its work on `stream`, for `slot`
  /// (any small number: memory grows with the largest). Does not block. At the first launch for the
  /// slot, `step` runs once, while `stream` is captured by this thread (cudaStreamCaptureMode-
  /// ThreadLocal): nothing of it may wait for the device. Later launches do not run `step` and
  /// allocate nothing. On a stream that is being captured already, `step` runs and becomes a part
  /// of that capture: CUDA launches no graph into one. What `step` throws passes through, and
  /// CudaError: then nothing is queued, and the next launch captures again.
  template <class Step>
  requires std::invocable<Step&> || std::invocable<Step&, cudaStream_t>
  void launch(std::size_t slot, cudaStream_t stream, Step&& step) {
    if (is_captured(stream)) return run(step, stream);
    if (!captured(slot)) {
      detail::GraphExec graph = capture(step, stream);
      if (slot >= graphs_.size()) graphs_.resize(slot + 1);
      graphs_[slot] = std::move(graph);
    }
    detail::check(cudaGraphLaunch(graphs_[slot].get(), stream), "cudaGraphLaunch", slot);
  }

  /// The next launch for `slot` replays.
  bool captured(std::size_t slot) const noexcept {
    return slot < graphs_.size() && graphs_[slot] != nullptr;
  }

  /// Drops all graphs: the next launch for each slot captures again, for a step that has changed.
  void clear() noexcept { graphs_.clear(); }

 private:
  template <class Step>
  static void run(Step& step, cudaStream_t stream) {
    if constexpr (std::invocable<Step&, cudaStream_t>)
      step(stream);
    else
      step();
  }

  static bool is_captured(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    detail::check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  template <class Step>
  static detail::GraphExec capture(Step& step, cudaStream_t stream) {
    detail::StreamCapture capture(stream);
    run(step, stream);
    const detail::Graph graph = capture.fetch();
    cudaGraphExec_t executable = nullptr;
    detail::check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
    return detail::GraphExec(executable);
  }

  std::vector<detail::GraphExec> graphs_;  // by slot
};

}  // namespace penstock
