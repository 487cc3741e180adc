// SPDX-License-Identifier: Apache-2.0

// DeviceSamples: what it measures of batches on the device, which ones, and what it leaves alone.

#include <penstock/detail/observe/device_samples.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"

using namespace std::chrono_literals;
using penstock::Event;
using penstock::Stream;
using penstock::detail::ConsumerStreams;
using penstock::detail::DeviceDurations;
using penstock::detail::DeviceSamples;
using penstock::detail::DeviceSums;
using penstock::detail::FinishedBatch;
using penstock::detail::Ticks;
using penstock::detail::Timeline;
using penstock::test::allocations_of_this_thread;
using penstock::test::eventually;
using penstock::test::Gate;
using Kind = DeviceSamples::Kind;

namespace {

constexpr Ticks kMillisecond = 1'000'000;

void sleep_on(const Stream& stream) {
  REQUIRE_CUDA(cudaLaunchHostFunc(
      stream.get(), [](void*) { std::this_thread::sleep_for(3ms); }, nullptr));
}

/// There is a slot at once.
DeviceSamples::Copy begin(DeviceSamples& samples, cudaStream_t stream, Ticks now) {
  DeviceSamples::Copy copy = samples.want(stream, now);
  samples.begin(copy);
  return copy;
}

/// Samples, and the timeline that they are put into, of batches that are staged and taken here.
struct SampledPipeline {
  explicit SampledPipeline(Kind kind, bool every, std::size_t batches = 8)
      : timeline(batches), samples(timeline, kind, batches, every) {}

  /// Batch `order` is staged at `now`; true: it is measured.
  bool stage(std::uint64_t order, Ticks now) {
    DeviceSamples::Copy copy = begin(samples, copies.get(), now);
    const bool is_measured = copy != nullptr;
    samples.arrive(copy);
    samples.end(copy);
    samples.hand_in(std::move(copy), order, now);
    return is_measured;
  }
  void take(std::uint64_t order, const Stream& stream) {
    samples.ask(stream.get(), order);
    samples.find(stream.get());
    samples.take(stream.get(), order);
  }
  /// What was measured of the batches before `end`.
  std::vector<DeviceDurations> measured(std::uint64_t end) {
    Timeline& all = timeline;
    for (std::uint64_t i = 0; i < end; ++i)
      all.add(i, i, {.taken = static_cast<Ticks>(i) + 1, .released = 1});
    std::vector<FinishedBatch> batches;
    all.copy(batches);
    std::vector<DeviceDurations> durations;
    for (const FinishedBatch& batch : batches) durations.push_back(batch.device);
    return durations;
  }

  Timeline timeline;
  DeviceSamples samples;
  Stream copies, consumer;
};

}  // namespace

TEST_CASE("samples tell a copy from the transform behind it", "[device_samples]") {
  const bool every = GENERATE(false, true);
  SampledPipeline pipeline(Kind::transforms, every);
  DeviceSamples& samples = pipeline.samples;
  DeviceSamples::Copy copy = begin(samples, pipeline.copies.get(), penstock::detail::ticks());
  REQUIRE(copy != nullptr);
  samples.arrive(copy);
  sleep_on(pipeline.copies);
  samples.end(copy);
  samples.hand_in(std::move(copy), 0, penstock::detail::ticks());
  pipeline.copies.synchronize();
  samples.collect();
  const DeviceSums sums = samples.sums();
  CHECK(sums.copy.timed == 1);
  CHECK(sums.transform.busy.count() >= 2 * kMillisecond);
  const DeviceDurations device = pipeline.measured(1).at(0);
  CHECK(device.copy == sums.copy.busy.count());
  CHECK(device.transform == sums.transform.busy.count());
  CHECK(device.source == -1);
}

TEST_CASE("samples tell a copy's wait for a slot from one for its batch", "[device_samples]") {
  const bool lacks_slot = GENERATE(false, true);
  // A busy machine may hold up either wait, and what is held up for long looks like the other one.
  CHECK(eventually([lacks_slot] {
    SampledPipeline pipeline(Kind::copies, true);
    DeviceSamples& samples = pipeline.samples;
    for (std::uint64_t i = 0; i < 3; ++i) {
      DeviceSamples::Copy copy = samples.want(pipeline.copies.get(), penstock::detail::ticks());
      if (lacks_slot) sleep_on(pipeline.copies);  // The stream waits for the slot's readers.
      samples.begin(copy);
      samples.arrive(copy);
      samples.hand_in(std::move(copy), i, penstock::detail::ticks());
      pipeline.copies.synchronize();
      if (!lacks_slot) std::this_thread::sleep_for(3ms);
    }
    samples.collect();
    const DeviceSums sums = samples.sums();
    bool is_told_apart = (sums.copy.waiting_for_room.count() >= 6 * kMillisecond) == lacks_slot &&
                         (sums.copy.waiting_for_input.count() >= 4 * kMillisecond) == !lacks_slot;
    for (const DeviceDurations& device : pipeline.measured(3))
      is_told_apart = is_told_apart && (device.slot >= 2 * kMillisecond) == lacks_slot;
    return is_told_apart;
  }));
}

TEST_CASE("a copy that is measured stands for those before it that are not", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, true);
  DeviceSamples& samples = pipeline.samples;
  samples.hand_in({}, 0, 1);
  samples.hand_in({}, 1, 2);
  DeviceSamples::Copy copy = samples.want(pipeline.copies.get(), 3);
  sleep_on(pipeline.copies);
  samples.begin(copy);
  sleep_on(pipeline.copies);
  samples.arrive(copy);
  samples.hand_in(std::move(copy), 2, 3);
  pipeline.copies.synchronize();
  samples.collect();
  CHECK(samples.sums().copy.timed == 3);
  CHECK(samples.sums().copy.busy.count() >= 3 * 2 * kMillisecond);
  CHECK(samples.sums().copy.waiting_for_room.count() >= 3 * 2 * kMillisecond);
  CHECK(samples.sums().copy.busy.count() == 3 * pipeline.measured(3).at(2).copy);
}

TEST_CASE("samples of an on_device source are the source's", "[device_samples]") {
  SampledPipeline pipeline(Kind::on_device, GENERATE(false, true));
  DeviceSamples& samples = pipeline.samples;
  DeviceSamples::Copy copy = begin(samples, pipeline.copies.get(), penstock::detail::ticks());
  sleep_on(pipeline.copies);
  samples.end(copy);
  samples.hand_in(std::move(copy), 0, penstock::detail::ticks());
  pipeline.copies.synchronize();
  samples.collect();
  CHECK(samples.sums().copy.timed == 1);
  CHECK(samples.sums().copy.busy.count() == 0);
  const DeviceDurations device = pipeline.measured(1).at(0);
  CHECK(device.source >= 2 * kMillisecond);
  CHECK(device.slot == -1);
  CHECK(device.copy == -1);
  CHECK(device.transform == -1);
}

TEST_CASE("samples tell the consumer's waits from its work", "[device_samples]") {
  const bool every = GENERATE(false, true);
  SampledPipeline pipeline(Kind::copies, every);
  const Stream& consumer = pipeline.consumer;
  Event copied;
  const auto take = [&](std::uint64_t order, bool waits) {
    pipeline.samples.ask(consumer.get(), order);
    consumer.synchronize();  // It has no work from here on.
    if (waits) sleep_on(pipeline.copies);
    copied.record(pipeline.copies.get());
    pipeline.samples.find(consumer.get());
    copied.make_wait(consumer.get());
    pipeline.samples.take(consumer.get(), order);
  };
  take(0, false);
  take(1, true);
  consumer.synchronize();
  sleep_on(consumer);
  take(2, false);
  consumer.synchronize();
  pipeline.samples.collect();
  const DeviceSums sums = pipeline.samples.sums();
  CHECK(sums.waits.batches == 2);  // The first fills the pipeline.
  CHECK(sums.times.batches == 2);
  CHECK(sums.waits.waiting.count() >= 2 * kMillisecond);
  CHECK(sums.times.consuming.count() >= 2 * kMillisecond);
  CHECK(sums.waits.longest.count() >= 2 * kMillisecond);
  CHECK((sums.times.awaiting_batch.count() + sums.times.awaiting_copy.count() > 0) == every);
  const std::vector<DeviceDurations> device = pipeline.measured(3);
  CHECK(device[0].step >= 0);
  CHECK(device[1].wait >= 2 * kMillisecond);
  CHECK(device[1].step >= 2 * kMillisecond);
  CHECK(device[2].step == -1);  // There was no request behind it.
  CHECK(device[1].wait + device[2].wait == sums.waits.waiting.count());
  CHECK(device[0].step + device[1].step == sums.times.consuming.count());
}

TEST_CASE("of streams in turn each counts for its part", "[device_samples]") {
  const std::uint64_t kStreams = GENERATE(2, 3, 8);
  SampledPipeline pipeline(Kind::copies, true, 32);
  std::vector<Stream> streams(kStreams);
  const std::uint64_t batches = 3 * kStreams;
  for (std::uint64_t i = 0; i < batches; ++i) {
    if (i == 2 * kStreams) sleep_on(streams[0]);
    pipeline.take(i, streams[i % kStreams]);
  }
  for (const Stream& stream : streams) stream.synchronize();
  pipeline.samples.collect();
  const DeviceSums sums = pipeline.samples.sums();
  CHECK(sums.times.batches == batches - 1);
  CHECK(sums.times.consuming.count() >= 2 * kMillisecond / static_cast<Ticks>(kStreams));
  const std::vector<DeviceDurations> device = pipeline.measured(batches);
  // What the stream did between its own batches.
  CHECK(device[kStreams].step >= 2 * kMillisecond);
  // A stream that takes its first batch says nothing of the work on another one's.
  CHECK(device[kStreams - 2].step >= 0);
  CHECK(device[batches - 1].step == -1);
}

TEST_CASE("streams that take batches in turn have one time together", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, GENERATE(false, true));
  const Stream streams[2];
  const Ticks begun = penstock::detail::ticks();
  for (std::uint64_t i = 0; i < 10; ++i) {
    pipeline.take(i, streams[i % 2]);
    sleep_on(streams[i % 2]);
  }
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Ticks all = penstock::detail::ticks() - begun;
  pipeline.samples.collect();
  const DeviceSums sums = pipeline.samples.sums();
  CHECK(sums.times.batches == 9);
  CHECK(sums.times.consuming.count() >= 10 * kMillisecond);
  CHECK(sums.times.consuming.count() + sums.waits.waiting.count() <= all);
}

TEST_CASE("streams that take batches have numbers and turns", "[device_samples]") {
  ConsumerStreams streams;
  std::vector<Stream> some(20);
  CHECK(streams.turns(some[0].get()) == 0);
  CHECK(streams.note(some[0].get()) == 0);
  CHECK(streams.turns(some[0].get()) == 1);
  CHECK(streams.turns(some[1].get()) == 1);
  CHECK(streams.note(some[1].get()) == 1);
  CHECK(streams.turns(some[0].get()) == 2);
  for (int i = 0; i < 6; ++i) CHECK(streams.note(some[1].get()) == 1);
  CHECK(streams.turns(some[0].get()) == ConsumerStreams::kTurns);
  CHECK(streams.note(some[1].get()) == 1);
  CHECK(streams.turns(some[0].get()) == 1);  // Nine batches ago: it does not take turns.
  CHECK(streams.note(some[0].get()) == 0);   // It is known, though.
  for (int i = 2; i < 20; ++i)
    CHECK(streams.note(some[static_cast<std::size_t>(i)].get()) == i % 16);
  CHECK(streams.turns(some[13].get()) == 7);
  CHECK(streams.note(some[4].get()) == 4);
  CHECK(streams.note(some[0].get()) == 4);  // The fifth has its number by now.
  CHECK(streams.note(nullptr) == 5);        // The default stream is one, too.
  CHECK(streams.turns(nullptr) == 1);
}

TEST_CASE("quick batches are measured in bursts of consecutive ones", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, false);
  const Ticks begin = penstock::detail::ticks();
  constexpr Ticks kEach = 10'000;
  std::vector<std::uint64_t> measured;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    if (pipeline.stage(i, begin + static_cast<Ticks>(i) * kEach)) measured.push_back(i);
    pipeline.copies.synchronize();
    pipeline.samples.collect();
  }
  // One in 100 us, and 16 at a time: 10 us each, so they last 1.6 ms and a little more.
  CHECK(measured.size() >= 16 * 5);
  CHECK(measured.size() <= 16 * 8);
  std::size_t followed = 0;
  for (std::size_t i = 1; i < measured.size(); ++i)
    followed += measured[i] == measured[i - 1] + 1 ? 1U : 0U;
  CHECK(followed >= measured.size() - measured.size() / 16 - 1);
}

TEST_CASE("slow batches are all measured, their takes too", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, false);
  const Ticks begin = penstock::detail::ticks();
  constexpr std::uint64_t kBatches = 100;
  for (std::uint64_t i = 0; i < kBatches; ++i) {
    const bool is_staged_first = i % 3 == 0;
    if (is_staged_first)
      CHECK(pipeline.stage(i, begin + static_cast<Ticks>(i + 1) * 2 * kMillisecond));
    pipeline.samples.ask(pipeline.consumer.get(), i);
    if (!is_staged_first)
      CHECK(pipeline.stage(i, begin + static_cast<Ticks>(i + 1) * 2 * kMillisecond));
    pipeline.samples.take(pipeline.consumer.get(), i);
    REQUIRE_CUDA(cudaDeviceSynchronize());
    pipeline.samples.collect();
  }
  const DeviceSums sums = pipeline.samples.sums();
  CHECK(sums.copy.timed == kBatches);
  CHECK(sums.waits.batches == kBatches - 1);
  CHECK(sums.times.batches == kBatches - 1);
  for (const DeviceDurations& device : pipeline.measured(kBatches)) {
    CHECK(device.copy >= 0);
    CHECK(device.wait >= 0);
  }
}

TEST_CASE("quick batches are measured in their takes where they are in their copies",
          "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, false);
  const Ticks begin = penstock::detail::ticks();
  constexpr std::uint64_t kBatches = 250;
  constexpr Ticks kEach = 200'000;  // Each copy is measured, and a burst in 16 ms of the takes.
  for (std::uint64_t i = 0; i < kBatches; ++i) {
    CHECK(pipeline.stage(i, begin + static_cast<Ticks>(i) * kEach));
    pipeline.take(i, pipeline.consumer);
    REQUIRE_CUDA(cudaDeviceSynchronize());
    pipeline.samples.collect();
  }
  const DeviceSums sums = pipeline.samples.sums();
  CHECK(sums.waits.batches >= 40);
  CHECK(sums.waits.batches <= 70);
  CHECK(sums.times.batches >= sums.waits.batches - 4);
  for (const DeviceDurations& device : pipeline.measured(kBatches))
    if (device.wait >= 0) CHECK(device.copy >= 0);
}

TEST_CASE("a sample that is dropped is used again", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, true, 1);
  for (int i = 0; i < 1000; ++i) {
    const DeviceSamples::Copy dropped = begin(pipeline.samples, pipeline.copies.get(), 1);
    REQUIRE(dropped != nullptr);
    pipeline.samples.ask(pipeline.consumer.get(), 0);  // And no batch comes.
  }
  CHECK(pipeline.stage(0, 1));
  pipeline.take(0, pipeline.consumer);
  pipeline.take(1, pipeline.consumer);
  REQUIRE_CUDA(cudaDeviceSynchronize());
  pipeline.samples.collect();
  CHECK(pipeline.samples.sums().copy.timed == 1);
  CHECK(pipeline.samples.sums().waits.batches == 1);
}

TEST_CASE("while the device is far behind, batches are not measured, and nothing waits",
          "[device_samples]") {
  const bool every = GENERATE(false, true);
  SampledPipeline pipeline(Kind::on_device, every);
  Gate gate;
  gate.hold(pipeline.copies.get());
  gate.hold(pipeline.consumer.get());
  std::uint64_t begun = 0;
  constexpr std::uint64_t kBatches = 200;
  for (std::uint64_t i = 0; i < kBatches; ++i) {
    begun += pipeline.stage(i, penstock::detail::ticks() + static_cast<Ticks>(i) * kMillisecond)
                 ? 1U
                 : 0U;
    pipeline.take(i, pipeline.consumer);
  }
  CHECK(begun == (every ? 64 : 16));
  pipeline.samples.collect();
  CHECK(pipeline.samples.sums().copy.timed == 0);
  gate.open();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  pipeline.samples.collect();
  CHECK(pipeline.samples.sums().copy.timed == begun);
  CHECK(pipeline.samples.sums().waits.batches >= begun - 1);
  // All of them are free again.
  CHECK(pipeline.stage(kBatches, penstock::detail::ticks() + 1000 * kMillisecond));
}

TEST_CASE("a stream that is held up does not hold up the samples of another", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, true);
  const Stream held;
  pipeline.take(0, pipeline.consumer);
  Gate gate;
  gate.hold(held.get());
  pipeline.take(1, held);
  pipeline.take(2, pipeline.consumer);
  pipeline.take(3, held);
  pipeline.take(4, pipeline.consumer);
  pipeline.consumer.synchronize();
  pipeline.samples.collect();
  CHECK(pipeline.samples.sums().waits.batches == 2);
  gate.open();
  held.synchronize();
  pipeline.samples.collect();
  CHECK(pipeline.samples.sums().waits.batches == 4);
}

TEST_CASE("samples leave an error alone that the user has not checked for", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, true);
  Gate gate;
  gate.hold(pipeline.copies.get());
  CHECK(pipeline.stage(0, 1));
  pipeline.samples.collect();
  CHECK(cudaPeekAtLastError() == cudaSuccess);  // "Not ready" is none of the user's.
  gate.open();
  pipeline.copies.synchronize();
  REQUIRE(cudaSetDevice(-1) != cudaSuccess);
  const cudaError_t error = cudaPeekAtLastError();
  pipeline.samples.collect();
  CHECK(pipeline.samples.sums().copy.timed == 0);
  CHECK(cudaGetLastError() == error);
  pipeline.samples.collect();
  CHECK(pipeline.samples.sums().copy.timed == 1);
}

TEST_CASE("samples are read during a stream capture", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, true);
  CHECK(pipeline.stage(0, 1));
  pipeline.take(0, pipeline.consumer);
  pipeline.take(1, pipeline.consumer);
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Stream captured;
  REQUIRE_CUDA(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal));
  pipeline.samples.collect();
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamEndCapture(captured.get(), &graph));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
  CHECK(pipeline.samples.sums().copy.timed == 1);
  CHECK(pipeline.samples.sums().waits.batches == 1);
}

TEST_CASE("samples are read at most once in 100 us on the way", "[device_samples]") {
  SampledPipeline pipeline(Kind::copies, true);
  const Ticks now = penstock::detail::ticks();
  pipeline.samples.collect_now_and_then(now);
  CHECK(pipeline.stage(0, 1));
  pipeline.copies.synchronize();
  pipeline.samples.collect_now_and_then(now + 99'000);
  CHECK(pipeline.samples.sums().copy.timed == 0);
  pipeline.samples.collect_now_and_then(now + 101'000);
  CHECK(pipeline.samples.sums().copy.timed == 1);
}

TEST_CASE("to hand in samples and to read them allocates nothing",
          "[device_samples][allocations]") {
  SampledPipeline pipeline(Kind::transforms, GENERATE(false, true));
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Ticks now = penstock::detail::ticks() + static_cast<Ticks>(i) * kMillisecond;
    DeviceSamples::Copy copy = begin(pipeline.samples, pipeline.copies.get(), now);
    pipeline.samples.arrive(copy);
    pipeline.samples.end(copy);
    pipeline.take(i, pipeline.consumer);  // The emulated runtime allocates where it records.
    REQUIRE_CUDA(cudaDeviceSynchronize());
    const std::uint64_t before = allocations_of_this_thread();
    pipeline.samples.hand_in(std::move(copy), i, now);
    pipeline.samples.collect();
    const std::uint64_t copies = pipeline.samples.sums().copy.timed;
    CHECK(allocations_of_this_thread() == before);
    CHECK(copies == i + 1);
  }
}

TEST_CASE("batches are measured by whoever looks, one thread at a time", "[device_samples]") {
  const bool every = GENERATE(false, true);
  const Kind kind = GENERATE(Kind::copies, Kind::transforms, Kind::on_device);
  SampledPipeline pipeline(kind, every, 4);
  std::atomic<bool> over{false};
  std::vector<std::thread> readers(2);
  for (std::thread& reader : readers)
    reader = std::thread([&] {
      while (!over.load(std::memory_order_relaxed)) {
        pipeline.samples.collect();
        if (pipeline.samples.sums().copy.timed > 1000) break;
      }
    });
  constexpr std::uint64_t kBatches = 300;
  for (std::uint64_t i = 0; i < kBatches; ++i) {
    pipeline.stage(i, penstock::detail::ticks() + static_cast<Ticks>(i) * kMillisecond);
    pipeline.take(i, pipeline.consumer);
    if (i % 4 == 0) REQUIRE_CUDA(cudaDeviceSynchronize());
  }
  REQUIRE_CUDA(cudaDeviceSynchronize());
  over.store(true, std::memory_order_relaxed);
  for (std::thread& reader : readers) reader.join();
  pipeline.samples.collect();
  // What a stopped reader holds up is not measured.
  CHECK(pipeline.samples.sums().copy.timed > 0);
  CHECK(pipeline.samples.sums().copy.timed <= kBatches);
  CHECK(pipeline.samples.sums().waits.batches > 0);
  CHECK(pipeline.samples.sums().waits.batches < kBatches);
}

TEST_CASE("workers begin samples at the same time", "[device_samples]") {
  SampledPipeline pipeline(Kind::on_device, true, 4);
  std::atomic<std::uint64_t> order{0}, measured{0};
  std::vector<std::thread> workers(3);
  for (std::thread& worker : workers)
    worker = std::thread([&] {
      const Stream stream;
      for (int i = 0; i < 100; ++i) {
        DeviceSamples::Copy copy = begin(pipeline.samples, stream.get(), 1);
        pipeline.samples.end(copy);
        if (i % 10 == 0) copy.reset();
        if (copy != nullptr) measured.fetch_add(1);
        pipeline.samples.hand_in(std::move(copy), order.fetch_add(1), 1);
        if (i % 10 == 0) stream.synchronize();
        pipeline.samples.collect();
      }
      stream.synchronize();
    });
  for (std::thread& worker : workers) worker.join();
  pipeline.samples.collect();
  CHECK(measured > 64);
  CHECK(pipeline.samples.sums().copy.timed == measured);
}
