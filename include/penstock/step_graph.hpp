// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepGraph: the kernels of a step as one CUDA graph for each device slot. The first launch for a
// slot captures the step; later ones replay the graph: one launch, whatever the number of kernels.
//
//   penstock::StepGraph graphs;
//   while (auto batch = prefetcher.next(stream))
//     graphs.launch(batch, stream, [&] { train_step<<<132, 256, 0, stream>>>(*batch, loss); });
//
// A replay repeats the captured kernels with the captured arguments. A graph is replayed only for a
// batch that is, byte for byte, the one that it was captured with: the same slot, the same number
// of samples, the same plain members. A short last batch gets a graph of its own. Whatever else
// changes from step to step (a learning rate, a step count) must lie in device memory.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock {

template <class Batch>
class Lease;

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
  /// Graphs that are kept for one slot: for a full batch, a short one, and two more.
  static constexpr std::size_t max_variants = 4;

  StepGraph() = default;

  /// Runs `step` for the batch that `lease` holds, and queues its work on `stream`. `step` takes
  /// nothing, the stream, or (const Batch&, stream). Does not block.
  ///
  /// The first launch for a batch's slot and contents (the bytes of the Batch object: addresses,
  /// extents, plain members) runs `step` once while `stream` is captured by this thread
  /// (cudaStreamCaptureModeThreadLocal): it may not wait for the device. Later launches for the
  /// same contents do not run `step` and allocate nothing. Beyond `max_variants` contents of a
  /// slot, the graph that was not used for longest is dropped. So a plain member that differs in
  /// every batch, such as a seed, costs a capture each time: put it into a field instead.
  ///
  /// On a stream that is being captured already, `step` runs and becomes a part of that capture:
  /// CUDA launches no graph into one. Throws std::invalid_argument for an empty lease, CudaError,
  /// and what `step` throws: then nothing is queued, and the next launch captures again.
  template <class Batch, class Step>
  requires std::invocable<Step&> || std::invocable<Step&, cudaStream_t> ||
      std::invocable<Step&, const Batch&, cudaStream_t>
  [[gnu::always_inline]] void launch(const Lease<Batch>& lease, cudaStream_t stream, Step&& step) {
    launch_on(detail::named(stream), lease, step);
  }

  /// The next launch for this batch replays.
  template <class Batch>
  bool captured(const Lease<Batch>& lease) const {
    if (!lease || lease.slot() >= slots_.size()) return false;
    const Variants& variants = slots_[lease.slot()];
    return find(variants, std::as_bytes(std::span(&*lease, 1))) != variants.end();
  }

  /// For steps that take no lease: the first launch with `number` captures, all later ones with it
  /// replay, whatever `step` would do now. The caller vouches that the captured arguments are right
  /// each time: for a batch of a prefetcher, launch(lease, ...) sees to that. `number` is any small
  /// number: memory grows with the largest. Otherwise as above.
  template <class Step>
  requires std::invocable<Step&> || std::invocable<Step&, cudaStream_t>
  [[gnu::always_inline]] void launch_numbered(std::size_t number, cudaStream_t stream,
                                              Step&& step) {
    launch_numbered_on(detail::named(stream), number, step);
  }

  /// Drops all graphs: the next launches capture again, for a step that has changed.
  void clear() noexcept {
    slots_.clear();
    numbered_.clear();
  }

 private:
  /// A graph, and the batch that it was captured with.
  struct Variant {
    std::vector<std::byte> contents;
    detail::GraphExec graph;
    std::uint64_t last_used = 0;  // in launches
  };
  using Variants = std::vector<Variant>;

  template <class SomeVariants>
  static auto find(SomeVariants& variants, std::span<const std::byte> contents) {
    return std::find_if(variants.begin(), variants.end(), [&](const Variant& variant) {
      return std::equal(contents.begin(), contents.end(), variant.contents.begin(),
                        variant.contents.end());
    });
  }

  static Variants::iterator add(Variants& variants, std::span<const std::byte> contents,
                                detail::GraphExec graph) {
    Variant added{{contents.begin(), contents.end()}, std::move(graph)};
    if (variants.size() < max_variants) return variants.insert(variants.end(), std::move(added));
    const auto oldest = std::min_element(
        variants.begin(), variants.end(),
        [](const Variant& a, const Variant& b) { return a.last_used < b.last_used; });
    *oldest = std::move(added);
    return oldest;
  }

  template <class Batch, class Step>
  void launch_on(cudaStream_t stream, const Lease<Batch>& lease, Step& step) {
    if (!lease) throw std::invalid_argument("StepGraph::launch: the lease is empty");
    const auto run = [&] {
      if constexpr (std::invocable<Step&, const Batch&, cudaStream_t>)
        step(*lease, stream);
      else
        run_step(step, stream);
    };
    if (is_captured(stream)) return run();
    const auto contents = std::as_bytes(std::span(&*lease, 1));
    if (lease.slot() >= slots_.size()) slots_.resize(lease.slot() + 1);
    Variants& variants = slots_[lease.slot()];
    auto variant = find(variants, contents);
    if (variant == variants.end()) {
      detail::GraphExec graph = capture(run, stream);
      variant = add(variants, contents, std::move(graph));
    }
    variant->last_used = ++launches_;
    replay(variant->graph, stream);
  }

  template <class Step>
  void launch_numbered_on(cudaStream_t stream, std::size_t number, Step& step) {
    const auto run = [&] { run_step(step, stream); };
    if (is_captured(stream)) return run();
    if (number >= numbered_.size()) numbered_.resize(number + 1);
    if (numbered_[number] == nullptr) numbered_[number] = capture(run, stream);
    replay(numbered_[number], stream);
  }

  template <class Step>
  static void run_step(Step& step, cudaStream_t stream) {
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

  template <class Run>
  static detail::GraphExec capture(const Run& run, cudaStream_t stream) {
    detail::StreamCapture capture(stream);
    run();
    const detail::Graph graph = capture.fetch();
    cudaGraphExec_t executable = nullptr;
    detail::check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
    return detail::GraphExec(executable);
  }

  static void replay(const detail::GraphExec& graph, cudaStream_t stream) {
    detail::check(cudaGraphLaunch(graph.get(), stream), "cudaGraphLaunch");
  }

  std::vector<Variants> slots_;
  std::vector<detail::GraphExec> numbered_;
  std::uint64_t launches_ = 0;
};

}  // namespace penstock
