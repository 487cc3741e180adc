// SPDX-License-Identifier: Apache-2.0

// The backend over CUPTI, with a CUPTI that does what the test says: which calls and records become
// which events, when, and what is left behind. What the real one does is seen on a GPU
// (tests/gpu/trace_test.cu).

#include "backend.hpp"

#include <atomic>
#include <climits>
#include <ctime>
#include <memory>
#include <optional>
#include <penstock/markers.hpp>
#include <string>
#include <thread>
#include <vector>

#include "event_sink.hpp"
#include "fake_cupti.hpp"
#include "nvtx.hpp"
#include "support/catch.hpp"
#include "thread_id.hpp"

namespace fake = penstock::test::fake;
using namespace penstock::trace;
using penstock::trace::detail::Backend;
using penstock::trace::detail::EventSink;
using penstock::trace::detail::make_cupti_backend;

namespace {

constexpr auto kCopyCall = CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020;
constexpr auto kLaunchCall = CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000;
constexpr auto kQueryCall = CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020;
constexpr auto kStart = CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStart_v4000;
constexpr auto kStop = CUPTI_RUNTIME_TRACE_CBID_cudaProfilerStop_v4000;
constexpr auto kDriverLaunch = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;

/// A sink and a backend that records into it; cudaProfilerStart and cudaProfilerStop switch it.
struct Recording {
  explicit Recording(SessionOptions options = {}, std::size_t events = 1000) : sink(events) {
    backend = make_cupti_backend(
        sink, options,
        [](void* self, bool start) {
          auto& recording = *static_cast<Recording*>(self);
          if (!recording.switched) return;
          if (start) recording.backend->resume();
          if (!start) recording.backend->pause();
        },
        this);
    switched = options.capture_range;
    if (!switched) backend->resume();
  }
  Timeline take() {
    backend->pause();
    backend->flush();
    return sink.take(0, detail::now() + 1'000'000'000'000);
  }

  EventSink sink;
  bool switched = false;
  std::unique_ptr<Backend> backend;
};

CUpti_ActivityKernel10 kernel(const char* name, Time begin, Time end, std::uint32_t number = 1) {
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = name;
  record.start = static_cast<std::uint64_t>(begin);
  record.end = static_cast<std::uint64_t>(end);
  record.deviceId = 1;
  record.streamId = 13;
  record.correlationId = number;
  return record;
}

CUpti_ActivityMemcpy6 copy(CUpti_ActivityMemcpyKind kind, CUpti_ActivityMemoryKind from,
                           CUpti_ActivityMemoryKind to, CUpti_ActivityFlag flags) {
  CUpti_ActivityMemcpy6 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copyKind = static_cast<std::uint8_t>(kind);
  record.srcKind = static_cast<std::uint8_t>(from);
  record.dstKind = static_cast<std::uint8_t>(to);
  record.flags = static_cast<std::uint8_t>(flags);
  record.bytes = 4096;
  record.start = 1000;
  record.end = 2000;
  record.streamId = 14;
  record.correlationId = 5;
  return record;
}

std::vector<Event> of_kind(const Timeline& timeline, Kind kind) {
  std::vector<Event> found;
  for (const Event& event : timeline.events)
    if (event.kind == kind) found.push_back(event);
  return found;
}

std::vector<std::string> names(const Timeline& timeline) {
  std::vector<std::string> found;
  for (const Event& event : timeline.events) found.push_back(timeline.name(event));
  return found;
}

/// The one event that a record makes.
template <class Record>
Event event_of(const Record& record, SessionOptions options = {}) {
  Recording recording(options);
  fake::record(record);
  const Timeline timeline = recording.take();
  REQUIRE(timeline.events.size() == 1);
  return timeline.events.front();
}

constexpr auto kPinned = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
constexpr auto kPageable = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
constexpr auto kDevice = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
constexpr auto kAsync = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
constexpr auto kSync = CUPTI_ACTIVITY_FLAG_NONE;

}  // namespace

// ---- Records

TEST_CASE("a kernel's record becomes an event, with a name to read", "[cupti]") {
  Recording recording;
  fake::record(kernel("_Z7add_onePfl", 1000, 2500, 9));
  fake::record(kernel("_Z7add_onePfl", 3000, 3500, 10));
  fake::record(kernel("gemm", 4000, 4100, 11));
  fake::record(kernel("_Z4packIfEvPT_", 5000, 5100, 12));
  const Timeline timeline = recording.take();
  CHECK(names(timeline) == std::vector<std::string>{"add_one", "add_one", "gemm", "pack<float>"});
  const Event& first = timeline.events.front();
  CHECK(first.kind == Kind::kernel);
  CHECK(first.begin == 1000);
  CHECK(first.end == 2500);
  CHECK(first.correlation == 9);
  CHECK(timeline.track(first).kind == Track::Kind::stream);
  CHECK(timeline.track(first).device == 1);
  CHECK(timeline.track(first).id == 13);
}

TEST_CASE("copies have their direction, bytes and flags", "[cupti]") {
  const Event up = event_of(copy(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, kPinned, kDevice, kAsync));
  CHECK(up.direction == Direction::host_to_device);
  CHECK(up.value == 4096);
  CHECK(up.flags == 0);
  CHECK(up.correlation == 5);
  const Event down = event_of(copy(CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, kDevice, kPageable, kAsync));
  CHECK(down.direction == Direction::device_to_host);
  CHECK(down.flags == pageable);
  const Event waited = event_of(copy(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, kPageable, kDevice, kSync));
  CHECK(waited.flags == (pageable | synchronous));
  CHECK(event_of(copy(CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, kDevice, kDevice, kAsync)).direction ==
        Direction::device_to_device);

  auto node = copy(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, kPinned, kDevice, kSync);
  node.graphNodeId = 3;  // Nobody waits for a graph's node.
  CHECK(event_of(node).flags == 0);
  auto of_runtime = copy(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, kPinned, kDevice, kAsync);
  of_runtime.runtimeCorrelationId = 77;
  CHECK(event_of(of_runtime).correlation == 77);
}

TEST_CASE("peer copies, fills and graphs become events", "[cupti]") {
  CUpti_ActivityMemcpyPtoP4 peer{};
  peer.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
  peer.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  peer.bytes = 10;
  peer.start = 1;
  peer.end = 2;
  CHECK(event_of(peer).direction == Direction::peer_to_peer);
  CHECK(event_of(peer).flags == 0);

  CUpti_ActivityMemset4 fill{};
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.bytes = 11;
  fill.start = 1;
  fill.end = 2;
  CHECK(event_of(fill).kind == Kind::fill);
  CHECK(event_of(fill).value == 11);
  CHECK(event_of(fill).flags == synchronous);
  fill.flags = CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC;
  CHECK(event_of(fill).flags == 0);

  CUpti_ActivityGraphTrace2 graph{};
  graph.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  graph.start = 1;
  graph.end = 2;
  SessionOptions whole_graphs;
  whole_graphs.graph_nodes = false;
  CHECK(event_of(graph, whole_graphs).kind == Kind::graph);
  graph.deviceId = graph.endDeviceId = INT_MAX;
  Recording of_the_host(whole_graphs);
  fake::record(graph);  // no work of any device
  CHECK(of_the_host.take().events.empty());
  of_the_host.backend.reset();
  Recording nodes;
  fake::record(graph);
  CHECK(nodes.take().events.empty());
}

TEST_CASE("records without times are counted, as those that CUPTI dropped", "[cupti]") {
  Recording recording;
  fake::record(kernel("no_memory_for_its_times", 0, 0));
  fake::record(kernel("backwards", 20, 10));
  fake::record(kernel("whole", 10, 20));
  fake::drop(5);
  const Timeline timeline = recording.take();
  CHECK(names(timeline) == std::vector<std::string>{"whole"});
  CHECK(timeline.dropped == 7);
}

TEST_CASE("what the device has done so far is handed over, without a wait", "[cupti]") {
  Recording recording;
  const int waited = fake::synchronisations();
  fake::record(kernel("ended", 10, 20));
  fake::record(kernel("runs", 15, 0));
  recording.backend->hand_over();
  CHECK(fake::synchronisations() == waited);
  fake::record(kernel("later", 30, 40));
  detail::RangesUnderWay none;
  none.moment = 100;
  const Timeline timeline = recording.sink.copy(0, 100, none);
  CHECK(names(timeline) == std::vector<std::string>{"ended"});
  CHECK(timeline.dropped == 0);  // What runs is no loss.
  fake::record(kernel("no_memory_for_its_times", 0, 0));
  const Timeline all = recording.take();
  CHECK(names(all) == std::vector<std::string>{"ended", "later"});
  CHECK(all.dropped == 1);
}

namespace {
std::atomic<Time> the_time{0};
}

TEST_CASE("names are right in each era of a sink that keeps the last events", "[cupti]") {
  constexpr Time kSecond = 1'000'000'000;
  the_time = 100 * kSecond;
  EventSink sink(
      1000, kSecond, +[] { return the_time.load(); });
  const auto backend = make_cupti_backend(
      sink, {}, [](void*, bool) {}, nullptr);
  backend->resume();
  std::optional<penstock::markers::StreamName> stream(
      std::in_place, reinterpret_cast<cudaStream_t>(13), "compute");
  detail::start_names(sink, *backend);
  for (int era = 0; era < 8; ++era) {
    the_time += 2 * kSecond;
    sink.name("request " + std::to_string(era));  // begins the next one
    fake::record(kernel("k", the_time - 10, the_time));
    fake::runtime_call(kCopyCall);
    detail::tell_names_again();
    backend->hand_over();
    detail::RangesUnderWay none;
    none.moment = the_time;
    const Timeline timeline = sink.copy(the_time - kSecond, the_time, none);
    const std::vector<Event> kernels = of_kind(timeline, Kind::kernel);
    REQUIRE(kernels.size() == 1);
    CHECK(timeline.name(kernels[0]) == "k");
    CHECK(timeline.track(kernels[0]).id == 13);
  }
  const Timeline all = sink.take(0, detail::now() + 1000 * kSecond);
  const std::vector<Event> calls = of_kind(all, Kind::call);
  REQUIRE(calls.size() >= 1);
  CHECK(all.name(calls.back()) == "cudaMemcpyAsync");
  detail::stop_names();
}

TEST_CASE("times of CUPTI's own clock are brought to CLOCK_MONOTONIC", "[cupti]") {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const Time before = detail::now();
  const Time begin = Time{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
  const Event event = event_of(kernel("late", begin, begin + 777));
  CHECK(std::abs(event.begin - before) < 10'000'000);
  CHECK(event.duration() == 777);
  CHECK(fake::clock_registrations() == 1);  // Once, however many there were before.
}

TEST_CASE("more records than a buffer holds go through several", "[cupti]") {
  constexpr int kKernels = 20'000;
  Recording recording({}, kKernels);
  for (int i = 0; i < kKernels; ++i) {
    if (i % 3000 == 0) fake::deliver();
    fake::record(kernel("k", 100 + i, 101 + i));
  }
  const Timeline timeline = recording.take();
  CHECK(timeline.events.size() == kKernels);
  CHECK(timeline.dropped == 0);
}

// ---- Calls

TEST_CASE("a call of the runtime is an event, the driver's calls in it are none", "[cupti]") {
  Recording recording;
  const Time before = detail::now();
  const std::uint32_t number =
      fake::runtime_call(kLaunchCall, [] { fake::driver_call(kDriverLaunch); });
  const Time after = detail::now();
  const std::uint32_t direct = fake::driver_call(kDriverLaunch);
  const Timeline timeline = recording.take();
  CHECK(names(timeline) == std::vector<std::string>{"cudaLaunchKernel", "cuLaunchKernel"});
  const Event& call = timeline.events[0];
  CHECK(call.kind == Kind::call);
  CHECK(call.correlation == number);
  CHECK(call.begin >= before);
  CHECK(call.end <= after);
  CHECK(timeline.track(call).kind == Track::Kind::thread);
  CHECK(timeline.track(call).id == detail::this_thread_id());
  CHECK(timeline.events[1].correlation == direct);
}

TEST_CASE("calls that only ask for the thread's state are none", "[cupti]") {
  Recording recording;
  fake::runtime_call(CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020);
  fake::runtime_call(CUPTI_RUNTIME_TRACE_CBID___cudaPushCallConfiguration_v13000);
  fake::driver_call(CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice);
  fake::runtime_call(kCopyCall);
  CHECK(names(recording.take()) == std::vector<std::string>{"cudaMemcpyAsync"});
}

TEST_CASE("a failure is told, an answer is none", "[cupti]") {
  Recording recording;
  fake::call(CUPTI_CB_DOMAIN_RUNTIME_API, kCopyCall, 700);
  fake::call(CUPTI_CB_DOMAIN_RUNTIME_API, kQueryCall, 600);
  const Timeline timeline = recording.take();
  REQUIRE(timeline.events.size() == 2);
  CHECK(timeline.events[0].flags == failed);
  CHECK(timeline.events[0].value == 700);
  CHECK(timeline.events[1].flags == 0);
}

TEST_CASE("calls are left out on demand", "[cupti]") {
  SessionOptions options;
  options.calls = false;
  Recording recording(options);
  fake::runtime_call(kCopyCall);
  fake::record(kernel("k", 1, 2));
  CHECK(names(recording.take()) == std::vector<std::string>{"k"});
}

TEST_CASE("memory is looked at when it begins, after calls that change it, and when it ends",
          "[cupti]") {
  constexpr auto kMalloc = CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020;
  constexpr auto kMallocHost = CUPTI_RUNTIME_TRACE_CBID_cudaMallocHost_v3020;
  constexpr auto kMallocAsync = CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020;
  constexpr auto kDriverMalloc = CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2;
  const bool calls = GENERATE(true, false);
  fake::set_memory_taken(100);
  Recording recording({.calls = calls});
  const auto allocating = [&](std::uint32_t id, std::size_t then) {
    const int before = fake::memory_questions();
    // As the runtime does, by a call of the driver's.
    fake::runtime_call(id, [&] {
      fake::set_memory_taken(then);
      if (id == kMalloc) fake::driver_call(kDriverMalloc);
    });
    return fake::memory_questions() - before;
  };
  CHECK(allocating(kMalloc, 300) == 1);  // and not once more within
  CHECK(allocating(kMallocHost, 300) == 0);
  CHECK(allocating(kCopyCall, 300) == 0);
  CHECK(allocating(kLaunchCall, 300) == 0);
  if (calls) {
    // In stream order: once in a millisecond.
    CHECK(allocating(kMallocAsync, 400) == 1);
    CHECK(allocating(kMallocAsync, 450) == 0);
  }
  fake::set_memory_taken(200);
  const Timeline timeline = recording.take();
  std::vector<std::uint64_t> levels;
  for (const MemoryLevel& level : timeline.memory) {
    CHECK(level.device == 0);
    levels.push_back(level.bytes);
  }
  CHECK(levels == (calls ? std::vector<std::uint64_t>{100, 300, 400, 200}
                         : std::vector<std::uint64_t>{100, 300, 200}));
  CHECK(timeline.events.size() == (calls ? 6 : 0));
  fake::set_memory_taken(0);
}

TEST_CASE("memory is left out on demand", "[cupti]") {
  const int before = fake::memory_questions();
  Recording recording({.memory = false});
  fake::runtime_call(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020);
  CHECK(recording.take().memory.empty());
  CHECK(fake::memory_questions() == before);
}

TEST_CASE("a call that began before the recording did is left out", "[cupti]") {
  std::optional<Recording> recording;
  fake::runtime_call(kCopyCall, [&] { recording.emplace(); });
  fake::runtime_call(kLaunchCall);
  const Timeline timeline = recording->take();
  CHECK(names(timeline) == std::vector<std::string>{"cudaLaunchKernel"});
}

// ---- Beginnings and ends

TEST_CASE("the range between cudaProfilerStart and cudaProfilerStop is recorded", "[cupti]") {
  SessionOptions options;
  options.capture_range = true;
  Recording recording(options);
  const auto work = [](const char* name) {
    fake::runtime_call(kLaunchCall);
    fake::record(kernel(name, 1, 2));
  };
  CHECK_FALSE(fake::is_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
  work("before");
  for (int range = 0; range < 2; ++range) {
    fake::runtime_call(kStart);
    CHECK(fake::is_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    work("within");
    const int waits = fake::synchronisations();
    fake::runtime_call(kStop);
    CHECK(fake::synchronisations() > waits);  // What was submitted is in the trace.
    CHECK_FALSE(fake::is_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    work("between");
  }
  const Timeline timeline = recording.take();
  CHECK(of_kind(timeline, Kind::kernel).size() == 2);
  CHECK(of_kind(timeline, Kind::call).size() == 2);
  for (const Event& event : of_kind(timeline, Kind::kernel))
    CHECK(timeline.name(event) == "within");
}

TEST_CASE("nothing is left behind, and another recording finds all anew", "[cupti]") {
  for (int i = 0; i < 3; ++i) {
    {
      Recording recording;
      CHECK(fake::is_subscribed());
      fake::record(kernel("k", 1, 2));
      fake::runtime_call(kCopyCall);
      CHECK(recording.take().events.size() == 2);
    }
    CHECK_FALSE(fake::is_subscribed());
    for (const CUpti_ActivityKind kind :
         {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
          CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET})
      CHECK_FALSE(fake::is_enabled(kind));
  }
  fake::deliver();  // A buffer that comes late finds nobody.
}

TEST_CASE("a recording may end while threads are within calls", "[cupti]") {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stop) {
        const std::uint32_t number = fake::runtime_call(
            kLaunchCall, [] { fake::driver_call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel); });
        fake::record(kernel("k", 1, 2, number));
        fake::deliver();
      }
    });
  std::size_t events = 0;
  for (int i = 0; i < 50 || events == 0; ++i) {
    Recording recording({}, 100'000);
    std::this_thread::yield();
    events += recording.take().events.size();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("a stream is found by its handle", "[cupti]") {
  const Recording recording;
  int device = -1;
  std::uint64_t id = 0;
  CHECK(recording.backend->identify(nullptr, &device, &id));
  CHECK(id == 7);
  CHECK(device == 0);
  CHECK(recording.backend->identify(reinterpret_cast<cudaStream_t>(14), &device, &id));
  CHECK(id == 14);
}

// A real driver reads the memory of a stream that it is asked for.
TEST_CASE("a stream that was named before is asked for while it is there, and no other",
          "[cupti]") {
  const auto stream = [](std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); };
  std::optional<penstock::markers::StreamName> alive(std::in_place, stream(14), "copies"),
      gone(std::in_place, stream(15), "gone");
  gone.reset();
  penstock::markers::name_stream(stream(16), "who knows");
  const auto names_of_a_recording = [] {
    Recording recording;
    detail::start_names(recording.sink, *recording.backend);
    detail::stop_names();
    std::vector<std::string> found;
    for (const Track& track : recording.take().tracks) found.push_back(track.name);
    return found;
  };
  fake::take_asked_streams();
  CHECK(names_of_a_recording() == std::vector<std::string>{"copies"});
  CHECK(fake::take_asked_streams() == std::vector<CUstream>{stream(14)});
  alive.reset();
  CHECK(names_of_a_recording().empty());
  CHECK(fake::take_asked_streams().empty());
}

TEST_CASE("who cannot record says why", "[cupti]") {
  fake::hold_subscription("Nsight Systems");
  CHECK_THROWS_WITH(Recording(), Catch::Contains("another tool holds CUPTI's one subscription") &&
                                     Catch::Contains("(Nsight Systems)"));
  fake::hold_subscription("");
  fake::set_driver(CUDA_ERROR_NO_DEVICE);
  CHECK_THROWS_WITH(Recording(), Catch::Contains("no CUDA-capable device is detected"));
  fake::set_driver(CUDA_SUCCESS);
  Recording recording;
  CHECK(recording.backend->name() == "CUPTI 13.0");
  CHECK(recording.backend->device_name() == "Fake GPU");
}
