// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepGraph captures the kernels of a step as one CUDA graph for each device slot. The first launch
// for a slot captures the step. Later launches replay the graph, which is one launch for any number
// of kernels.
//
//   penstock::StepGraph graphs;
//   while (auto batch = prefetcher.next(stream))
//     graphs.launch(batch, stream, [&] { train_step<<<132, 256, 0, stream>>>(*batch, loss); });
//
// A replay repeats the captured kernels with the captured arguments. So a graph is replayed only
// for a Batch object with the same bytes as the captured one, that is with the same slot, number of
// samples and plain members. A short last batch gets a graph of its own. Values that change from
// step to step (a learning rate, a step count) must be in device memory.
//
// The total() of a Ragged field belongs to these bytes and differs in nearly every batch. Then
// launch captures nearly every batch, which is correct but slow. The values and their offsets are
// in the slot. So a step that reads the number of values there, as offsets()[size()], and is
// launched for the capacity, can be replayed for every batch with the same number of samples:
//
//   penstock::StepGraph graphs;
//   while (auto batch = prefetcher.next(stream))      // with drop_last, every batch is full
//     graphs.launch_numbered(batch.slot(), stream,
//                            [&] { train_step<<<132, 256, 0, stream>>>(*batch, loss); });

#include <cuda_runtime_api.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/error.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI {

template <class Batch>
class Lease;

namespace detail {

using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

/// Returns the work that `run` queues on `stream` as a graph. If this throws, the capture has
/// ended.
template <class Run>
Graph capture(const Run& run, cudaStream_t stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture (the legacy default stream cannot be captured: create a "
        "penstock::Stream)");
  cudaGraph_t graph = nullptr;
  try {
    run();
    check(cudaStreamEndCapture(stream, &graph),
          "cudaStreamEndCapture (the step may not wait for the device, allocate with cudaMalloc, "
          "use the legacy default stream, or leave work on another stream that its own does not "
          "wait for: record an event behind that work, and let the captured stream wait for it)");
  } catch (...) {
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess) cudaGetLastError();
    const Graph dropped(graph);
    throw;
  }
  return Graph(graph);
}

}  // namespace detail

/// Captures a step as one CUDA graph for each device slot, and replays it. One thread at a time may
/// use it. It is move-only. It may be destroyed while its graphs run.
class StepGraph {
 public:
  /// The largest number of graphs that are kept for a slot and a type of step.
  static constexpr std::size_t max_variants = 4;
  /// launch_numbered takes numbers below this one.
  static constexpr std::size_t max_numbers = 65'536;

  StepGraph() = default;

  /// Queues the work of `step` for the batch of `lease` on `stream`. `step` takes nothing, the
  /// stream, or (const Batch&, stream). Does not block.
  ///
  /// A graph belongs to a slot, to the bytes of the Batch object (addresses, extents and plain
  /// members), and to the type of `step`. The first launch for these calls `step` while this thread
  /// captures `stream` (cudaStreamCaptureModeThreadLocal), so `step` may not wait for the device.
  /// Later launches for the same do not call `step` and do not allocate. Each lambda has a type of
  /// its own. Two steps of one type, such as std::function, need a StepGraph each. If a slot has
  /// more than `max_variants` graphs of a step, the least recently used one is dropped. So a plain
  /// member that differs in every batch, such as a seed, costs a capture each time; put it into a
  /// field instead.
  ///
  /// `stream` becomes a consumer of the batch, as by Lease::also_used_on, unless it already is one.
  ///
  /// If `stream` is being captured already, `step` is called and becomes a part of that capture,
  /// since CUDA cannot launch a graph into a capture. Throws std::invalid_argument for an empty
  /// lease, CudaError, and what `step` throws. Then nothing is queued, and the next launch captures
  /// again.
  template <class Batch, class Step>
  requires std::invocable<Step&> || std::invocable<Step&, cudaStream_t> ||
      std::invocable<Step&, const Batch&, cudaStream_t>
  [[gnu::always_inline]] void launch(const Lease<Batch>& lease, StreamRef stream, Step&& step) {
    launch_on(detail::named(stream), lease, step);
  }

  /// Returns true if there is a graph of any step for this batch.
  template <class Batch>
  bool captured(const Lease<Batch>& lease) const {
    if (!lease || lease.slot() >= slots_.size()) return false;
    const Variants& variants = slots_[lease.slot()];
    return find(variants, nullptr, std::as_bytes(std::span(&*lease, 1))) != variants.end();
  }

  /// Does the same for steps that take no lease. The first launch with `number` captures, and later
  /// launches with it replay, whatever `step` would do now. The caller must make sure that the
  /// captured arguments are right each time, which launch(lease, ...) checks itself. Memory grows
  /// with the largest `number`. Throws std::invalid_argument unless `number` is below
  /// `max_numbers`.
  template <class Step>
  requires std::invocable<Step&> || std::invocable<Step&, cudaStream_t>
  [[gnu::always_inline]] void launch_numbered(std::size_t number, StreamRef stream, Step&& step) {
    launch_numbered_on(detail::named(stream), number, step);
  }

  /// Drops all graphs. Call it if the step has changed; the next launches capture again.
  void clear() noexcept {
    slots_.clear();
    numbered_.clear();
  }

 private:
  /// A graph with the step and the batch of its capture.
  struct Variant {
    const void* step;  // the address of step_tag for its type
    std::vector<std::byte> contents;
    detail::GraphExec graph;
    std::uint64_t last_used = 0;  // the number of the last launch
  };
  using Variants = std::vector<Variant>;

  /// The address of this is different for each type.
  template <class Step>
  static constexpr char step_tag = 0;

  /// Finds the graph of a step and a batch. A `step` of nullptr matches any step.
  template <class SomeVariants>
  static auto find(SomeVariants& variants, const void* step, std::span<const std::byte> contents) {
    return std::find_if(variants.begin(), variants.end(), [&](const Variant& variant) {
      return (step == nullptr || variant.step == step) &&
             std::equal(contents.begin(), contents.end(), variant.contents.begin(),
                        variant.contents.end());
    });
  }

  static Variants::iterator add(Variants& variants, const void* step,
                                std::span<const std::byte> contents, detail::GraphExec graph) {
    Variant added{step, {contents.begin(), contents.end()}, std::move(graph)};
    const auto is_older = [&](const Variant& a, const Variant& b) {
      return std::pair(a.step != step, a.last_used) < std::pair(b.step != step, b.last_used);
    };
    const auto kept = std::count_if(variants.begin(), variants.end(),
                                    [&](const Variant& variant) { return variant.step == step; });
    if (static_cast<std::size_t>(kept) < max_variants)
      return variants.insert(variants.end(), std::move(added));
    const auto oldest = std::min_element(variants.begin(), variants.end(), is_older);
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
    if (!lease.is_used_on(stream)) lease.also_used_on(stream);
    const auto contents = std::as_bytes(std::span(&*lease, 1));
    replay_or_capture(slots_, lease.slot(), &step_tag<std::remove_cv_t<Step>>, contents, run,
                      stream);
  }

  template <class Step>
  void launch_numbered_on(cudaStream_t stream, std::size_t number, Step& step) {
    if (number >= max_numbers)
      throw std::invalid_argument("StepGraph::launch_numbered: number is " +
                                  std::to_string(number) + ", must be below " +
                                  std::to_string(max_numbers));
    const auto run = [&] { run_step(step, stream); };
    if (is_captured(stream)) return run();
    replay_or_capture(numbered_, number, nullptr, {}, run, stream);
  }

  template <class Run>
  void replay_or_capture(std::vector<Variants>& kept, std::size_t number, const void* step,
                         std::span<const std::byte> contents, const Run& run, cudaStream_t stream) {
    if (number >= kept.size()) kept.resize(number + 1);
    Variants& variants = kept[number];
    auto variant = find(variants, step, contents);
    if (variant == variants.end()) {
      const detail::Graph graph = detail::capture(run, stream);
      cudaGraphExec_t executable = nullptr;
      detail::check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
      variant = add(variants, step, contents, detail::GraphExec(executable));
    }
    variant->last_used = ++launches_;
    detail::check(cudaGraphLaunch(variant->graph.get(), stream), "cudaGraphLaunch");
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

  std::vector<Variants> slots_;
  std::vector<Variants> numbered_;  // each has at most one graph
  std::uint64_t launches_ = 0;
};

}  // namespace penstock
