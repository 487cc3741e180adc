// SPDX-License-Identifier: Apache-2.0

// penstock::emulation: reset, options and schedules.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <penstock/emulation.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/host_log.hpp"
#include "support/memory.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

// ---- Reset

TEST_CASE("reset frees what is alive and forgets what was", "[emulation]") {
  void *device = nullptr, *host = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(cudaMalloc(&device, 64));
  REQUIRE_CUDA(cudaMallocHost(&host, 64));
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  REQUIRE_CUDA(cudaEventCreate(&event));
  emulation::fail_call("cudaFree", cudaErrorUnknown);
  emulation::record_timeline(true);
  CHECK(cudaSetDevice(77) == cudaErrorInvalidDevice);

  emulation::reset();
  CHECK(emulation::live() == emulation::Live{});
  CHECK(emulation::calls().empty());
  CHECK_FALSE(emulation::clear_failures());
  CHECK(emulation::timeline().empty());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK(cudaFree(device) == cudaErrorInvalidValue);
}

// AddressSanitizer knew of the end of what was there before.
TEST_CASE("memory that nobody freed before a reset leaves no trace", "[emulation]") {
  constexpr std::size_t bytes = std::size_t{1} << 16;
  void *device = nullptr, *pinned = nullptr;
  for (const std::size_t size : {std::size_t{512}, bytes}) {
    emulation::reset(emulation::options());
    REQUIRE_CUDA(cudaMalloc(&device, size));
    REQUIRE_CUDA(cudaMallocHost(&pinned, size));
  }
  CHECK_CUDA(cudaMemset(device, 1, bytes));
  CHECK_CUDA(cudaMemcpy(pinned, device, bytes, cudaMemcpyDeviceToHost));
  CHECK(static_cast<const char*>(pinned)[bytes - 1] == 1);
  emulation::reset(emulation::options());
}

TEST_CASE("reset finishes the work that is queued", "[emulation]") {
  HostLog log;
  cudaStream_t stream = nullptr;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  for (int i = 0; i < 10; ++i) log.enqueue(stream, i);
  emulation::reset(emulation::options());
  CHECK(log.entries().size() == 10);
}

TEST_CASE("options are those of the last reset", "[emulation]") {
  emulation::Options asked;
  asked.machine.devices = 3;
  asked.machine.host_to_device = 12e9;
  asked.schedule = emulation::Schedule::random;
  asked.seed = 42;
  emulation::reset(asked);
  const emulation::Options found = emulation::options();
  CHECK(found.machine.devices == 3);
  CHECK(found.machine.host_to_device == 12e9);
  CHECK(found.schedule == emulation::Schedule::random);
  CHECK(found.seed == 42);
  int devices = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&devices));
  CHECK(devices == 3);
}

TEST_CASE("a machine can be without a device", "[emulation][device][held]") {
  emulation::Options options;
  options.machine.devices = 0;
  emulation::reset(options);
  int devices = 77;
  CHECK(cudaGetDeviceCount(&devices) == cudaErrorNoDevice);
  CHECK(devices == 0);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 64) == cudaErrorNoDevice);
  cudaGetLastError();
}

TEST_CASE("cudaDeviceReset destroys what belongs to the device", "[emulation][device][held]") {
  void *device = nullptr, *host = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(cudaMalloc(&device, 64));
  REQUIRE_CUDA(cudaMallocHost(&host, 64));
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  REQUIRE_CUDA(cudaEventCreate(&event));
  REQUIRE_CUDA(cudaDeviceReset());
  CHECK(emulation::live() == emulation::Live{});
  const DeviceMemory<std::uint8_t> works_again(64);
}

// CUDA destroys all that belongs to the device.
TEST_CASE("cudaDeviceReset leaves stream-ordered memory to the program",
          "[emulation][device][looser]") {
  void* data = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&data, 64, cudaStreamLegacy));
  REQUIRE_CUDA(cudaDeviceReset());
  CHECK(emulation::live().device_allocations == 1);
  CHECK_CUDA(cudaMemset(data, 1, 64));
  CHECK_CUDA(cudaFreeAsync(data, cudaStreamLegacy));
  CHECK_CUDA(cudaDeviceSynchronize());
}

TEST_CASE("many threads may use the runtime at a time", "[emulation]") {
  constexpr std::size_t threads = 4;
  constexpr int rounds = 50;
  std::vector<std::thread> all;
  std::vector<int> right(threads, 0);
  for (std::size_t t = 0; t < threads; ++t) {
    all.emplace_back([&right, t] {
      for (int i = 0; i < rounds; ++i) {
        void* device = nullptr;
        void* host = nullptr;
        cudaStream_t stream = nullptr;
        cudaEvent_t event = nullptr;
        cudaMalloc(&device, 64);
        cudaMallocHost(&host, 64);
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        cudaMemsetAsync(device, i, 64, stream);
        cudaMemcpyAsync(host, device, 64, cudaMemcpyDeviceToHost, stream);
        cudaEventRecord(event, stream);
        cudaEventSynchronize(event);
        if (static_cast<const unsigned char*>(host)[63] == i) ++right[t];
        cudaEventDestroy(event);
        cudaStreamDestroy(stream);
        cudaFreeHost(host);
        cudaFree(device);
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  CHECK(right == std::vector<int>(threads, rounds));
}

TEST_CASE("the environment's options are in force where no test has chosen others", "[emulation]") {
  const char* const text = std::getenv("PENSTOCK_EMULATION");
  const std::string environment = text == nullptr ? "" : text;
  const auto asks_for = [&](const char* option) {
    return environment.find(option) != std::string::npos;
  };
  const emulation::Options options = emulation::options();
  CHECK((options.schedule == emulation::Schedule::lazy) == asks_for("schedule=lazy"));
  CHECK((options.schedule == emulation::Schedule::random) == asks_for("schedule=random"));
  CHECK((options.machine.devices == 2) == asks_for("devices=2"));
}

TEST_CASE("names and numbers that make no sense are refused", "[emulation]") {
  using Refusal = std::invalid_argument;
  CHECK_THROWS_AS(emulation::calls("cudaMallocs"), Refusal);
  CHECK_THROWS_AS(emulation::fail_call("cudaMallocs", cudaErrorUnknown), Refusal);
  CHECK_THROWS_AS(emulation::fail_call("cudaMalloc", cudaErrorUnknown, 0), Refusal);
  CHECK_THROWS_AS(emulation::fail_call("cudaGetLastError", cudaErrorUnknown), Refusal);
  CHECK_THROWS_AS(emulation::fail_operation(emulation::OperationKind::copy, cudaErrorInvalidValue),
                  Refusal);
  using Machine = emulation::Machine;
  const auto refused = [](auto&& change) {
    emulation::Options options;
    change(options.machine);
    CHECK_THROWS_AS(emulation::reset(options), Refusal);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const int engines : {0, -1, 65, 1'000'000'000})
    refused([&](Machine& machine) { machine.copy_engines = engines; });
  for (const int devices : {-1, 65}) refused([&](Machine& machine) { machine.devices = devices; });
  for (const double rate : {-1.0, 0.5, 1e16, nan, inf})
    for (double Machine::*const which :
         {&Machine::host_to_device, &Machine::device_to_host, &Machine::device_to_device})
      refused([&](Machine& machine) { machine.*which = rate; });
  for (const double share : {0.0, -1.0, 1.5, nan})
    refused([&](Machine& machine) { machine.pageable_share = share; });
  for (const int minutes : {-1, 2})
    refused([&](Machine& machine) { machine.launch_latency = std::chrono::minutes(minutes); });
  refused([](Machine& machine) { machine.device_bytes = ~std::size_t{0}; });
  refused([](Machine& machine) { machine.pinned_bytes = std::size_t{1} << 45; });
  CHECK_FALSE(emulation::clear_failures());
}

// ---- Schedules

namespace {

/// How long each of `count` records waited between its turn and its start.
std::vector<std::chrono::nanoseconds> delays(std::uint64_t seed, int count) {
  emulation::Options options;
  options.schedule = emulation::Schedule::random;
  options.seed = seed;
  emulation::reset(options);
  const TestStream stream;
  const TestEvent event;
  emulation::record_timeline(true);
  for (int i = 0; i < count; ++i) {
    REQUIRE_CUDA(cudaEventRecord(event, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  std::vector<std::chrono::nanoseconds> found;
  for (const auto& record : emulation::timeline()) found.push_back(record.begin - record.submitted);
  REQUIRE(found.size() == static_cast<std::size_t>(count));
  return found;
}

/// The same, without what the machine's other work adds now and then.
std::vector<std::chrono::nanoseconds> shortest_delays(std::uint64_t seed, int count) {
  auto shortest = delays(seed, count);
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto again = delays(seed, count);
    for (std::size_t i = 0; i < again.size(); ++i) shortest[i] = std::min(shortest[i], again[i]);
  }
  return shortest;
}

std::chrono::nanoseconds distance(const std::vector<std::chrono::nanoseconds>& a,
                                  const std::vector<std::chrono::nanoseconds>& b) {
  std::chrono::nanoseconds sum{0};
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::chrono::abs(a[i] - b[i]);
  return sum;
}

}  // namespace

TEST_CASE("the random schedule repeats the delays of its seed", "[emulation]") {
  constexpr int count = 60;
  const auto first = shortest_delays(7, count), again = shortest_delays(7, count);
  const auto other = shortest_delays(8, count);
  CHECK(10 * distance(first, again) < distance(first, other));
}

TEST_CASE("the lazy schedule runs what is waited for before what is not", "[emulation]") {
  emulation::Options options;
  options.schedule = emulation::Schedule::lazy;
  emulation::reset(options);
  constexpr int rounds = 50;
  int overtaken = 0;
  for (int round = 0; round < rounds; ++round) {
    HostLog log;
    const TestStream ignored, awaited;
    log.enqueue(ignored, 1);
    log.enqueue(awaited, 2);
    REQUIRE_CUDA(cudaStreamSynchronize(awaited));
    if (log.entries() == std::vector{2}) ++overtaken;
    REQUIRE_CUDA(cudaStreamSynchronize(ignored));
    CHECK(log.entries().size() == 2);
  }
  // Not in all: a thread that is interrupted idles, and idleness lets the work run. Where streams
  // do not wait to be needed, hardly ever.
  CHECK(overtaken > rounds / 5);
}

TEST_CASE("the lazy schedule runs what the awaited work waits for", "[emulation]") {
  emulation::Options options;
  options.schedule = emulation::Schedule::lazy;
  emulation::reset(options);
  const TestStream first, second, third;
  const TestEvent of_first, of_second;
  std::chrono::nanoseconds shortest = std::chrono::hours(1);
  for (int round = 0; round < 20; ++round) {
    HostLog log;
    log.enqueue(first, 1);
    REQUIRE_CUDA(cudaEventRecord(of_first, first));
    REQUIRE_CUDA(cudaStreamWaitEvent(second, of_first, 0));
    log.enqueue(second, 2);
    REQUIRE_CUDA(cudaEventRecord(of_second, second));
    REQUIRE_CUDA(cudaStreamWaitEvent(third, of_second, 0));
    log.enqueue(third, 3);
    const auto start = std::chrono::steady_clock::now();
    REQUIRE_CUDA(cudaStreamSynchronize(third));
    shortest =
        std::min(shortest, std::chrono::nanoseconds(std::chrono::steady_clock::now() - start));
    CHECK(log.entries() == std::vector{1, 2, 3});
  }
  CHECK(shortest < std::chrono::milliseconds(2));  // so it was not idleness that let the work run
}
