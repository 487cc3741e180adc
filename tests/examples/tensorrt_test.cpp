// SPDX-License-Identifier: Apache-2.0

// When the lease of examples/tensorrt ends: with a network that has the calls of TensorRT's.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <penstock/prefetcher.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/tensorrt/consumed_input.hpp"
#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"
#include "support/thrown.hpp"

using penstock::test::DeviceMemory;
using penstock::test::Gate;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::PinnedMemory;
using penstock::test::sequential;
using penstock::test::TestStream;
using penstock::test::write_numbers;

namespace {

constexpr std::int64_t kBatch = 8;
constexpr std::size_t kBatches = 40, kBytes = kBatch * sizeof(std::uint64_t);

/// Has read its input when that is in memory of its own. Its answer is the input.
class FakeContext {
 public:
  bool setInputTensorAddress(const char* name, const void* data) noexcept {
    if (std::strcmp(name, "sample") == 0) input_ = data;
    return input_ == data;
  }
  bool setTensorAddress(const char* name, void* data) noexcept {
    if (std::strcmp(name, "answer") == 0) answer_ = data;
    return answer_ == data;
  }
  bool setInputConsumedEvent(cudaEvent_t event) noexcept {
    consumed = event;
    return accepts_event;
  }
  bool enqueueV3(cudaStream_t stream) noexcept {
    if (before_reading != nullptr) before_reading->hold(stream);
    cudaMemcpyAsync(scratch_.data(), input_, kBytes, cudaMemcpyDeviceToDevice, stream);
    if (fails) return false;
    if (consumed != nullptr) cudaEventRecord(consumed, stream);
    if (after_reading != nullptr) after_reading->hold(stream);
    cudaMemcpyAsync(answer_, scratch_.data(), kBytes, cudaMemcpyDeviceToDevice, stream);
    return true;
  }

  bool fails = false, accepts_event = true;
  Gate *before_reading = nullptr, *after_reading = nullptr;
  cudaEvent_t consumed = nullptr;

 private:
  DeviceMemory<std::uint64_t> scratch_{kBatch};
  const void* input_ = nullptr;
  void* answer_ = nullptr;
};

/// A pipeline, a network and what it answered.
struct Inference {
  TestStream stream;
  FakeContext context;
  DeviceMemory<std::uint64_t> answer{kBatch};
  PinnedMemory<std::uint64_t> answers{kBatch * kBatches};
  penstock::Prefetcher<Numbers> prefetcher;
  examples::ConsumedInput<FakeContext> input{context, stream};
  std::size_t done = 0;

  explicit Inference(std::size_t device_depth)
      : prefetcher(numbers_layout(kBatch), sequential(kBatch * kBatches, kBatch), write_numbers,
                   {.workers = 2, .device_depth = device_depth}) {
    CHECK(context.setTensorAddress("answer", answer.data()));
  }

  bool step() {
    auto batch = prefetcher.next(input.stream());
    if (!batch) return false;
    REQUIRE(context.setInputTensorAddress("sample", batch->sample.data_handle()));
    input.enqueue(std::move(batch));
    REQUIRE_CUDA(cudaMemcpyAsync(&answers[done++ * kBatch], answer.data(), kBytes,
                                 cudaMemcpyDeviceToHost, stream));
    return true;
  }

  /// Waits, and checks every answer so far.
  void check_answers() {
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < done * kBatch; ++i) wrong += answers[i] != i;
    CHECK(wrong == 0);
  }
};

}  // namespace

TEST_CASE("every batch of a network whose leases end early is whole") {
  Inference inference(1);
  while (inference.step()) continue;
  CHECK(inference.done == kBatches);
  inference.check_answers();
}

TEST_CASE("a slot is filled again while the network still computes") {
  Gate gate;
  Inference inference(1);
  inference.context.after_reading = &gate;
  REQUIRE(inference.step());
  gate.wait_until_reached();
  const auto second = inference.prefetcher.next(inference.input.stream());
  REQUIRE(second);
  REQUIRE_CUDA(cudaStreamSynchronize(inference.input.stream()));  // Its copy is done.
  CHECK(cudaStreamQuery(inference.stream) == cudaErrorNotReady);
  gate.open();
  inference.check_answers();
}

TEST_CASE("a slot is not filled again before the network has read it") {
  Gate gate;
  Inference inference(1);
  inference.context.before_reading = &gate;
  REQUIRE(inference.step());
  gate.wait_until_reached();
  const auto second = inference.prefetcher.next(inference.input.stream());  // The host is ahead.
  REQUIRE(second);
  CHECK(cudaStreamQuery(inference.input.stream()) == cudaErrorNotReady);
  gate.open();
  inference.check_answers();
}

TEST_CASE("a network that fails to start keeps its batch until what it queued is done") {
  Gate gate;
  Inference inference(1);
  inference.context.fails = true;
  inference.context.before_reading = &gate;
  CHECK_THAT(penstock::test::thrown<std::runtime_error>([&] { inference.step(); }),
             penstock::test::Mentions("enqueueV3"));
  const auto second = inference.prefetcher.next(inference.input.stream());
  REQUIRE(second);
  CHECK(cudaStreamQuery(inference.input.stream()) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(inference.input.stream()));
}

TEST_CASE("a context is left without the event") {
  const TestStream stream;
  FakeContext context;
  {
    const examples::ConsumedInput<FakeContext> input(context, stream);
    CHECK(context.consumed != nullptr);
  }
  CHECK(context.consumed == nullptr);
  context.accepts_event = false;
  using Input = examples::ConsumedInput<FakeContext>;
  CHECK_THROWS_AS(Input(context, stream), std::runtime_error);
}
