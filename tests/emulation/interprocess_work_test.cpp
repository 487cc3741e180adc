// SPDX-License-Identifier: Apache-2.0

// Work of several processes with what they share: memory is shared while work goes on, each wait is
// for its own record, and a process that has a pool may import it, too.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <penstock/emulation.hpp>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/eventually.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/other_process.hpp"
#include "support/shared_memory.hpp"
#include "support/standard_error.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;
using Do = OtherProcess::Do;

// ---- Work goes on

TEST_CASE("memory is shared while work writes it", "[emulation][interprocess][held]") {
  constexpr int kNumbers = 4 << 20;
  struct Counting {
    int* memory;
    std::atomic<int> rounds{0};
    std::atomic<bool> goes_on{true};
  };
  OtherProcess other;
  const DeviceMemory<int> memory(2 * kNumbers);
  const TestStream stream, copies;
  const PinnedMemory<int> host(kNumbers, 7);
  Counting counting{memory.data()};
  REQUIRE_CUDA(cudaLaunchHostFunc(
      stream,
      [](void* data) {  // stands for a kernel; a write that is lost is missed for ever
        auto& now = *static_cast<Counting*>(data);
        while (now.goes_on) {
          for (int i = 0; i < kNumbers; ++i) ++now.memory[i];
          ++now.rounds;
        }
      },
      &counting));
  CHECK(eventually([&] { return counting.rounds > 1; }));
  // The call does not wait for the work.
  cudaIpcMemHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetMemHandle(&handle, memory.data()));
  other.send(Do::open_memory, 0, 0, OtherProcess::bytes_of(handle));
  REQUIRE_CUDA(cudaMemcpyAsync(memory.data() + kNumbers, host.data(), host.bytes(),
                               cudaMemcpyHostToDevice, copies));
  REQUIRE_CUDA(cudaStreamSynchronize(copies));
  const int rounds = counting.rounds;
  CHECK(eventually([&] { return counting.rounds > rounds + 1; }));
  counting.goes_on = false;
  CHECK(other.answer().status == cudaSuccess);
  const std::vector<int> values = memory.read();
  const auto middle = values.begin() + kNumbers;
  CHECK(std::count(values.begin(), middle, counting.rounds.load()) == kNumbers);
  CHECK(std::count(middle, values.end(), 7) == kNumbers);
  CHECK(other.read(0).value == counting.rounds);
  CHECK(other.read(0, 2 * kNumbers - 1).value == 7);
  CHECK(other.close_memory(0) == cudaSuccess);
}

TEST_CASE("memory is shared while streams copy it", "[emulation][interprocess][held]") {
  constexpr int kRows = 1 << 20, kPitch = 4;  // in numbers: rows of one are copied slowly
  OtherProcess other;
  const TestStream stream;
  const PinnedMemory<int> host(kRows);
  for (int round = 1; round <= 5; ++round) {
    const DeviceMemory<int> memory(kRows * kPitch);
    host.set(round);
    REQUIRE_CUDA(cudaMemcpy2DAsync(memory.data(), kPitch * sizeof(int), host.data(), sizeof(int),
                                   sizeof(int), kRows, cudaMemcpyHostToDevice, stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // The copy may have begun.
    cudaIpcMemHandle_t handle{};
    REQUIRE_CUDA(cudaIpcGetMemHandle(&handle, memory.data()));
    REQUIRE(other.open_memory(0, handle) == cudaSuccess);
    const std::vector<int> values = memory.read();
    CHECK(std::count(values.begin(), values.end(), round) == kRows);
    CHECK(other.status_of(Do::synchronize_stream) == cudaSuccess);
    CHECK(other.read(0, (kRows - 1) * kPitch).value == round);
    CHECK(other.close_memory(0) == cudaSuccess);
  }
}

TEST_CASE("each wait is for the record of its call, whoever made the later ones",
          "[emulation][interprocess][held]") {
  OtherProcess other;
  const TestEvent event(kInterprocess);
  const TestStream slow, quick;
  cudaIpcEventHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetEventHandle(&handle, event));
  REQUIRE(other.open_event(0, handle) == cudaSuccess);
  Gate gate;
  gate.hold(slow);
  REQUIRE_CUDA(cudaEventRecord(event, slow));
  REQUIRE(other.status_of(Do::wait, 0) == cudaSuccess);  // for the first record
  REQUIRE_CUDA(cudaEventRecord(event, quick));
  REQUIRE_CUDA(cudaStreamSynchronize(quick));
  CHECK(other.status_of(Do::query_event, 0) == cudaSuccess);   // of the second one
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // The stream looks again meanwhile.
  CHECK(other.status_of(Do::query_stream) == cudaErrorNotReady);
  gate.open();
  CHECK(other.status_of(Do::synchronize_stream) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
}

TEST_CASE("an event that was recorded before it was shared is waited for",
          "[emulation][interprocess][held]") {
  OtherProcess other;
  const TestEvent pending(kInterprocess), done(kInterprocess);
  const TestStream stream, held;
  REQUIRE_CUDA(cudaEventRecord(done, stream));
  REQUIRE_CUDA(cudaEventSynchronize(done));
  Gate gate;
  gate.hold(held);
  REQUIRE_CUDA(cudaEventRecord(pending, stream));  // another record is the last
  REQUIRE_CUDA(cudaEventRecord(pending, held));
  cudaIpcEventHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetEventHandle(&handle, done));
  REQUIRE(other.open_event(0, handle) == cudaSuccess);
  REQUIRE_CUDA(cudaIpcGetEventHandle(&handle, pending));
  REQUIRE(other.open_event(1, handle) == cudaSuccess);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(other.status_of(Do::query_event, 0) == cudaSuccess);
  CHECK(other.status_of(Do::query_event, 1) == cudaErrorNotReady);
  gate.open();
  CHECK(other.status_of(Do::synchronize_event, 1) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 1) == cudaSuccess);
}

// CUDA names no such number.
TEST_CASE("processes share 2048 records of an event that are not done",
          "[emulation][interprocess][stricter]") {
  const CapturedStandardError told;
  const TestEvent event(kInterprocess);
  cudaIpcEventHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetEventHandle(&handle, event));
  const std::array<TestStream, 3> streams;
  Gate gate;
  for (const TestStream& stream : streams) gate.hold(stream);
  int records = 0;
  cudaError_t status = cudaSuccess;
  for (const TestStream& stream : streams)
    for (int i = 0; i < 1000 && status == cudaSuccess; ++i)
      if ((status = cudaEventRecord(event, stream)) == cudaSuccess) ++records;
  CHECK(records == 2048);
  CHECK(status == cudaErrorMemoryAllocation);
  CHECK(told.contains("are not done"));
  cudaGetLastError();
  gate.open();
  for (const TestStream& stream : streams) REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaEventRecord(event, streams[0]));
  CHECK_CUDA(cudaEventSynchronize(event));
}

TEST_CASE("a graph records and waits for an event that processes share",
          "[emulation][interprocess][held]") {
  OtherProcess other;
  const DeviceMemory<int> memory(64);
  const TestEvent event(kInterprocess);
  const TestStream stream;
  cudaIpcMemHandle_t handle{};
  cudaIpcEventHandle_t event_handle{};
  REQUIRE_CUDA(cudaIpcGetMemHandle(&handle, memory.data()));
  REQUIRE_CUDA(cudaIpcGetEventHandle(&event_handle, event));
  REQUIRE(other.open_memory(0, handle) == cudaSuccess);
  REQUIRE(other.open_event(0, event_handle) == cudaSuccess);
  const PinnedMemory<int> host(64);
  const auto launch = [&](const std::function<void()>& captured) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    captured();
    REQUIRE_CUDA(cudaStreamEndCapture(stream, &graph));
    REQUIRE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
    REQUIRE_CUDA(cudaGraphExecDestroy(exec));
    REQUIRE_CUDA(cudaGraphDestroy(graph));
  };
  Gate gate;
  gate.hold(stream);
  launch([&] {
    fill_async(memory, 0x61, stream);
    REQUIRE_CUDA(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
  });
  CHECK(other.status_of(Do::query_event, 0) == cudaErrorNotReady);
  gate.open();
  CHECK(other.status_of(Do::synchronize_event, 0) == cudaSuccess);
  CHECK(other.read(0).value == 0x61616161);
  REQUIRE(other.status_of(Do::hold) == cudaSuccess);
  REQUIRE(other.fill(0, 0x62) == cudaSuccess);
  REQUIRE(other.status_of(Do::record, 0) == cudaSuccess);
  launch([&] {
    REQUIRE_CUDA(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal));
    copy_async(host, memory, stream);
  });
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  REQUIRE(other.status_of(Do::let_go) == cudaSuccess);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(host[0] == 0x62626262);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  CHECK(other.close_memory(0) == cudaSuccess);
}

TEST_CASE("the timeline has waits for other processes", "[emulation][interprocess]") {
  OtherProcess other;
  const auto made = other.ask(Do::create_event, 0);
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(open_here(&event, made));
  REQUIRE(other.status_of(Do::hold) == cudaSuccess);
  REQUIRE(other.status_of(Do::record, 0) == cudaSuccess);
  emulation::record_timeline(true);
  const TestStream stream;
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE_CUDA(cudaStreamWaitEvent(stream, event, 0));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  REQUIRE(other.status_of(Do::let_go) == cudaSuccess);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  const auto operations = emulation::timeline();
  REQUIRE(operations.size() == 1);
  CHECK(operations[0].kind == emulation::OperationKind::event_wait);
  CHECK(operations[0].end - begin >= std::chrono::milliseconds(30));
  CHECK_CUDA(cudaEventDestroy(event));
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
}

// ---- Pools: the process that has one may import it, too

TEST_CASE("memory of a pool that processes share is fresh, and given back",
          "[emulation][interprocess][held]") {
  const cudaMemPool_t pool = make_shared_pool(), imported = import_here(pool);
  const TestStream stream;
  std::size_t free = 0, total = 0;
  int descriptor = -1;
  REQUIRE_CUDA(cudaMemPoolExportToShareableHandle(&descriptor, pool,
                                                  cudaMemHandleTypePosixFileDescriptor, 0));
  const auto bytes_of_host = [&] {
    struct stat status {};
    REQUIRE(::fstat(descriptor, &status) == 0);
    return status.st_blocks * 512;
  };
  for (int round = 0; round < 3; ++round) {
    int* data = nullptr;
    REQUIRE_CUDA(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&data), 1 << 20, pool, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(first_of(data) != 0);
    CHECK(first_of(data) != 0x11111111);
    cudaMemPoolPtrExportData bytes{};
    REQUIRE_CUDA(cudaMemPoolExportPointer(&bytes, data));
    void* other = nullptr;
    REQUIRE_CUDA(cudaMemPoolImportPointer(&other, imported, &bytes));
    CHECK(other != data);
    REQUIRE_CUDA(cudaMemset(other, 0x11, 64));
    REQUIRE_CUDA(cudaDeviceSynchronize());
    CHECK(first_of(data) == 0x11111111);
    CHECK(bytes_of_host() >= 1 << 20);
    REQUIRE_CUDA(cudaFreeAsync(other, stream));
    REQUIRE_CUDA(cudaFreeAsync(data, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolImportPointer(&other, imported, &bytes) == cudaErrorInvalidValue);
    CHECK(cudaMemPoolExportPointer(&bytes, data) == cudaErrorInvalidValue);
    REQUIRE_CUDA(cudaMemGetInfo(&free, &total));
    CHECK(free == total);
    CHECK(bytes_of_host() < 1 << 18);
  }
  ::close(descriptor);
  CHECK_CUDA(cudaMemPoolDestroy(imported));
  CHECK_CUDA(cudaMemPoolDestroy(pool));
  cudaGetLastError();
}

// CUDA leaves this undefined.
TEST_CASE("memory of a pool is used between its allocation and its free, in every process",
          "[emulation][interprocess][stricter]") {
  const CapturedStandardError told;
  const cudaMemPool_t pool = make_shared_pool(), imported = import_here(pool);
  const cudaStream_t stream = new_stream(), user = new_stream();
  void *data = nullptr, *other = nullptr;
  cudaMemPoolPtrExportData bytes{};
  SECTION("before the allocation") {
    Gate gate;
    gate.hold(stream);
    REQUIRE_CUDA(cudaMallocFromPoolAsync(&data, 4096, pool, stream));
    REQUIRE_CUDA(cudaMemPoolExportPointer(&bytes, data));
    REQUIRE_CUDA(cudaMemPoolImportPointer(&other, imported, &bytes));
    cudaMemsetAsync(other, 1, 64, user);  // It may fail at once.
    CHECK(cudaStreamSynchronize(user) == cudaErrorIllegalAddress);
    CHECK(told.contains("before the allocation is executed there"));
  }
  SECTION("after the free") {
    REQUIRE_CUDA(cudaMallocFromPoolAsync(&data, 4096, pool, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    REQUIRE_CUDA(cudaMemPoolExportPointer(&bytes, data));
    REQUIRE_CUDA(cudaMemPoolImportPointer(&other, imported, &bytes));
    CHECK_CUDA(cudaMemsetAsync(other, 1, 64, user));
    CHECK_CUDA(cudaStreamSynchronize(user));
    REQUIRE_CUDA(cudaFreeAsync(data, stream));
    // The block is used again, which changes nothing for the other.
    REQUIRE_CUDA(cudaMallocFromPoolAsync(&data, 4096, pool, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    cudaMemsetAsync(other, 1, 64, user);
    CHECK(cudaStreamSynchronize(user) == cudaErrorIllegalAddress);
    CHECK(told.contains("that process has freed it"));
  }
  start_again();
}

TEST_CASE("an imported pool does nothing but import", "[emulation][interprocess][held]") {
  const cudaMemPool_t pool = make_shared_pool(), other_pool = make_shared_pool();
  const cudaMemPool_t imported = import_here(pool), of_other = import_here(other_pool);
  const TestStream stream;
  void *data = nullptr, *got = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&data, 4096, pool, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  cudaMemPoolPtrExportData bytes{};
  REQUIRE_CUDA(cudaMemPoolExportPointer(&bytes, data));
  CHECK(cudaMemPoolImportPointer(&got, pool, &bytes) == cudaErrorInvalidValue);
  CHECK(cudaMemPoolImportPointer(&got, of_other, &bytes) == cudaErrorInvalidValue);
  CHECK(cudaMemPoolImportPointer(nullptr, imported, &bytes) == cudaErrorInvalidValue);
  CHECK(cudaMemPoolImportPointer(&got, imported, nullptr) == cudaErrorInvalidValue);
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    auto changed = bytes;
    changed.reserved[i] ^= 0x21;
    CHECK(cudaMemPoolImportPointer(&got, imported, &changed) == cudaErrorInvalidValue);
  }
  int descriptor = -1;
  CHECK(cudaMemPoolExportToShareableHandle(&descriptor, imported,
                                           cudaMemHandleTypePosixFileDescriptor,
                                           0) == cudaErrorInvalidValue);
  std::uint64_t number = 0;
  CHECK(cudaMemPoolGetAttribute(imported, cudaMemPoolAttrUsedMemCurrent, &number) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemPoolSetAttribute(imported, cudaMemPoolAttrReleaseThreshold, &number) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemPoolTrimTo(imported, 0) == cudaErrorInvalidValue);
  REQUIRE_CUDA(cudaMemPoolImportPointer(&got, imported, &bytes));
  CHECK(cudaMemPoolExportPointer(&bytes, got) == cudaErrorInvalidValue);
  CHECK_CUDA(cudaFree(got));
  CHECK(cudaFree(got) == cudaErrorInvalidValue);
  CHECK_CUDA(cudaFreeAsync(data, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  for (const cudaMemPool_t each : {imported, of_other, pool, other_pool})
    CHECK_CUDA(cudaMemPoolDestroy(each));
  cudaGetLastError();
}
