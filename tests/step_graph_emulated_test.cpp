// SPDX-License-Identifier: Apache-2.0

// What only the emulated runtime can tell of a step graph.

#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/step_graph.hpp>

#include <cstdint>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/thrown.hpp"

namespace penstock {
namespace {

using namespace test;

TEST_CASE("step graph: a replay is one launch, and replays a for_each", "[step_graph][emulated]") {
  const TestStream stream;
  const PinnedMemory<int> sums(10, 0);
  StepGraph graphs;
  const auto step = [&] {
    for (int kernel = 0; kernel < 3; ++kernel)
      for_each(stream, 10,
               [data = sums.data()](std::int64_t i) { data[i] += static_cast<int>(i); });
  };
  graphs.launch(4, stream, step);
  emulation::reset_counters();
  for (int i = 0; i < 6; ++i) graphs.launch(4, stream, step);
  CHECK(emulation::call_classes().launching == 6);
  CHECK(emulation::calls("cudaGraphLaunch") == 6);
  CHECK(emulation::call_classes().all == 2 * 6);  // Is the stream being captured?
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < 10; ++i) CHECK(sums[static_cast<std::size_t>(i)] == 7 * 3 * i);
}

TEST_CASE("step graph: every call that fails is told, leaks nothing, and can be made again",
          "[step_graph][emulated]") {
  const auto* call = GENERATE("cudaStreamIsCapturing", "cudaStreamBeginCapture",
                              "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch");
  const TestStream stream;
  const DeviceMemory<int> value(1);
  const auto step = [&] { fill_async(value, 1, stream); };
  StepGraph graphs;
  emulation::fail_call(call, cudaErrorMemoryAllocation);
  CHECK_THAT(thrown<CudaError>([&] { graphs.launch(0, stream, step); }), Mentions(call));
  graphs.launch(0, stream, step);
  CHECK(value.read().front() == 0x01010101);
}

}  // namespace
}  // namespace penstock
