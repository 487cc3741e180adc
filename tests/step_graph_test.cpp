// SPDX-License-Identifier: Apache-2.0

// Runs emulated, and on a GPU.

#include <penstock/prefetcher.hpp>
#include <penstock/step_graph.hpp>

#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  REQUIRE_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

/// Host memory that steps copy to a place on the device.
struct Copies {
  PinnedMemory<int> from{1, 0};
  DeviceMemory<int> to{1};
  int steps = 0;

  void operator()(cudaStream_t stream) {
    ++steps;
    copy_async(to, from, stream);
  }
};

TEST_CASE("step graph: the first launch for a slot captures, the others replay", "[step_graph]") {
  const TestStream stream;
  Copies slots[2];
  StepGraph graphs;
  for (int round = 1; round <= 5; ++round)
    for (std::size_t slot : {1u, 0u}) {
      slots[slot].from[0] = 10 * round + static_cast<int>(slot);
      CHECK(graphs.captured(slot) == (round > 1));
      graphs.launch(slot, stream, slots[slot]);
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
      CHECK(slots[slot].to.read().front() == 10 * round + static_cast<int>(slot));
      CHECK(slots[slot].steps == 1);
    }
}

TEST_CASE("step graph: a step may take nothing", "[step_graph]") {
  const TestStream stream;
  Copies copies;
  copies.from[0] = 5;
  StepGraph graphs;
  graphs.launch(0, stream, [&] { copies(stream); });
  CHECK(copies.to.read().front() == 5);
}

TEST_CASE("step graph: every batch of a prefetcher, through one graph for each slot",
          "[step_graph]") {
  const TestStream stream;
  const Sampler sampler{{.samples = 240, .batch_size = 8, .shuffle = true, .seed = 3}};
  Prefetcher<Numbers> prefetcher(numbers_layout(8), sampler, write_numbers,
                                 {.workers = 2, .device_depth = 3, .epochs = 4});
  const DeviceMemory<std::uint64_t> last(8);
  const PinnedMemory<std::uint64_t> all(4 * 240);
  StepGraph graphs;
  int captures = 0;
  std::size_t done = 0;
  while (auto batch = prefetcher.next(stream)) {
    graphs.launch(batch.slot(), stream, [&] {
      ++captures;
      REQUIRE_CUDA(cudaMemcpyAsync(last.data(), batch->sample.data_handle(), last.bytes(),
                                   cudaMemcpyDeviceToDevice, stream));
    });
    REQUIRE_CUDA(
        cudaMemcpyAsync(&all[done], last.data(), last.bytes(), cudaMemcpyDeviceToHost, stream));
    done += 8;
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(captures == 3);
  CHECK(std::vector<std::uint64_t>(all.data(), all.data() + done) ==
        serial_sample_numbers(sampler, 4));
}

TEST_CASE("step graph: what a step throws passes through, and the next launch captures again",
          "[step_graph]") {
  const TestStream stream;
  Copies copies;
  StepGraph graphs;
  CHECK_THROWS_AS(graphs.launch(0, stream,
                                [&] {
                                  copies(stream);
                                  throw std::range_error("no");
                                }),
                  std::range_error);
  CHECK_FALSE(is_capturing(stream));
  CHECK_FALSE(graphs.captured(0));
  copies.from[0] = 9;
  graphs.launch(0, stream, copies);
  CHECK(copies.to.read().front() == 9);
}

TEST_CASE("step graph: a step that waits for the device is told what it may not do",
          "[step_graph]") {
  const TestStream stream;
  StepGraph graphs;
  CHECK_THAT(
      thrown<CudaError>([&] { graphs.launch(0, stream, [&] { cudaStreamSynchronize(stream); }); }),
      Mentions("may not wait for the device"));
  cudaGetLastError();
  CHECK_FALSE(is_capturing(stream));
  Copies copies;
  copies.from[0] = 2;
  graphs.launch(0, stream, copies);
  CHECK(copies.to.read().front() == 2);
}

TEST_CASE("step graph: a capture that a step broke before it threw leaves no error behind",
          "[step_graph]") {
  const TestStream stream;
  StepGraph graphs;
  CHECK_THROWS_AS(graphs.launch(0, stream,
                                [&] {
                                  cudaStreamSynchronize(stream);
                                  throw std::range_error("no");
                                }),
                  std::range_error);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK_FALSE(is_capturing(stream));
}

TEST_CASE("step graph: the legacy default stream is refused", "[step_graph]") {
  StepGraph graphs;
  bool ran = false;
  CHECK_THROWS_AS(graphs.launch(0, nullptr, [&] { ran = true; }), CudaError);
  CHECK_FALSE(ran);
}

TEST_CASE("step graph: on a stream that is being captured, it becomes a part of that capture",
          "[step_graph]") {
  const bool captured_before = GENERATE(false, true);
  const TestStream stream;
  Copies copies;
  StepGraph graphs;
  if (captured_before) graphs.launch(0, stream, copies);
  const TestGraph whole = capture(stream, [&] { graphs.launch(0, stream, copies); });
  CHECK(whole.nodes() == 1);
  const TestGraphExec exec(whole);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  copies.from[0] = 77;
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  CHECK(copies.to.read().front() == 77);
}

TEST_CASE("step graph: after clear, a step is captured again", "[step_graph]") {
  const TestStream stream;
  Copies first, second;
  first.from[0] = 1;
  second.from[0] = 2;
  StepGraph graphs;
  graphs.launch(0, stream, first);
  graphs.clear();  // The launch may still run.
  graphs.launch(0, stream, second);
  StepGraph moved = std::move(graphs);
  moved.launch(0, stream, second);
  CHECK(first.to.read().front() == 1);
  CHECK(second.to.read().front() == 2);
  CHECK(second.steps == 1);
}

}  // namespace
}  // namespace penstock
