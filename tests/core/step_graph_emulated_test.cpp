// SPDX-License-Identifier: Apache-2.0

// What only the emulated runtime can tell of a step graph.

#include <penstock/emulation.hpp>
#include <penstock/launch.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/step_graph.hpp>

#include <algorithm>
#include <cstdint>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"
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
  graphs.launch_numbered(4, stream, step);
  emulation::reset_counters();
  for (int i = 0; i < 6; ++i) graphs.launch_numbered(4, stream, step);
  CHECK(emulation::call_classes().launching == 6);
  CHECK(emulation::calls("cudaGraphLaunch") == 6);
  CHECK(emulation::call_classes().all == 2 * 6);  // Is the stream being captured?
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < 10; ++i) CHECK(sums[static_cast<std::size_t>(i)] == 7 * 3 * i);
}

TEST_CASE("step graph: the sums of batches are right, that of a short last batch too",
          "[step_graph][emulated]") {
  struct Values {
    Tensor<std::int64_t, 1> value;
  };
  const TestStream stream;
  Prefetcher<Values> prefetcher(Layout<Values>{8}.field(&Values::value, {}), sequential(30, 8),
                                [](const Ticket& ticket, Values& batch) {
                                  for (std::size_t i = 0; i < ticket.samples.size(); ++i)
                                    batch.value(static_cast<std::int64_t>(i)) =
                                        static_cast<std::int64_t>(ticket.samples[i]);
                                });
  const PinnedMemory<std::int64_t> sum(1, 0);
  StepGraph graphs;
  while (auto batch = prefetcher.next(stream))
    graphs.launch(batch, stream, [&] {
      for_each(stream, batch->value.extent(0),
               [values = *batch, to = sum.data()](std::int64_t i) { *to += values.value(i); });
    });
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(sum[0] == 29 * 30 / 2);
}

TEST_CASE("step graph: a replay for a lease allocates nothing, on the host or in CUDA",
          "[step_graph][emulated]") {
  const TestStream stream;
  Prefetcher<Numbers> prefetcher(numbers_layout(4), sequential(4, 4), write_numbers,
                                 {.workers = 1});
  const auto batch = prefetcher.next(stream);
  REQUIRE_FALSE(prefetcher.next(stream));
  StepGraph graphs;
  const auto step = [&] {
    REQUIRE_CUDA(
        cudaMemsetAsync(const_cast<std::uint64_t*>(batch->sample.data_handle()), 0, 8, stream));
  };
  graphs.launch(batch, stream, step);
  graphs.launch_numbered(0, stream, step);
  // Is the stream being captured? And the launch. The worker, which ends now, may make a call, too.
  CHECK(eventually([&] {
    emulation::reset_counters();
    for (int i = 0; i < 6; ++i) graphs.launch(batch, stream, step);
    return emulation::call_classes().all == 2 * 6;
  }));
  // The emulated launch itself allocates, and now and then a piece more for its queue.
  const auto fewest_allocations = [&](auto&& launch) {
    std::uint64_t fewest = UINT64_MAX;
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t before = allocations_of_this_thread();
      launch();
      fewest = std::min(fewest, allocations_of_this_thread() - before);
      REQUIRE_CUDA(cudaStreamSynchronize(stream));
    }
    return fewest;
  };
  CHECK(fewest_allocations([&] { graphs.launch(batch, stream, step); }) ==
        fewest_allocations([&] { graphs.launch_numbered(0, stream, step); }));
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
  CHECK_THAT(thrown<CudaError>([&] { graphs.launch_numbered(0, stream, step); }), Mentions(call));
  graphs.launch_numbered(0, stream, step);
  CHECK(value.read().front() == 0x01010101);
}

}  // namespace
}  // namespace penstock
