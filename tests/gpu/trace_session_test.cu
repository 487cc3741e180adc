// SPDX-License-Identifier: Apache-2.0

// penstock::trace on a GPU: names and threads, sessions' beginnings and ends, capture ranges,
// bounds, and the findings of loops that are right and wrong.

#include <cuda_profiler_api.h>
#include <penstock/markers.hpp>
#include <penstock/prefetcher.hpp>
#include <penstock/trace/findings.hpp>
#include <penstock/trace/session.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <nvtx3/nvtx3.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "check_batch.cuh"
#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/numbers.hpp"
#include "trace_events.cuh"

namespace trace = penstock::trace;
using penstock::Prefetcher;
using penstock::Sampler;
using penstock::test::call_of;
using penstock::test::check_batch;
using penstock::test::check_order;
using penstock::test::copies;
using penstock::test::DeviceMemory;
using penstock::test::eventually;
using penstock::test::fill_async;
using penstock::test::kBytes;
using penstock::test::launch_add;
using penstock::test::launch_spin;
using penstock::test::Numbers;
using penstock::test::numbers_layout;
using penstock::test::of_kind;
using penstock::test::spin_for;
using penstock::test::TestStream;
using penstock::test::thread_id;
using penstock::test::write_numbers;
using trace::Direction;
using trace::Event;
using trace::Kind;
using trace::Session;
using trace::SessionOptions;
using trace::Timeline;

// ---- Ranges, names, threads

TEST_CASE("ranges, threads and streams bear their names", "[gpu][trace][nvtx]") {
  // Stays: NVTX has no way to say that a stream whose name it was told is gone.
  cudaStream_t stream = nullptr;
  REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const DeviceMemory<unsigned char> device(kBytes);
  Session session;
  std::uint64_t worker = 0;
  std::thread([&] {
    penstock::markers::name_this_thread("worker of the test");
    worker = thread_id();
    const penstock::ScopedRange range(penstock::markers::fill, 7);
    static_cast<void>(cudaMemsetAsync(device.data(), 1, kBytes, stream));
  }).join();
  penstock::markers::name_stream(stream, "stream of the test");
  const Timeline timeline = session.stop();
  const auto ranges = of_kind(timeline, Kind::range);
  REQUIRE(ranges.size() == 1);
  CHECK(timeline.name(ranges.front()) == "fill");
  CHECK(timeline.domain(ranges.front()) == "penstock");
  CHECK(ranges.front().value == 7);
  CHECK(timeline.track(ranges.front()).id == worker);
  CHECK(timeline.track(ranges.front()).name == "worker of the test");
  const auto fills = of_kind(timeline, Kind::fill);
  REQUIRE(fills.size() == 1);
  CHECK(timeline.track(fills.front()).name == "stream of the test");
  const auto call = call_of(timeline, fills.front());
  REQUIRE(call);
  CHECK(call->track == ranges.front().track);
  CHECK(call->begin >= ranges.front().begin);
  CHECK(call->end <= ranges.front().end);
}

TEST_CASE("a stream that had its name before the session has it in the trace", "[gpu][trace]") {
  const TestStream stream;
  const penstock::markers::StreamName name(stream, "named before");
  Session session;
  launch_spin(1000, stream);
  const Timeline timeline = session.stop();
  const auto kernels = of_kind(timeline, Kind::kernel);
  REQUIRE(kernels.size() == 1);
  CHECK(timeline.track(kernels.front()).name == "named before");
}

// A program that names its streams leaves handles of streams that are gone to the next session, and
// the driver crashes when it is asked for one.
TEST_CASE("names of streams that are gone do no harm", "[gpu][trace]") {
  for (int i = 0; i < 50; ++i) {
    {
      const TestStream stream;
      penstock::markers::name_stream(stream, "gone");
    }
    {
      const TestStream stream;
      const penstock::markers::StreamName name(stream, "gone as well");
    }
    Session session;
    TestStream stream;
    launch_spin(1000, stream);
    const Timeline timeline = session.stop();
    CHECK(of_kind(timeline, Kind::kernel).size() == 1);
  }
}

TEST_CASE("every thread's work is in the trace, on tracks of its own", "[gpu][trace]") {
  constexpr std::size_t kThreads = 8, kLaunches = 500;
  std::vector<std::unique_ptr<TestStream>> streams;
  for (std::size_t i = 0; i < kThreads; ++i) streams.push_back(std::make_unique<TestStream>());
  std::vector<std::uint64_t> ids(kThreads);
  Session session;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      ids[i] = thread_id();
      for (std::size_t n = 0; n < kLaunches; ++n) spin_for<<<1, 1, 0, *streams[i]>>>(1000);
    });
  for (std::thread& thread : threads) thread.join();
  const Timeline timeline = session.stop();
  CHECK(timeline.dropped == 0);
  std::map<std::uint32_t, const Event*> by_correlation;
  for (const Event& event : timeline.events)
    if (event.kind == Kind::call) by_correlation[event.correlation] = &event;
  std::map<std::uint64_t, std::size_t> kernels;       // by thread
  std::map<std::uint64_t, std::uint32_t> streams_of;  // the last one that a thread launched on
  std::size_t strays = 0;
  for (const Event& kernel : of_kind(timeline, Kind::kernel)) {
    const auto call = by_correlation.find(kernel.correlation);
    REQUIRE(call != by_correlation.end());
    const std::uint64_t thread = timeline.track(*call->second).id;
    ++kernels[thread];
    strays += streams_of.try_emplace(thread, kernel.track).first->second != kernel.track;
  }
  CHECK(strays == 0);
  for (const std::uint64_t id : ids) CHECK(kernels[id] == kLaunches);
}

// ---- Sessions

TEST_CASE("there is one session at a time, and another one after it", "[gpu][trace]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  for (int i = 0; i < 3; ++i) {
    Session session;
    CHECK_THROWS_AS(Session(), trace::Unavailable);
    launch_add(device, stream);
    const Timeline timeline = session.stop();
    CHECK(of_kind(timeline, Kind::kernel).size() == 1);
    check_order(timeline);
  }
  { const Session given_up; }
  launch_add(device, stream);
  Session session;
  CHECK(of_kind(session.stop(), Kind::kernel).empty());
}

TEST_CASE("sessions begin and end while threads are at work", "[gpu][trace]") {
  constexpr int kThreads = 4;
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0}, rounds{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      cudaStream_t stream = nullptr;
      failures += cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess;
      while (!stop) {
        for (int n = 0; n < 20; ++n) spin_for<<<1, 1, 0, stream>>>(1000);
        failures += cudaStreamSynchronize(stream) != cudaSuccess;
        ++rounds;
      }
      failures += cudaStreamDestroy(stream) != cudaSuccess;
    });
  for (int i = 0; i < 10; ++i) {
    Session session;
    // Of so many rounds at least one began within the session.
    CHECK(eventually([&, before = rounds.load()] { return rounds > before + kThreads; }));
    const Timeline timeline = session.stop();
    check_order(timeline);
    CHECK(of_kind(timeline, Kind::kernel).size() >= 20);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
}

TEST_CASE("a capture range is what is recorded, to its last kernel", "[gpu][trace]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  SessionOptions options;
  options.capture_range = true;
  Session session(options);
  launch_add(device, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  for (int range = 0; range < 2; ++range) {
    REQUIRE_CUDA(cudaProfilerStart());
    launch_spin(3'000'000, stream);
    for (int i = 0; i < 4; ++i) launch_add(device, stream);  // Not waited for.
    REQUIRE_CUDA(cudaProfilerStop());
    for (int i = 0; i < 3; ++i) launch_add(device, stream);
    fill_async(device, 0, stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  const Timeline timeline = session.stop();
  CHECK(of_kind(timeline, Kind::kernel).size() == 10);
  CHECK(of_kind(timeline, Kind::fill).empty());
  CHECK(of_kind(timeline, Kind::call).size() == 10);
  for (const Event& kernel : of_kind(timeline, Kind::kernel)) CHECK(call_of(timeline, kernel));
}

TEST_CASE("memory is bounded, and what has no room is counted", "[gpu][trace]") {
  TestStream stream;
  const DeviceMemory<unsigned char> device(kBytes);
  SessionOptions options;
  options.max_events = 100;
  Session session(options);
  for (int i = 0; i < 300; ++i) launch_add(device, stream);
  const Timeline timeline = session.stop();
  CHECK(timeline.events.size() == 100);
  CHECK(timeline.dropped == 500);  // 300 kernels and their calls
  check_order(timeline);
}

TEST_CASE("a hundred thousand kernels are in the trace, none twice", "[gpu][trace]") {
  constexpr int kKernels = 100'000;
  TestStream stream;
  Session session;
  for (int i = 0; i < kKernels; ++i) launch_spin(0, stream);
  const Timeline timeline = session.stop();
  CHECK(timeline.dropped == 0);
  const auto kernels = of_kind(timeline, Kind::kernel);
  REQUIRE(kernels.size() == kKernels);
  std::size_t out_of_order = 0;
  for (std::size_t i = 1; i < kernels.size(); ++i)
    out_of_order += kernels[i].correlation <= kernels[i - 1].correlation;
  CHECK(out_of_order == 0);
}

// ---- What it is for

TEST_CASE("a loop that does everything wrong has its findings", "[gpu][trace]") {
  TestStream stream;
  std::vector<unsigned char> host(kBytes);
  Session session;
  for (int step = 0; step < 20; ++step) {
    const nvtx3::scoped_range range("step");
    const DeviceMemory<unsigned char> device(kBytes);  // allocates, fills, waits
    REQUIRE_CUDA(
        cudaMemcpyAsync(device.data(), host.data(), kBytes, cudaMemcpyHostToDevice, stream));
    launch_add(device, stream);
    REQUIRE_CUDA(cudaMemcpy(host.data(), device.data(), kBytes, cudaMemcpyDeviceToHost));
  }
  const auto findings = trace::find(session.stop());
  for (const trace::Rule rule :
       {trace::Rule::pageable_copy, trace::Rule::synchronous_copy, trace::Rule::synchronous_fill,
        trace::Rule::allocation, trace::Rule::blocking_call})
    CHECK_FALSE(trace::none_of(findings, rule));
}

TEST_CASE("a warm prefetcher's loop has nothing that blocks or allocates", "[gpu][trace]") {
  TestStream stream;
  const DeviceMemory<std::uint64_t> sum(1);
  const DeviceMemory<unsigned> torn(1);
  const Sampler sampler{{.samples = 64 * 256, .batch_size = 256}};
  Prefetcher<Numbers> prefetcher(numbers_layout(256), sampler, write_numbers, {.workers = 2});
  std::optional<Session> session;
  std::optional<Timeline> timeline;
  int batches = 0;
  while (const auto batch = prefetcher.next(stream)) {
    if (++batches == 8) session.emplace();
    check_batch<<<4, 128, 0, stream>>>(*batch, sum.data(), torn.data());
    if (batches == 56) timeline = session->stop();
  }
  REQUIRE(batches == 64);
  REQUIRE(timeline);
  const auto batch_copies = copies(*timeline, Direction::host_to_device);
  REQUIRE(batch_copies.size() >= 40);  // Some were under way when the session began.
  CHECK(timeline->track(batch_copies.front()).name == "penstock copies");
  CHECK(of_kind(*timeline, Kind::kernel).size() == 49);
  const auto findings = trace::find(*timeline);
  for (const trace::Rule rule :
       {trace::Rule::pageable_copy, trace::Rule::synchronous_copy, trace::Rule::synchronous_fill,
        trace::Rule::allocation, trace::Rule::blocking_call})
    CHECK(trace::none_of(findings, rule));
  CHECK(torn.read().front() == 0);
}

// ---- The last moments

TEST_CASE("the last moments of a loop, again and again", "[gpu][trace][last]") {
  constexpr int kRounds = 3, kKernels = 20'000;  // more than a buffer of CUPTI's holds
  TestStream stream;
  const DeviceMemory<unsigned char> memory(kBytes);
  SessionOptions options;
  options.last = std::chrono::hours(1);
  Session session(options);
  for (int round = 1; round <= kRounds; ++round) {
    for (int i = 0; i < kKernels; ++i) launch_add(memory, stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    const Timeline timeline = session.recent();
    check_order(timeline);
    CHECK(timeline.dropped == 0);
    const std::vector<Event> kernels = of_kind(timeline, Kind::kernel);
    REQUIRE(kernels.size() == static_cast<std::size_t>(round * kKernels));
    const auto call = call_of(timeline, kernels.back());
    REQUIRE(call);
    CHECK(timeline.track(*call).id == thread_id());
  }
  CHECK(of_kind(session.stop(), Kind::kernel).size() == kRounds * kKernels);
}

TEST_CASE("the last moments wait for no kernel, and later ones are recorded",
          "[gpu][trace][last]") {
  TestStream busy, stream;
  const DeviceMemory<unsigned char> memory(kBytes);
  SessionOptions options;
  options.last = std::chrono::milliseconds(300);
  Session session(options);
  launch_add(memory, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  launch_spin(2'000'000'000, busy);
  for (int i = 0; i < 5; ++i) launch_add(memory, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const Timeline timeline = session.recent();
  CHECK(cudaStreamQuery(busy) == cudaErrorNotReady);
  CHECK(of_kind(timeline, Kind::kernel).size() == 5);  // neither the first nor the one that runs
  CHECK(timeline.dropped == 0);
  REQUIRE_CUDA(cudaStreamSynchronize(busy));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  for (int i = 0; i < 7; ++i) launch_add(memory, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(of_kind(session.recent(), Kind::kernel).size() == 7);
}
