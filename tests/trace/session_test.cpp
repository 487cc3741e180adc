// SPDX-License-Identifier: Apache-2.0

// Sessions over the emulated runtime, under every schedule: what a program did is in the timeline,
// all of it, once, in an order that CUDA allows.

#include <penstock/trace/session.hpp>

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <penstock/emulation.hpp>
#include <penstock/penstock.hpp>
#include <penstock/trace/findings.hpp>
#include <set>
#include <thread>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/thrown.hpp"
#include "timelines.hpp"

using namespace penstock::trace;
using namespace penstock::test;

namespace {

/// Calls of the program's own that a timeline has, in their order.
std::vector<std::string> call_names(const Timeline& timeline) {
  std::vector<std::string> names;
  for (const Event& call : events_of(timeline, Kind::call)) names.push_back(timeline.name(call));
  return names;
}

struct Scale {
  float* data;
  void operator()(std::int64_t i) const { data[i] *= 2; }
};

/// Device and pinned memory for a few operations, and the streams that they are on.
struct Machine {
  static constexpr std::size_t kFloats = 1024, kBytes = kFloats * sizeof(float);
  Machine() {
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    REQUIRE_CUDA(cudaMalloc(&device, kBytes));
    REQUIRE_CUDA(cudaMallocHost(&host, kBytes));
  }
  ~Machine() {
    cudaStreamDestroy(stream);
    cudaFree(device);
    cudaFreeHost(host);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  float* floats() const { return static_cast<float*>(device); }

  cudaStream_t stream = nullptr;
  void* device = nullptr;
  void* host = nullptr;
};

/// What holds for every timeline that was recorded over the emulated runtime.
void check_consistent(const Timeline& timeline) {
  std::map<std::uint32_t, const Event*> calls;
  for (const Event& event : timeline.events) {
    REQUIRE(event.begin >= timeline.begin);
    REQUIRE(event.end <= timeline.end);
    REQUIRE(event.begin <= event.end);
    if (event.kind == Kind::call) {
      REQUIRE(event.correlation != 0);
      REQUIRE(calls.emplace(event.correlation, &event).second);
    }
  }
  std::map<std::uint32_t, Time> stream_ends;
  for (const Event& event : timeline.events) {
    if (!on_device(event.kind)) continue;
    REQUIRE(timeline.track(event).kind == Track::Kind::stream);
    const auto call = calls.find(event.correlation);
    REQUIRE(call != calls.end());
    REQUIRE(event.end >= call->second->begin);  // The work is not older than the call.
    Time& end = stream_ends[event.track];
    REQUIRE(event.begin >= end);  // One after the other.
    end = event.end;
  }
}

}  // namespace

TEST_CASE("Session: every call and every operation, joined by its correlation", "[trace]") {
  const Machine machine;
  Session session;
  REQUIRE_CUDA(cudaMemsetAsync(machine.device, 0, Machine::kBytes, machine.stream));
  REQUIRE_CUDA(
      cudaMemcpyAsync(machine.device, machine.host, 4000, cudaMemcpyHostToDevice, machine.stream));
  penstock::for_each(machine.stream, 8, Scale{machine.floats()});
  REQUIRE_CUDA(
      cudaMemcpyAsync(machine.host, machine.device, 2000, cudaMemcpyDeviceToHost, machine.stream));
  REQUIRE_CUDA(cudaStreamSynchronize(machine.stream));
  const Timeline timeline = session.stop();

  CHECK(call_names(timeline) ==
        std::vector<std::string>{"cudaMemsetAsync", "cudaMemcpyAsync", "cudaStreamGetCaptureInfo",
                                 "cudaLaunchHostFunc", "cudaMemcpyAsync", "cudaStreamSynchronize"});
  check_consistent(timeline);
  CHECK(timeline.dropped == 0);
  CHECK(timeline.origin.emulated);
  CHECK(timeline.origin.recorder == "emulated CUDA runtime");
  CHECK(timeline.origin.process == ::getpid());
  CHECK_THAT(timeline.origin.program, Mentions("session_tests"));

  const auto work = events_where(timeline, [](const Event& e) { return on_device(e.kind); });
  REQUIRE(work.size() == 4);
  CHECK(work[0].kind == Kind::fill);
  CHECK(work[0].value == Machine::kBytes);
  CHECK(work[1].kind == Kind::copy);
  CHECK(work[1].direction == Direction::host_to_device);
  CHECK(work[1].value == 4000);
  CHECK(work[1].flags == 0);
  CHECK(work[2].kind == Kind::kernel);
  CHECK_THAT(timeline.name(work[2]), Mentions("Scale"));
  CHECK(work[3].direction == Direction::device_to_host);
  for (const Event& event : work) {
    CHECK(timeline.track(event).device == 0);
    CHECK(timeline.track(event).id == 1);  // the first stream that was created
  }
  for (const Event& call : events_of(timeline, Kind::call)) {
    CHECK(timeline.track(call).id == thread_id());
    CHECK(call.value == cudaSuccess);
  }
}

namespace {

/// What the timeline says is taken of device 0, each level once.
std::vector<std::uint64_t> levels_of(const Timeline& timeline) {
  std::vector<std::uint64_t> levels;
  for (const MemoryLevel& level : timeline.memory)
    if (level.device == 0) levels.push_back(level.bytes);
  return levels;
}

std::uint64_t memory_taken() {
  std::size_t free = 0, total = 0;
  REQUIRE_CUDA(cudaMemGetInfo(&free, &total));
  return total - free;
}

}  // namespace

TEST_CASE("Session: how much memory each device holds, from when on", "[trace]") {
  const Machine machine;
  const std::uint64_t before = memory_taken();
  Session session;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMalloc(&memory, 1 << 20));
  const std::uint64_t with = memory_taken();
  REQUIRE_CUDA(cudaMemsetAsync(memory, 0, 1 << 20, machine.stream));
  REQUIRE_CUDA(cudaStreamSynchronize(machine.stream));
  REQUIRE_CUDA(cudaFree(memory));
  const Timeline timeline = session.stop();
  CHECK(with == before + (1 << 20));
  CHECK(levels_of(timeline) == std::vector<std::uint64_t>{before, with, before});
  for (const MemoryLevel& level : timeline.memory) {
    CHECK(level.begin >= timeline.begin);
    CHECK(level.begin <= timeline.end);
  }
  CHECK(timeline.memory.front().begin < events_named(timeline, "cudaMalloc").front().end);
}

TEST_CASE("Session: memory of pools and of graphs is among what a device holds", "[trace]") {
  const Machine machine;
  const std::uint64_t before = memory_taken();
  Session session;
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&memory, 8 << 20, machine.stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, machine.stream));
  REQUIRE_CUDA(cudaStreamSynchronize(machine.stream));
  REQUIRE_CUDA(cudaStreamBeginCapture(machine.stream, cudaStreamCaptureModeThreadLocal));
  REQUIRE_CUDA(cudaMallocAsync(&memory, 64 << 20, machine.stream));
  REQUIRE_CUDA(cudaMemsetAsync(memory, 0, 64 << 20, machine.stream));
  REQUIRE_CUDA(cudaFreeAsync(memory, machine.stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  REQUIRE_CUDA(cudaStreamEndCapture(machine.stream, &graph));
  REQUIRE_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  REQUIRE_CUDA(cudaGraphLaunch(executable, machine.stream));
  REQUIRE_CUDA(cudaStreamSynchronize(machine.stream));
  const Timeline timeline = session.stop();
  REQUIRE_CUDA(cudaGraphExecDestroy(executable));
  REQUIRE_CUDA(cudaGraphDestroy(graph));
  std::uint64_t of_pool = 0, at_most = 0;
  for (const std::uint64_t level : levels_of(timeline)) {
    at_most = std::max(at_most, level);
    if (level >= before + (8 << 20) && of_pool == 0) of_pool = level;
  }
  CHECK(of_pool < before + (64 << 20));
  CHECK(at_most >= before + (64 << 20));
}

TEST_CASE("Session: of memory a capture range has what is held when it begins", "[trace]") {
  const Machine machine;
  Session session({.capture_range = true, .calls = false});
  void *early = nullptr, *late = nullptr;
  REQUIRE_CUDA(cudaMalloc(&early, 1 << 20));
  const std::uint64_t before = memory_taken();
  REQUIRE_CUDA(cudaProfilerStart());
  REQUIRE_CUDA(cudaMalloc(&late, 1 << 20));
  REQUIRE_CUDA(cudaProfilerStop());
  REQUIRE_CUDA(cudaFree(late));
  REQUIRE_CUDA(cudaFree(early));
  const Timeline timeline = session.stop();
  CHECK(levels_of(timeline) == std::vector<std::uint64_t>{before, before + (1 << 20)});
}

TEST_CASE("Session: without memory", "[trace]") {
  const Machine machine;
  Session session({.memory = false});
  void* memory = nullptr;
  REQUIRE_CUDA(cudaMalloc(&memory, 1 << 20));
  REQUIRE_CUDA(cudaFree(memory));
  CHECK(session.stop().memory.empty());
}

TEST_CASE("Session: what copies and fills are", "[trace]") {
  const Machine machine;
  std::vector<float> pageable_memory(Machine::kFloats);
  Session session;
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    REQUIRE_CUDA(cudaMemcpy(to, from, Machine::kBytes, kind));
    REQUIRE_CUDA(cudaDeviceSynchronize());
    REQUIRE_CUDA(cudaMemcpyAsync(to, from, Machine::kBytes, kind, machine.stream));
    REQUIRE_CUDA(cudaStreamSynchronize(machine.stream));
  };
  copy(machine.device, machine.host, cudaMemcpyHostToDevice);
  copy(pageable_memory.data(), machine.device, cudaMemcpyDeviceToHost);
  REQUIRE_CUDA(cudaMemset(machine.device, 0, Machine::kBytes));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  REQUIRE_CUDA(cudaMemsetAsync(machine.device, 0, Machine::kBytes, machine.stream));
  const Timeline timeline = session.stop();

  std::map<std::uint32_t, std::string> calls;
  for (const Event& call : events_of(timeline, Kind::call))
    calls[call.correlation] = timeline.name(call);
  std::set<std::tuple<std::string, Direction, unsigned>> seen;
  for (const Event& event : timeline.events)
    if (on_device(event.kind))
      seen.insert({calls[event.correlation], event.direction, event.flags});
  CHECK(seen == std::set<std::tuple<std::string, Direction, unsigned>>{
                    {"cudaMemcpy", Direction::host_to_device, synchronous},
                    {"cudaMemcpy", Direction::device_to_host, synchronous | pageable},
                    {"cudaMemcpyAsync", Direction::host_to_device, 0},
                    {"cudaMemcpyAsync", Direction::device_to_host, pageable},
                    {"cudaMemset", Direction::none, synchronous},
                    {"cudaMemsetAsync", Direction::none, 0}});
}

TEST_CASE("Session: a call that fails is in the timeline with its result", "[trace]") {
  Session session;
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, std::size_t{1} << 50) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  const Timeline timeline = session.stop();
  CHECK(call_names(timeline) == std::vector<std::string>{"cudaMalloc"});  // not cudaGetLastError
  CHECK(timeline.events[0].has(failed));
  CHECK(timeline.events[0].value == cudaErrorMemoryAllocation);
}

TEST_CASE("Session: work that was submitted is in the timeline, though nobody waited", "[trace]") {
  const Machine machine;
  Session session;
  for (int i = 0; i < 20; ++i)
    REQUIRE_CUDA(
        cudaMemcpyAsync(machine.device, machine.host, 64, cudaMemcpyHostToDevice, machine.stream));
  const Timeline timeline = session.stop();
  CHECK(events_of(timeline, Kind::copy).size() == 20);
  check_consistent(timeline);
}

TEST_CASE("Session: what was submitted before it is no work of a call of its", "[trace]") {
  const Machine machine;
  Gate gate;
  gate.hold(machine.stream);
  REQUIRE_CUDA(
      cudaMemcpyAsync(machine.device, machine.host, 64, cudaMemcpyHostToDevice, machine.stream));
  Session session;
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(machine.stream));
  const Timeline timeline = session.stop();
  const auto copies = events_of(timeline, Kind::copy);
  REQUIRE(copies.size() == 1);  // It is the device's time all the same.
  CHECK(copies[0].correlation == 0);
  CHECK(call_names(timeline) == std::vector<std::string>{"cudaStreamSynchronize"});
}

TEST_CASE("Session: the nodes of a graph one by one, or its launches as wholes", "[trace]") {
  const Machine machine;
  REQUIRE_CUDA(cudaStreamBeginCapture(machine.stream, cudaStreamCaptureModeThreadLocal));
  REQUIRE_CUDA(cudaMemsetAsync(machine.device, 0, Machine::kBytes, machine.stream));
  penstock::for_each(machine.stream, 8, Scale{machine.floats()});
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamEndCapture(machine.stream, &graph));
  cudaGraphExec_t exec = nullptr;
  REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  const bool one_by_one = GENERATE(true, false);
  SessionOptions options;
  options.graph_nodes = one_by_one;
  Session session(options);
  for (int launch = 0; launch < 3; ++launch) REQUIRE_CUDA(cudaGraphLaunch(exec, machine.stream));
  const Timeline timeline = session.stop();
  REQUIRE_CUDA(cudaGraphExecDestroy(exec));
  REQUIRE_CUDA(cudaGraphDestroy(graph));

  check_consistent(timeline);
  CHECK(events_of(timeline, Kind::fill).size() == (one_by_one ? 3 : 0));
  CHECK(events_of(timeline, Kind::kernel).size() == (one_by_one ? 3 : 0));
  CHECK(events_of(timeline, Kind::graph).size() == (one_by_one ? 0 : 3));
  std::map<std::uint32_t, int> of_launch;
  for (const Event& event : timeline.events)
    if (on_device(event.kind)) ++of_launch[event.correlation];
  CHECK(of_launch.size() == 3);
  for (const auto& [correlation, count] : of_launch) CHECK(count == (one_by_one ? 2 : 1));
}

TEST_CASE("Session: the capture range, and nothing outside of it", "[trace]") {
  const Machine machine;
  SessionOptions options;
  options.capture_range = true;
  Session session(options);
  const auto copy = [&](std::size_t bytes) {
    REQUIRE_CUDA(cudaMemcpyAsync(machine.device, machine.host, bytes, cudaMemcpyHostToDevice,
                                 machine.stream));
    REQUIRE_CUDA(cudaStreamSynchronize(machine.stream));
  };
  const penstock::ScopedRange around(penstock::markers::fill, 1);
  for (const std::size_t bytes : {1UL, 2UL, 3UL}) {
    copy(100 + bytes);
    REQUIRE_CUDA(cudaProfilerStart());
    copy(bytes);
    REQUIRE_CUDA(cudaProfilerStop());
  }
  copy(200);
  const Timeline timeline = session.stop();
  std::vector<std::uint64_t> bytes;
  for (const Event& event : events_of(timeline, Kind::copy)) bytes.push_back(event.value);
  CHECK(bytes == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(call_names(timeline).size() == 6);
  CHECK(events_of(timeline, Kind::range).size() == 3);  // cut to each
  check_consistent(timeline);
}

TEST_CASE("Session: a capture range that never came is an empty timeline", "[trace]") {
  SessionOptions options;
  options.capture_range = true;
  Session session(options);
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const Timeline timeline = session.stop();
  CHECK(timeline.events.empty());
  CHECK(timeline.begin == timeline.end);
}

TEST_CASE("Session: cudaProfilerStart means nothing without a capture range", "[trace]") {
  Session session;
  REQUIRE_CUDA(cudaProfilerStop());
  REQUIRE_CUDA(cudaDeviceSynchronize());
  REQUIRE_CUDA(cudaProfilerStart());
  CHECK(call_names(session.stop()) == std::vector<std::string>{"cudaDeviceSynchronize"});
}

TEST_CASE("Session: max_events bounds what is kept, and the others are counted", "[trace]") {
  SessionOptions options;
  options.max_events = 10;
  Session session(options);
  for (int i = 0; i < 25; ++i) REQUIRE_CUDA(cudaDeviceSynchronize());
  const Timeline timeline = session.stop();
  CHECK(timeline.events.size() == 10);
  CHECK(timeline.dropped == 15);
}

TEST_CASE("Session: without calls, without ranges", "[trace]") {
  const Machine machine;
  SessionOptions options;
  options.calls = options.ranges = false;
  Session session(options);
  {
    const penstock::ScopedRange range(penstock::markers::fill, 1);
    REQUIRE_CUDA(cudaMemsetAsync(machine.device, 0, 64, machine.stream));
  }
  const Timeline timeline = session.stop();
  REQUIRE(timeline.events.size() == 1);
  CHECK(timeline.events[0].kind == Kind::fill);
}

TEST_CASE("Session: one at a time", "[trace]") {
  {
    Session session;
    CHECK_THAT(thrown<Unavailable>([] { Session second; }),
               Mentions("another penstock::trace::Session"));
    session.stop();
    CHECK_THAT(thrown<std::logic_error>([&] { session.stop(); }), Mentions("stopped before"));
  }
  {
    Session dropped;
    REQUIRE_CUDA(cudaDeviceSynchronize());
  }
  Session next;
  CHECK(next.stop().events.empty());
}

TEST_CASE("Session: not where the runtime has an observer already", "[trace]") {
  const penstock::emulation::Observer observer{nullptr,
                                               [](void*, const penstock::emulation::ApiCall&) {},
                                               [](void*, const penstock::emulation::Operation&) {}};
  REQUIRE(penstock::emulation::observe(observer));
  CHECK_FALSE(penstock::emulation::observe(observer));
  CHECK_THAT(thrown<Unavailable>([] { Session session; }), Mentions("observed already"));
  penstock::emulation::stop_observing();
  Session session;
  CHECK(session.stop().dropped == 0);
}

TEST_CASE("Session: begins and ends while other threads work", "[trace]") {
  constexpr int kThreads = 3;
  std::atomic<bool> stop{false};
  std::atomic<int> working{0};
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Machine>> machines;
  for (int i = 0; i < kThreads; ++i) machines.push_back(std::make_unique<Machine>());
  for (const auto& machine : machines)
    threads.emplace_back([&stop, &working, m = machine.get()] {
      for (std::uint64_t i = 0; !stop; ++i) {
        const penstock::ScopedRange outer(penstock::markers::next, i);
        const penstock::ScopedRange inner(penstock::markers::copy, i);
        cudaMemcpyAsync(m->device, m->host, 64, cudaMemcpyHostToDevice, m->stream);
        penstock::for_each(m->stream, 1, Scale{m->floats()});
        cudaStreamSynchronize(m->stream);
        if (i == 0) ++working;
      }
    });
  while (working < kThreads) std::this_thread::yield();
  for (int round = 0; round < 10; ++round) {
    Session session;
    REQUIRE_CUDA(cudaDeviceSynchronize());
    const Timeline timeline = session.stop();
    CHECK(timeline.dropped == 0);
    REQUIRE(std::is_sorted(timeline.events.begin(), timeline.events.end(),
                           [](const Event& a, const Event& b) { return a.begin < b.begin; }));
    for (const Event& event : timeline.events) {
      REQUIRE(event.begin >= timeline.begin);
      REQUIRE(event.end <= timeline.end);
    }
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// ThreadSanitizer does not see the runtime's lock, under which threads come to a session.
#ifndef __SANITIZE_THREAD__

TEST_CASE("Session: may end while another thread begins its capture range", "[trace]") {
  std::atomic<bool> stop{false};
  std::atomic<int> ranges{0};
  std::thread other([&] {
    while (!stop) {
      cudaProfilerStart();
      { const penstock::ScopedRange range(penstock::markers::fill, 1); }
      cudaProfilerStop();
      ++ranges;
    }
  });
  SessionOptions options;
  options.capture_range = true;
  for (int round = 0; round < 3000 || ranges < 3000; ++round) {
    Session session(options);
    if (round % 2 == 0) session.stop();
  }
  stop = true;
  other.join();
  Session next(options);  // of whose capture range nobody has spoken
  CHECK(next.stop().events.empty());
}

#endif

namespace {

struct Batch {
  penstock::Tensor<float, 2> values;
};

/// One epoch through the whole pipeline; what the consumer's kernels are given is checked by the
/// race detection.
void run_pipeline(cudaStream_t stream, std::uint64_t batches) {
  const auto layout = penstock::Layout<Batch>{4}.field(&Batch::values, {256});
  const penstock::Sampler sampler({.samples = 4 * batches, .batch_size = 4});
  penstock::PrefetcherOptions options;
  options.workers = 2;
  penstock::Prefetcher<Batch> prefetcher(
      layout, sampler,
      [](const penstock::Ticket& ticket, Batch& batch) {
        for (std::int64_t i = 0; i < batch.values.extent(0); ++i)
          for (std::int64_t j = 0; j < 256; ++j)
            batch.values(i, j) = static_cast<float>(ticket.batch);
      },
      options);
  while (auto batch = prefetcher.next(stream))
    penstock::for_each(stream, 4 * 256, Scale{batch->values.data_handle()});
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace

TEST_CASE("Session: a pipeline, with its threads, its stages and its streams by name", "[trace]") {
  constexpr std::uint64_t kBatches = 24;
  const Machine machine;
  Session session;
  run_pipeline(machine.stream, kBatches);
  const Timeline timeline = session.stop();

  check_consistent(timeline);
  CHECK(events_of(timeline, Kind::copy).size() == kBatches);
  CHECK(events_of(timeline, Kind::kernel).size() == kBatches);
  std::map<std::string, std::uint64_t> payloads;  // one range of each stage for each batch
  for (const Event& range : events_of(timeline, Kind::range)) {
    CHECK(timeline.domain(range) == "penstock");
    if (timeline.name(range) == "fill") payloads["fill"] += range.value + 1;
    if (timeline.name(range) == "copy") payloads["copy"] += range.value + 1;
  }
  CHECK(payloads["fill"] == kBatches * (kBatches + 1) / 2);
  CHECK(payloads["copy"] == kBatches * (kBatches + 1) / 2);
  std::set<std::string> titles;
  for (const Track& track : timeline.tracks) titles.insert(track.name);
  CHECK(titles == std::set<std::string>{"", "main thread", "penstock copies", "penstock worker"});
}

// What a user's own test can look like: no call in the loop makes the host wait for a copy.
TEST_CASE("Session: no synchronous copy in my loop", "[trace]") {
  const Machine machine;
  Session session;
  run_pipeline(machine.stream, 8);
  const Timeline timeline = session.stop();
  const std::vector<Finding> findings = find(timeline);
  CHECK(none_of(findings, Rule::synchronous_copy));
  CHECK(none_of(findings, Rule::pageable_copy));
}
