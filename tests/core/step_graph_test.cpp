// SPDX-License-Identifier: Apache-2.0

// Runs emulated, and on a GPU.

#include <penstock/prefetcher.hpp>
#include <penstock/step_graph.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
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

TEST_CASE("step graph: the first launch of a number captures, the others replay", "[step_graph]") {
  const TestStream stream;
  Copies slots[2];
  StepGraph graphs;
  for (int round = 1; round <= 5; ++round)
    for (std::size_t slot : {1u, 0u}) {
      slots[slot].from[0] = 10 * round + static_cast<int>(slot);
      graphs.launch_numbered(slot, stream, slots[slot]);
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
  graphs.launch_numbered(0, stream, [&] { copies(stream); });
  CHECK(copies.to.read().front() == 5);
}

/// A batch without plain members; a batch with one.
struct Values {
  Tensor<std::uint64_t, 1> value;
};
struct Scaled {
  Tensor<std::uint64_t, 1> value;
  std::uint64_t scale = 0;
};

template <class Batch>
Layout<Batch> values_layout(std::int64_t batch_size) {
  return Layout<Batch>{batch_size}.field(&Batch::value, {});
}
template <class Batch>
void write_values(const Ticket& ticket, Batch& batch) {
  for (std::size_t i = 0; i < ticket.samples.size(); ++i)
    batch.value(static_cast<std::int64_t>(i)) = ticket.samples[i] + 1;
  if constexpr (requires { batch.scale; }) batch.scale = ticket.batch / 2;
}

/// Copies the samples of a batch, and no more, to a row of their own; what lies behind them is 0.
class Rows {
 public:
  Rows(std::size_t batches, std::int64_t batch_size)
      : row_(static_cast<std::size_t>(batch_size)), all_(batches * row_, 0), last_(row_) {}

  /// A step: it may be captured.
  void copy(const Tensor<std::uint64_t, 1>& value, cudaStream_t stream) {
    ++captures_;
    REQUIRE_CUDA(cudaMemsetAsync(last_.data(), 0, last_.bytes(), stream));
    REQUIRE_CUDA(cudaMemcpyAsync(last_.data(), value.data_handle(),
                                 value.size() * sizeof(std::uint64_t), cudaMemcpyDeviceToDevice,
                                 stream));
  }
  void end_row(cudaStream_t stream) {
    REQUIRE_CUDA(cudaMemcpyAsync(&all_[row_ * rows_++], last_.data(), last_.bytes(),
                                 cudaMemcpyDeviceToHost, stream));
  }

  int captures() const { return captures_; }
  /// Without what lies behind the samples.
  std::vector<std::uint64_t> values(cudaStream_t stream) const {
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    std::vector<std::uint64_t> values;
    for (std::size_t i = 0; i < rows_ * row_; ++i)
      if (all_[i] != 0) values.push_back(all_[i] - 1);
    return values;
  }

 private:
  std::size_t row_, rows_ = 0;
  PinnedMemory<std::uint64_t> all_;
  DeviceMemory<std::uint64_t> last_;
  int captures_ = 0;
};

TEST_CASE("step graph: every batch of a prefetcher, the short ones too, each slot's graphs once",
          "[step_graph]") {
  const std::uint64_t samples = GENERATE(40u, 35u);
  const TestStream stream;
  const Sampler sampler{{.samples = samples, .batch_size = 8, .shuffle = true, .seed = 3}};
  Prefetcher<Values> prefetcher(values_layout<Values>(8), sampler, write_values<Values>,
                                {.workers = 2, .device_depth = 2, .epochs = 9});
  Rows rows(9 * sampler.batches(), 8);
  StepGraph graphs;
  while (auto batch = prefetcher.next(stream)) {
    CHECK(batch.samples() == static_cast<std::int64_t>(batch.ticket().samples.size()));
    const int before = rows.captures();
    const bool replays = graphs.captured(batch);
    graphs.launch(batch, stream, [&] { rows.copy(batch->value, stream); });
    CHECK(rows.captures() == before + !replays);
    CHECK(graphs.captured(batch));
    rows.end_row(stream);
  }
  CHECK(rows.values(stream) == serial_sample_numbers(sampler, 9));
  CHECK(rows.captures() == (samples % 8 == 0 ? 2 : 4));
}

TEST_CASE("step graph: a step may take the batch and the stream", "[step_graph]") {
  const TestStream stream;
  const Sampler sampler = sequential(10, 4);
  Prefetcher<Values> prefetcher(values_layout<Values>(4), sampler, write_values<Values>,
                                {.workers = 1, .epochs = 2});
  Rows rows(2 * sampler.batches(), 4);
  StepGraph graphs;
  while (auto batch = prefetcher.next(stream)) {
    graphs.launch(batch, stream,
                  [&](const Values& values, cudaStream_t on) { rows.copy(values.value, on); });
    rows.end_row(stream);
  }
  CHECK(rows.values(stream) == serial_sample_numbers(sampler, 2));
}

TEST_CASE("step graph: two steps for one batch have a graph each", "[step_graph]") {
  const TestStream stream;
  Prefetcher<Values> prefetcher(values_layout<Values>(4), sequential(40, 4), write_values<Values>,
                                {.workers = 1});
  Copies forward, backward;
  forward.from[0] = 1;
  backward.from[0] = 2;
  StepGraph graphs;
  int batches = 0;
  for (; auto batch = prefetcher.next(stream); ++batches) {
    DeviceMemory<int>* const places[] = {&forward.to, &backward.to};
    for (DeviceMemory<int>* place : places)
      REQUIRE_CUDA(cudaMemsetAsync(place->data(), 0, place->bytes(), stream));
    graphs.launch(batch, stream, [&] { forward(stream); });
    graphs.launch(batch, stream, [&] { backward(stream); });
    CHECK(forward.to.read().front() == 1);
    CHECK(backward.to.read().front() == 2);
  }
  CHECK(batches == 10);
  CHECK(forward.steps == 2);  // one for each slot
  CHECK(backward.steps == 2);
}

TEST_CASE("step graph: each step keeps graphs of its own, however many steps there are",
          "[step_graph]") {
  const TestStream stream;
  Prefetcher<Values> prefetcher(values_layout<Values>(4), sequential(40, 4), write_values<Values>,
                                {.workers = 1});
  constexpr std::size_t kSteps = StepGraph::max_variants + 1;
  std::array<int, kSteps> captures{};
  StepGraph graphs;
  while (const auto batch = prefetcher.next(stream))
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (graphs.launch(batch, stream, [&] { ++captures[i]; }), ...);
    }
  (std::make_index_sequence<kSteps>());
  for (const int count : captures) CHECK(count == 2);  // one for each slot
}

TEST_CASE("step graph: the stream of a launch becomes a consumer of the batch", "[step_graph]") {
  const TestStream stream, other;
  const Sampler sampler = sequential(40, 4);
  Prefetcher<Values> prefetcher(values_layout<Values>(4), sampler, write_values<Values>,
                                {.workers = 1, .epochs = 4});
  Rows rows(4 * sampler.batches(), 4);
  StepGraph graphs;
  while (auto batch = prefetcher.next(stream)) {
    graphs.launch(batch, other, [&] { rows.copy(batch->value, other); });
    rows.end_row(other);
  }
  CHECK(rows.values(other) == serial_sample_numbers(sampler, 4));
}

TEST_CASE("step graph: a number that is no index is refused", "[step_graph]") {
  const TestStream stream;
  StepGraph graphs;
  const auto launch = [&] { graphs.launch_numbered(StepGraph::max_numbers, stream, [] {}); };
  CHECK_THAT(thrown<std::invalid_argument>(launch), Mentions("must be below 65536"));
}

struct Words {
  Ragged<std::uint64_t> words;
};

/// Sample s has s % 5 words, each of them s.
void write_words(const Ticket& ticket, Words& batch) {
  for (std::size_t row = 0; row < ticket.samples.size(); ++row)
    batch.words.assign(static_cast<std::int64_t>(row),
                       std::vector<std::uint64_t>(ticket.samples[row] % 5, ticket.samples[row]));
}

TEST_CASE(
    "step graph: ragged batches of any total need one graph for each slot, if asked by number",
    "[step_graph]") {
  constexpr std::int64_t kRows = 4, kCapacity = 16;
  const TestStream stream;
  const Sampler sampler{{.samples = 40, .batch_size = kRows, .shuffle = true, .seed = 3}};
  Prefetcher<Words> prefetcher(Layout<Words>{kRows}.field(&Words::words, Capacity{kCapacity}),
                               sampler, write_words,
                               {.workers = 2, .device_depth = 2, .epochs = 3});
  // The step takes the offsets from the slot, and values for the whole capacity.
  const PinnedMemory<std::uint64_t> values(kCapacity, 0);
  const PinnedMemory<std::int64_t> offsets(kRows + 1, 0);
  StepGraph graphs;
  int captures = 0;
  std::set<std::int64_t> totals;
  while (auto batch = prefetcher.next(stream)) {
    totals.insert(batch->words.total());
    graphs.launch_numbered(batch.slot(), stream, [&] {
      ++captures;
      CHECK_CUDA(cudaMemcpyAsync(offsets.data(), batch->words.offsets(), offsets.bytes(),
                                 cudaMemcpyDeviceToHost, stream));
      CHECK_CUDA(cudaMemcpyAsync(values.data(), batch->words.data(), values.bytes(),
                                 cudaMemcpyDeviceToHost, stream));
    });
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    std::size_t at = 0;
    for (const std::uint64_t sample : batch.ticket().samples)
      for (std::uint64_t i = 0; i < sample % 5; ++i) CHECK(values[at++] == sample);
    CHECK(offsets[kRows] == static_cast<std::int64_t>(at));
    CHECK(batch->words.total() == offsets[kRows]);
  }
  CHECK(totals.size() > 2);
  CHECK(captures == 2);
}

TEST_CASE("step graph: a batch whose plain members differ gets a graph of its own, few are kept",
          "[step_graph]") {
  const TestStream stream;
  const Sampler sampler = sequential(8 * 16, 8);
  // The scales 0 to 7, each for two batches, all in one slot.
  Prefetcher<Scaled> prefetcher(values_layout<Scaled>(8), sampler, write_values<Scaled>,
                                {.workers = 1, .device_depth = 1, .epochs = 2});
  StepGraph graphs;
  std::vector<std::uint64_t> captured;
  while (auto batch = prefetcher.next(stream)) {
    if (batch.ticket().batch >= 8 && batch.ticket().epoch == 0) continue;  // 0 to 3 are kept
    graphs.launch(batch, stream, [&] { captured.push_back(batch->scale); });
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(captured == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("step graph: the graph that was not used for longest makes room", "[step_graph]") {
  const TestStream stream;
  const std::vector<std::uint64_t> order = {0, 1, 2, 3, 0, 4, 0, 1, 3};
  const auto write = [&order](const Ticket& ticket, Scaled& batch) {
    write_values(ticket, batch);
    batch.scale = order[ticket.batch];
  };
  Prefetcher<Scaled> prefetcher(values_layout<Scaled>(1), sequential(order.size(), 1), write,
                                {.workers = 1, .device_depth = 1});
  StepGraph graphs;
  std::vector<std::uint64_t> captured;
  while (auto batch = prefetcher.next(stream))
    graphs.launch(batch, stream, [&] { captured.push_back(batch->scale); });
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(captured == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 1});  // 4 in the place of 1
}

TEST_CASE("step graph: an empty lease is refused", "[step_graph]") {
  const TestStream stream;
  StepGraph graphs;
  const Lease<Values> none;
  CHECK_FALSE(graphs.captured(none));
  CHECK_THAT(thrown<std::invalid_argument>([&] { graphs.launch(none, stream, [] {}); }),
             Mentions("the lease is empty"));
}

TEST_CASE("step graph: what a step throws passes through, and the next launch captures again",
          "[step_graph]") {
  const TestStream stream;
  Copies copies;
  StepGraph graphs;
  CHECK_THROWS_AS(graphs.launch_numbered(0, stream,
                                         [&] {
                                           copies(stream);
                                           throw std::range_error("no");
                                         }),
                  std::range_error);
  CHECK_FALSE(is_capturing(stream));
  copies.from[0] = 9;
  graphs.launch_numbered(0, stream, copies);
  CHECK(copies.to.read().front() == 9);
}

TEST_CASE("step graph: a step that waits for the device is told what it may not do",
          "[step_graph]") {
  const TestStream stream;
  StepGraph graphs;
  CHECK_THAT(thrown<CudaError>([&] {
               graphs.launch_numbered(0, stream, [&] { cudaStreamSynchronize(stream); });
             }),
             Mentions("may not wait for the device"));
  cudaGetLastError();
  CHECK_FALSE(is_capturing(stream));
  Copies copies;
  copies.from[0] = 2;
  graphs.launch_numbered(0, stream, copies);
  CHECK(copies.to.read().front() == 2);
}

TEST_CASE("step graph: a step that leaves work on another stream is told to wait for it",
          "[step_graph]") {
  const TestStream stream, other;
  const TestEvent fork, join;
  Copies copies;
  copies.from[0] = 3;
  StepGraph graphs;
  const auto step = [&](cudaStream_t on) {
    REQUIRE_CUDA(cudaEventRecord(fork, on));
    REQUIRE_CUDA(cudaStreamWaitEvent(other, fork, 0));
    copies(other);
  };
  const std::string error = thrown<CudaError>([&] { graphs.launch_numbered(0, stream, step); });
  CHECK_THAT(error, Mentions("cudaErrorStreamCaptureUnjoined"));
  CHECK_THAT(error, Mentions("let the captured stream wait for it"));
  cudaGetLastError();
  CHECK_FALSE(is_capturing(stream));
  CHECK_FALSE(is_capturing(other));
  graphs.launch_numbered(0, stream, [&](cudaStream_t on) {
    step(on);
    REQUIRE_CUDA(cudaEventRecord(join, other));
    REQUIRE_CUDA(cudaStreamWaitEvent(on, join, 0));
  });
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(copies.to.read().front() == 3);
}

TEST_CASE("step graph: a capture that a step broke before it threw leaves no error behind",
          "[step_graph]") {
  const TestStream stream;
  StepGraph graphs;
  CHECK_THROWS_AS(graphs.launch_numbered(0, stream,
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
  CHECK_THROWS_AS(graphs.launch_numbered(0, nullptr, [&] { ran = true; }), CudaError);
  CHECK_FALSE(ran);
}

TEST_CASE("step graph: on a stream that is being captured, it becomes a part of that capture",
          "[step_graph]") {
  const bool captured_before = GENERATE(false, true);
  const TestStream stream;
  Copies copies;
  StepGraph graphs;
  if (captured_before) graphs.launch_numbered(0, stream, copies);
  const TestGraph whole = capture(stream, [&] { graphs.launch_numbered(0, stream, copies); });
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
  graphs.launch_numbered(0, stream, first);
  graphs.clear();  // The launch may still run.
  graphs.launch_numbered(0, stream, second);
  StepGraph moved = std::move(graphs);
  moved.launch_numbered(0, stream, second);
  CHECK(first.to.read().front() == 1);
  CHECK(second.to.read().front() == 2);
  CHECK(second.steps == 1);
}

}  // namespace
}  // namespace penstock
