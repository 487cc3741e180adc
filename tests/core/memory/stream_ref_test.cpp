// SPDX-License-Identifier: Apache-2.0

#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE  // CUDA 12.4 has cuda::stream_ref only then.

#include <penstock/penstock.hpp>

#include <cuda/stream_ref>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

namespace penstock {
namespace {

using namespace test;

struct Counted {
  Tensor<std::int32_t, 1> value;
};

/// Of another library's.
struct View {
  cudaStream_t handle;
  operator cudaStream_t() const { return handle; }  // NOLINT(google-explicit-constructor)
};
/// A stream is what it converts to, also where get() is something else.
struct ViewWithGet : View {
  int get() const { return 1; }
};

static_assert(std::is_trivially_copyable_v<StreamRef> && sizeof(StreamRef) == sizeof(cudaStream_t));
static_assert(std::is_convertible_v<cudaStream_t, StreamRef> &&
              std::is_convertible_v<std::nullptr_t, StreamRef> &&
              std::is_convertible_v<cuda::stream_ref, StreamRef> &&
              std::is_convertible_v<Stream&, StreamRef> && std::is_convertible_v<View, StreamRef> &&
              std::is_convertible_v<ViewWithGet, StreamRef>);
static_assert(!std::is_convertible_v<int, StreamRef> && !std::is_convertible_v<bool, StreamRef> &&
              !std::is_convertible_v<cudaEvent_t, StreamRef> &&
              !std::is_convertible_v<void*, StreamRef> &&
              !std::is_convertible_v<Event&, StreamRef> &&
              !std::is_convertible_v<std::unique_ptr<int>, StreamRef>);

TEST_CASE("a StreamRef is the handle of what it is made of", "[stream_ref]") {
  const auto handle = [](StreamRef stream) -> cudaStream_t { return stream; };
  const Stream stream;
  CHECK(handle(stream.get()) == stream.get());
  CHECK(handle(stream) == stream.get());
  CHECK(handle(cuda::stream_ref(stream.get())) == stream.get());
  CHECK(handle(View{stream.get()}) == stream.get());
  CHECK(handle(ViewWithGet{{stream.get()}}) == stream.get());
  CHECK(handle(cudaStreamPerThread) == cudaStreamPerThread);
  CHECK(handle(nullptr) == nullptr);
  CHECK(handle(0) == nullptr);
  CHECK(handle({}) == nullptr);
}

/// Fills batches of two with the numbers of their samples.
Prefetcher<Counted> counted(std::uint64_t samples) {
  return Prefetcher<Counted>{
      Layout<Counted>{2}.field(&Counted::value, {}), Sampler{{.samples = samples, .batch_size = 2}},
      [](const Ticket& ticket, Counted& batch) {
        for (std::size_t i = 0; i < ticket.samples.size(); ++i)
          batch.value(static_cast<std::int64_t>(i)) = static_cast<std::int32_t>(ticket.samples[i]);
      }};
}

TEST_CASE("a pipeline takes cuda::stream_ref for each of its streams", "[stream_ref]") {
  const TestStream first, second;
  const cuda::stream_ref consumer{first}, reader{second};
  auto prefetcher = counted(6);
  PinnedMemory<std::int32_t> sums(3, 0);
  std::size_t batches = 0;
  while (auto batch = prefetcher.next(consumer)) {
    batch.also_used_on(reader);
    for_each(reader, 2,
             [values = *batch, sum = &sums[batches]](std::int64_t i) { *sum += values.value(i); });
    ++batches;
  }
  REQUIRE_CUDA(cudaStreamSynchronize(second));
  CHECK(batches == 3);
  CHECK(sums[0] == 1);
  CHECK(sums[1] == 5);
  CHECK(sums[2] == 9);
}

TEST_CASE("a step graph and a readback take cuda::stream_ref", "[stream_ref]") {
  const TestStream stream;
  const cuda::stream_ref consumer{stream};
  DeviceMemory<std::int32_t> value(1);
  int steps = 0;
  StepGraph graph;
  for (int round = 0; round < 2; ++round)
    graph.launch_numbered(0, consumer, [&](cudaStream_t captured) {
      ++steps;
      detail::check(cudaMemsetAsync(value.data(), 0x11, value.bytes(), captured), "memset");
    });
  std::int32_t seen = 0;
  Readback<std::int32_t> readback{1};
  readback.push(value.data(), consumer, [&](std::int32_t read) { seen = read; });
  readback.drain();
  CHECK(steps == 1);
  CHECK(seen == 0x11111111);
}

TEST_CASE("memory is released after a cuda::stream_ref", "[stream_ref]") {
  const TestStream stream;
  const cuda::stream_ref consumer{stream};
  DeviceArena arena(1, 64);
  PinnedPool pool;
  Gate gate;
  gate.hold(stream);
  {
    DeviceSlot slot = arena.acquire(consumer);
    PinnedBlock block = pool.acquire(64);
    block.copy_to(slot.data(), 64, consumer);
    slot.release_after(consumer);
  }
  Event reached;
  reached.record(consumer);
  CHECK_FALSE(reached.done());
  gate.open();
  reached.make_wait(consumer);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(reached.done());
  CHECK(arena.try_acquire(consumer).has_value());
}

}  // namespace
}  // namespace penstock
