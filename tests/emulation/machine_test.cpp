// SPDX-License-Identifier: Apache-2.0

// The machine that the emulation models: rates, engines, latency, sizes. Times are read from the
// timeline. A modelled duration is a lower bound on any machine; that it is no more than that is
// checked on the best of several tries.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <penstock/emulation.hpp>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;
using emulation::Machine;
using emulation::Operation;
using emulation::OperationKind;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

namespace {

constexpr std::size_t kCopied = 1'000'000;
constexpr double rate = 100e6;  // bytes a second: 10 ms for `kCopied` bytes
constexpr milliseconds modelled{10};

void use(const Machine& machine) {
  emulation::Options options = emulation::options();
  options.machine = machine;
  emulation::reset(options);
}

/// The copies of the timeline, by their beginning.
std::vector<Operation> copies() {
  std::vector<Operation> found;
  for (const Operation& operation : emulation::timeline())
    if (operation.kind == OperationKind::copy) found.push_back(operation);
  std::sort(found.begin(), found.end(),
            [](const Operation& a, const Operation& b) { return a.begin < b.begin; });
  return found;
}

/// How long one copy of `kCopied` bytes took, in the best of several tries that were never shorter
/// than `at_least`.
template <class Enqueue>
nanoseconds best_duration(nanoseconds at_least, Enqueue&& enqueue) {
  nanoseconds best = std::chrono::hours(1);
  emulation::record_timeline(true);
  for (int i = 0; i < 5; ++i) enqueue();
  REQUIRE_CUDA(cudaDeviceSynchronize());
  REQUIRE(copies().size() == 5);
  for (const Operation& copy : copies()) {
    CHECK(copy.end - copy.begin >= at_least);
    best = std::min(best, nanoseconds(copy.end - copy.begin));
  }
  return best;
}

bool overlap(const Operation& a, const Operation& b) {
  return a.begin < b.end && b.begin < a.end;
}

}  // namespace

TEST_CASE("a copy of n bytes takes n over the rate of its direction", "[emulation][machine]") {
  Machine machine;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  SECTION("host to device") {
    machine.host_to_device = rate;
    kind = cudaMemcpyHostToDevice;
  }
  SECTION("device to host") {
    machine.device_to_host = rate;
    kind = cudaMemcpyDeviceToHost;
  }
  SECTION("device to device") {
    machine.device_to_device = rate;
    kind = cudaMemcpyDeviceToDevice;
  }
  use(machine);
  const DeviceMemory<std::uint8_t> device(kCopied), other(kCopied);
  const PinnedMemory<std::uint8_t> pinned(kCopied);
  const TestStream stream;
  void* const to = kind == cudaMemcpyDeviceToHost ? pinned.data() : device.data();
  const void* const from = kind == cudaMemcpyHostToDevice ? pinned.data() : other.data();
  const nanoseconds best = best_duration(
      modelled, [&] { REQUIRE_CUDA(cudaMemcpyAsync(to, from, kCopied, kind, stream)); });
  CHECK(best < modelled * 3 / 2);
}

TEST_CASE("a copy of pageable memory is slower by its share", "[emulation][machine]") {
  Machine machine;
  machine.host_to_device = 2 * rate;
  machine.pageable_share = 0.5;
  use(machine);
  const DeviceMemory<std::uint8_t> device(kCopied);
  const std::vector<std::uint8_t> pageable(kCopied);
  const TestStream stream;
  const nanoseconds best = best_duration(modelled, [&] {
    REQUIRE_CUDA(
        cudaMemcpyAsync(device.data(), pageable.data(), kCopied, cudaMemcpyHostToDevice, stream));
  });
  CHECK(best < modelled * 3 / 2);
}

TEST_CASE("events measure what the machine models", "[emulation][machine][event][held]") {
  Machine machine;
  machine.host_to_device = rate;
  use(machine);
  const DeviceMemory<std::uint8_t> device(kCopied);
  const PinnedMemory<std::uint8_t> pinned(kCopied);
  const TestStream stream;
  const TestEvent start(cudaEventDefault), end(cudaEventDefault);
  REQUIRE_CUDA(cudaEventRecord(start, stream));
  copy_async(device, pinned, stream);
  REQUIRE_CUDA(cudaEventRecord(end, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  float elapsed = 0;
  REQUIRE_CUDA(cudaEventElapsedTime(&elapsed, start, end));
  CHECK(elapsed >= 9.99F);
}

TEST_CASE("no more copies progress at a time than there are engines", "[emulation][machine]") {
  Machine machine;
  machine.host_to_device = rate;
  machine.copy_engines = GENERATE(1, 3);
  use(machine);
  constexpr std::size_t count = 5;
  const DeviceMemory<std::uint8_t> device(count * kCopied);
  const PinnedMemory<std::uint8_t> pinned(kCopied);
  const std::vector<TestStream> streams(count);
  emulation::record_timeline(true);
  for (std::size_t i = 0; i < count; ++i)
    REQUIRE_CUDA(cudaMemcpyAsync(device.data() + i * kCopied, pinned.data(), kCopied,
                                 cudaMemcpyHostToDevice, streams[i]));
  REQUIRE_CUDA(cudaDeviceSynchronize());
  const std::vector<Operation> all = copies();
  REQUIRE(all.size() == count);
  for (const Operation& copy : all) {
    const auto beside = std::count_if(all.begin(), all.end(), [&](const Operation& other) {
      return other.begin <= copy.begin && copy.begin < other.end;
    });
    CHECK(beside <= machine.copy_engines);
  }
}

TEST_CASE("the two directions have an engine each", "[emulation][machine]") {
  Machine machine;
  machine.host_to_device = machine.device_to_host = rate;
  machine.copy_engines = 2;
  use(machine);
  const DeviceMemory<std::uint8_t> in(kCopied), out(kCopied);
  const PinnedMemory<std::uint8_t> source(kCopied), result(kCopied);
  const TestStream up, down;
  CHECK(eventually([&] {  // this thread may be held up between its two calls
    emulation::record_timeline(true);
    copy_async(in, source, up);
    copy_async(result, out, down);
    REQUIRE_CUDA(cudaDeviceSynchronize());
    emulation::record_timeline(false);
    const std::vector<Operation> all = copies();
    return overlap(all[all.size() - 2], all[all.size() - 1]);
  }));
}

TEST_CASE("a copy progresses beside a host function of another stream", "[emulation][machine]") {
  Machine machine;
  machine.host_to_device = rate;
  use(machine);
  const DeviceMemory<std::uint8_t> device(kCopied);
  const PinnedMemory<std::uint8_t> pinned(kCopied);
  const TestStream copying, computing;
  Gate computation;  // a host function that outlasts the copy
  emulation::record_timeline(true);
  computation.hold(computing);
  computation.wait_until_reached();
  copy_async(device, pinned, copying);
  REQUIRE_CUDA(cudaStreamSynchronize(copying));
  computation.open();
  REQUIRE_CUDA(cudaStreamSynchronize(computing));
  const auto timeline = emulation::timeline();
  REQUIRE(timeline.size() == 2);
  const Operation &copy = timeline[0], &function = timeline[1];
  CHECK(copy.kind == OperationKind::copy);
  CHECK(function.kind == OperationKind::host_function);
  CHECK(function.begin < copy.begin);
  CHECK(copy.end < function.end);
}

TEST_CASE("no work starts before the launch latency is over", "[emulation][machine]") {
  Machine machine;
  machine.launch_latency = milliseconds(3);
  use(machine);
  const DeviceMemory<std::uint8_t> device(64);
  const TestStream stream;
  const auto fill_five_times = [&] {
    emulation::record_timeline(true);
    for (int i = 0; i < 5; ++i) fill_async(device, 1, stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    emulation::record_timeline(false);
    const std::vector<Operation> all = emulation::timeline();
    REQUIRE(all.size() >= 5);
    return std::vector<Operation>(all.end() - 5, all.end());
  };
  for (const Operation& fill : fill_five_times())
    CHECK(fill.begin - fill.submitted >= milliseconds(3));
  // Latency, not a toll on each: the next fill's passes while the one before it runs.
  CHECK(eventually([&] {
    const std::vector<Operation> fills = fill_five_times();
    return fills[4].end - fills[0].submitted < 5 * milliseconds(3);
  }));
}

// ---- Sizes

// A GPU needs some of its memory for the context and for fragments.
TEST_CASE("a device has the memory of the machine, to the byte",
          "[emulation][machine][memory][looser]") {
  Machine machine;
  machine.devices = 2;
  machine.device_bytes = 1 << 20;
  use(machine);
  const auto free_bytes = [] {
    std::size_t free = 0, total = 0;
    REQUIRE_CUDA(cudaMemGetInfo(&free, &total));
    CHECK(total == 1 << 20);
    return free;
  };
  CHECK(free_bytes() == 1 << 20);
  void *first = nullptr, *second = nullptr;
  REQUIRE_CUDA(cudaMalloc(&first, 1 << 19));
  CHECK(free_bytes() == 1 << 19);
  CHECK(cudaMalloc(&second, (1 << 19) + 256) == cudaErrorMemoryAllocation);
  CHECK(second == nullptr);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE_CUDA(cudaMalloc(&second, 1 << 19));
  CHECK(free_bytes() == 0);
  REQUIRE_CUDA(cudaSetDevice(1));
  CHECK(free_bytes() == 1 << 20);  // each device its own
  REQUIRE_CUDA(cudaSetDevice(0));
  REQUIRE_CUDA(cudaFree(first));
  REQUIRE_CUDA(cudaFree(second));
  CHECK(free_bytes() == 1 << 20);
}

TEST_CASE("stream-ordered memory comes out of the device's", "[emulation][machine][pool][held]") {
  Machine machine;
  machine.device_bytes = 1 << 20;
  use(machine);
  const TestStream stream;
  void *ordered = nullptr, *memory = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&ordered, 3 << 18, stream));
  CHECK(cudaMalloc(&memory, 1 << 19) == cudaErrorMemoryAllocation);
  CHECK(cudaMallocAsync(&memory, 1 << 19, stream) == cudaErrorMemoryAllocation);
  cudaGetLastError();
  REQUIRE_CUDA(cudaFreeAsync(ordered, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaMalloc(&memory, 1 << 19));
  REQUIRE_CUDA(cudaFree(memory));
}

TEST_CASE("page-locked memory is limited for the whole machine",
          "[emulation][machine][memory][held]") {
  Machine machine;
  machine.pinned_bytes = 1 << 20;
  use(machine);
  void *first = nullptr, *second = nullptr;
  std::vector<std::uint8_t> pageable(1 << 19);
  REQUIRE_CUDA(cudaMallocHost(&first, 3 << 18));
  CHECK(cudaHostAlloc(&second, 1 << 19, cudaHostAllocDefault) == cudaErrorMemoryAllocation);
  CHECK(second == nullptr);
  CHECK(cudaHostRegister(pageable.data(), pageable.size(), cudaHostRegisterDefault) ==
        cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE_CUDA(cudaFreeHost(first));
  REQUIRE_CUDA(cudaHostRegister(pageable.data(), pageable.size(), cudaHostRegisterDefault));
  REQUIRE_CUDA(cudaHostUnregister(pageable.data()));
}

TEST_CASE("pitched memory of no bytes is null", "[emulation][memory][held]") {
  int place = 0;
  void* data = &place;
  std::size_t pitch = 1;
  CHECK_CUDA(cudaMallocPitch(&data, &pitch, 0, 5));
  CHECK(data == nullptr);
  CHECK(pitch == 0);
}

TEST_CASE("emulated devices reach each other, without atomic operations",
          "[emulation][device][held]") {
  emulation::Options options;
  options.machine.devices = 2;
  emulation::reset(options);
  int value = -1;
  REQUIRE_CUDA(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 1, 0));
  CHECK(value == 1);
  REQUIRE_CUDA(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrNativeAtomicSupported, 1, 0));
  CHECK(value == 0);
}
