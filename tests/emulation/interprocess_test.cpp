// SPDX-License-Identifier: Apache-2.0

// What CUDA leaves undefined between two processes, and the emulation tells: memory that is freed
// too early, a process that ends, bytes that are no handle. Nothing crashes, and nothing is left.

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <penstock/emulation.hpp>
#include <set>
#include <string>
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

namespace {

std::set<std::string> names_in(const char* folder) {
  std::set<std::string> names;
  DIR* const open = ::opendir(folder);
  if (open == nullptr) return names;
  while (const dirent* const entry = ::readdir(open))  // NOLINT(concurrency-mt-unsafe)
    names.insert(entry->d_name);
  ::closedir(open);
  return names;
}

}  // namespace

// ---- Handles that are none

// A GPU opens memory although some bytes of its handle were changed.
TEST_CASE("bytes that are no handle are an error", "[emulation][interprocess][stricter]") {
  OtherProcess other;
  const auto memory = other.ask(Do::allocate, 0, 1024);
  const auto event = other.ask(Do::create_event, 0);
  void* data = nullptr;
  cudaEvent_t opened = nullptr;
  for (std::size_t i = 0; i < memory.bytes.size(); ++i) {
    auto changed = memory;
    changed.bytes.at(i) = static_cast<char>(changed.bytes.at(i) ^ 0x41);
    CHECK(open_here(&data, changed) == cudaErrorInvalidValue);
    changed = event;
    changed.bytes.at(i) = static_cast<char>(changed.bytes.at(i) ^ 0x41);
    CHECK(open_here(&opened, changed) == cudaErrorMapBufferObjectFailed);
  }
  for (const char byte : {'\0', '\x5a', '\xff'}) {
    OtherProcess::Answer all;
    all.bytes.fill(byte);
    CHECK(open_here(&data, all) == cudaErrorInvalidValue);
    CHECK(open_here(&opened, all) == cudaErrorMapBufferObjectFailed);
  }
  CHECK(open_here(&data, event) == cudaErrorInvalidValue);
  CHECK(open_here(&opened, memory) == cudaErrorMapBufferObjectFailed);
  const auto handle = OtherProcess::handle_of<cudaIpcMemHandle_t>(memory.bytes);
  CHECK(cudaIpcOpenMemHandle(&data, handle, 0) == cudaErrorInvalidValue);
  CHECK(cudaIpcOpenMemHandle(&data, handle, 3) == cudaErrorInvalidValue);
  CHECK(cudaIpcOpenMemHandle(nullptr, handle, cudaIpcMemLazyEnablePeerAccess) ==
        cudaErrorInvalidValue);
  CHECK(cudaIpcOpenEventHandle(nullptr, cudaIpcEventHandle_t{}) == cudaErrorInvalidValue);
  CHECK(cudaIpcCloseMemHandle(nullptr) == cudaErrorInvalidValue);
  CHECK(emulation::live() == emulation::Live{});
  CHECK(other.status_of(Do::free, 0) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  cudaGetLastError();
}

// CUDA crashes, with a GPU, where the pointer to a handle is null.
TEST_CASE("results of calls about other processes need somewhere to go",
          "[emulation][interprocess][stricter]") {
  const DeviceMemory<int> memory(64);
  CHECK(cudaIpcGetMemHandle(nullptr, memory.data()) == cudaErrorInvalidValue);
  const TestEvent event(kInterprocess);
  CHECK(cudaIpcGetEventHandle(nullptr, event) == cudaErrorInvalidValue);
  cudaMemPool_t pool = make_shared_pool();
  CHECK(cudaMemPoolExportToShareableHandle(nullptr, pool, cudaMemHandleTypePosixFileDescriptor,
                                           0) == cudaErrorInvalidValue);
  cudaMemPool_t none = nullptr;
  CHECK(cudaMemPoolImportFromShareableHandle(nullptr, nullptr, cudaMemHandleTypePosixFileDescriptor,
                                             0) == cudaErrorInvalidValue);
  // Descriptors that are no pool: of nothing, of the terminal, of a file.
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const std::intptr_t descriptor : {std::intptr_t{-1}, std::intptr_t{0}, std::intptr_t{null},
                                         std::intptr_t{9999}, std::intptr_t{1} << 40})
    CHECK(cudaMemPoolImportFromShareableHandle(&none, reinterpret_cast<void*>(descriptor),
                                               cudaMemHandleTypePosixFileDescriptor,
                                               0) == cudaErrorUnknown);
  ::close(null);
  CHECK_CUDA(cudaMemPoolDestroy(pool));
  cudaGetLastError();
}

// A GPU gives the handle of the whole allocation: the other process gets its first byte.
TEST_CASE("a handle is asked for with the first byte of memory",
          "[emulation][interprocess][stricter]") {
  const CapturedStandardError told;
  const DeviceMemory<int> memory(64);
  cudaIpcMemHandle_t handle{};
  CHECK(cudaIpcGetMemHandle(&handle, memory.data() + 1) == cudaErrorInvalidValue);
  CHECK(told.contains("not the first byte of an allocation"));
  cudaGetLastError();
}

// A GPU also exports pools by handles of a fabric, which are cudaErrorNotSupported here.
TEST_CASE("other handle types of a pool are not supported", "[emulation][interprocess][absent]") {
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool = nullptr;
  for (const int type : {8, 9}) {  // of a fabric
    props.handleTypes = static_cast<cudaMemAllocationHandleType>(type);
    CHECK(cudaMemPoolCreate(&pool, &props) == cudaErrorNotSupported);
  }
  props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  props.location.type = cudaMemLocationTypeHost;
  CHECK(cudaMemPoolCreate(&pool, &props) == cudaErrorInvalidValue);
  cudaGetLastError();
}

// ---- The other process frees, or ends

// CUDA leaves this undefined: a GPU was seen to open memory that its process had freed.
TEST_CASE("a handle of memory that is gone does not open", "[emulation][interprocess][stricter]") {
  const CapturedStandardError told;
  OtherProcess other;
  const auto memory = other.ask(Do::allocate, 0, 1024), kept = other.ask(Do::allocate, 1, 1024);
  const auto event = other.ask(Do::create_event, 0), kept_event = other.ask(Do::create_event, 1);
  REQUIRE(other.status_of(Do::free, 0) == cudaSuccess);
  REQUIRE(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  void* data = nullptr;
  cudaEvent_t opened = nullptr;
  CHECK(open_here(&data, memory) == cudaErrorMapBufferObjectFailed);
  CHECK(open_here(&opened, event) == cudaErrorMapBufferObjectFailed);
  CHECK(told.contains("has not got the memory of the handle"));
  other.kill();
  CHECK(open_here(&data, kept) == cudaErrorMapBufferObjectFailed);
  CHECK(open_here(&opened, kept_event) == cudaErrorMapBufferObjectFailed);
  CHECK(told.contains("has ended"));
  CHECK(emulation::live() == emulation::Live{});
  cudaGetLastError();
}

TEST_CASE("a reset frees what other processes could open", "[emulation][interprocess][held]") {
  OtherProcess other;
  void* data = nullptr;
  REQUIRE_CUDA(cudaMalloc(&data, 4096));
  cudaIpcMemHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetMemHandle(&handle, data));
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(cudaEventCreateWithFlags(&event, kInterprocess));
  cudaIpcEventHandle_t event_handle{};
  REQUIRE_CUDA(cudaIpcGetEventHandle(&event_handle, event));
  REQUIRE(other.open_memory(0, handle) == cudaSuccess);
  start_again();
  CHECK(other.open_memory(1, handle) == cudaErrorMapBufferObjectFailed);
  CHECK(other.open_event(1, event_handle) == cudaErrorMapBufferObjectFailed);
  CHECK(other.status_of(Do::close_memory, 0) == cudaSuccess);
}

// CUDA leaves this undefined.
TEST_CASE("work with memory that its process has freed fails and is told",
          "[emulation][interprocess][stricter]") {
  const CapturedStandardError told;
  OtherProcess other;
  const auto made = other.ask(Do::allocate, 0, 1 << 20);
  void* data = nullptr;
  REQUIRE_CUDA(open_here(&data, made));
  CHECK_CUDA(cudaMemset(data, 1, 64));
  CHECK_CUDA(cudaDeviceSynchronize());
  REQUIRE(other.status_of(Do::free, 0) == cudaSuccess);
  const cudaStream_t stream = new_stream();
  SECTION("a fill") {
    cudaMemsetAsync(data, 1, 64, stream);
  }  // It may fail at once.
  SECTION("a copy") {
    std::array<std::byte, 64> host{};
    cudaMemcpyAsync(host.data(), data, 64, cudaMemcpyDeviceToHost, stream);
  }
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  CHECK(told.contains("that process has freed it"));
  CHECK(cudaIpcCloseMemHandle(data) == cudaErrorIllegalAddress);  // It is closed all the same.
  CHECK(emulation::live().device_allocations == 0);
  start_again();
}

// CUDA leaves this undefined.
TEST_CASE("work with memory of a process that has ended fails and is told",
          "[emulation][interprocess][stricter]") {
  const CapturedStandardError told;
  OtherProcess other;
  const auto made = other.ask(Do::allocate, 0, 1024);
  void* data = nullptr;
  REQUIRE_CUDA(open_here(&data, made));
  other.kill_unseen();
  const cudaStream_t stream = new_stream();
  CHECK(eventually([&] {
    cudaMemsetAsync(data, 1, 64, stream);
    return cudaStreamSynchronize(stream) == cudaErrorIllegalAddress;
  }));
  CHECK(told.contains("that process has ended"));
  start_again();
}

// CUDA leaves this undefined.
TEST_CASE("a wait for a record of a process that has ended ends with an error",
          "[emulation][interprocess][stricter]") {
  const CapturedStandardError told;
  OtherProcess other;
  const auto made = other.ask(Do::create_event, 0);
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(open_here(&event, made));
  REQUIRE(other.status_of(Do::hold) == cudaSuccess);
  REQUIRE(other.status_of(Do::record, 0) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  const cudaStream_t stream = new_stream();
  SECTION("of a stream") {
    CHECK_CUDA(cudaStreamWaitEvent(stream, event, 0));
    other.kill_unseen();
    CHECK(cudaStreamSynchronize(stream) == cudaErrorExternalDevice);
  }
  SECTION("of the host") {
    other.kill_unseen();
    CHECK(cudaEventSynchronize(event) == cudaErrorExternalDevice);
  }
  SECTION("of one that polls") {
    other.kill_unseen();
    CHECK(eventually([&] { return cudaEventQuery(event) == cudaErrorExternalDevice; }));
  }
  CHECK(told.contains("has ended before it came to its record"));
  start_again();
}

// CUDA leaves this undefined.
TEST_CASE("a wait for work that failed in another process ends with an error",
          "[emulation][interprocess][stricter]") {
  OtherProcess other;
  void* memory = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(cudaMalloc(&memory, 64));
  REQUIRE_CUDA(cudaEventCreateWithFlags(&event, kInterprocess));
  const cudaStream_t stream = new_stream();
  cudaIpcEventHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetEventHandle(&handle, event));
  REQUIRE(other.open_event(0, handle) == cudaSuccess);
  Gate gate;
  gate.hold(stream);
  emulation::fail_operation(emulation::OperationKind::fill, cudaErrorIllegalAddress);
  REQUIRE_CUDA(cudaMemsetAsync(memory, 1, 64, stream));
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  gate.open();
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  CHECK(other.status_of(Do::synchronize_event, 0) == cudaErrorExternalDevice);
  other.kill();  // Its device has failed.
  start_again();
}

// CUDA leaves this undefined: with a GPU, the event went on working.
TEST_CASE("an event that its process has destroyed is no event",
          "[emulation][interprocess][stricter]") {
  const CapturedStandardError told;
  OtherProcess other;
  const auto made = other.ask(Do::create_event, 0);
  cudaEvent_t event = nullptr;
  REQUIRE_CUDA(open_here(&event, made));
  REQUIRE(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  const TestStream stream;
  CHECK(cudaEventRecord(event, stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventQuery(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventSynchronize(event) == cudaErrorInvalidResourceHandle);
  CHECK(told.contains("has destroyed it"));
  CHECK_CUDA(cudaEventDestroy(event));
  cudaGetLastError();
}

TEST_CASE("memory and events of another process are shared no further",
          "[emulation][interprocess][held]") {
  OtherProcess other;
  const auto memory = other.ask(Do::allocate, 0, 1024);
  const auto event = other.ask(Do::create_event, 0);
  void* data = nullptr;
  cudaEvent_t opened = nullptr;
  REQUIRE_CUDA(open_here(&data, memory));
  REQUIRE_CUDA(open_here(&opened, event));
  CHECK(emulation::live().device_bytes == 4096);
  std::size_t free = 0, total = 0;
  REQUIRE_CUDA(cudaMemGetInfo(&free, &total));
  CHECK(free == total);  // The other process has the bytes.
  cudaIpcMemHandle_t handle{};
  cudaIpcEventHandle_t event_handle{};
  CHECK(cudaIpcGetMemHandle(&handle, data) == cudaErrorInvalidValue);
  CHECK(cudaIpcGetEventHandle(&event_handle, opened) == cudaErrorInvalidResourceHandle);
  CHECK(cudaFree(data) == cudaErrorInvalidValue);
  CHECK(cudaIpcCloseMemHandle(static_cast<int*>(data) + 1) == cudaErrorInvalidValue);
  CHECK_CUDA(cudaEventDestroy(opened));
  CHECK_CUDA(cudaIpcCloseMemHandle(data));
  cudaPointerAttributes attributes{};
  REQUIRE_CUDA(cudaPointerGetAttributes(&attributes, data));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(other.status_of(Do::free, 0) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("nothing is left of what processes shared", "[emulation][interprocess][held]") {
  const auto files = names_in("/dev/shm"), temporary = names_in("/tmp");
  std::size_t descriptors = 0;
  for (int round = 0; round < 2; ++round) {  // The first one opens what stays open.
    descriptors = names_in("/proc/self/fd").size();
    OtherProcess other;
    const auto memory = other.ask(Do::allocate, 0, 1024);
    const auto event = other.ask(Do::create_event, 0);
    void *data = nullptr, *own = nullptr;
    cudaEvent_t opened = nullptr, of_own = nullptr;
    REQUIRE_CUDA(open_here(&data, memory));
    REQUIRE_CUDA(open_here(&opened, event));
    REQUIRE_CUDA(cudaMalloc(&own, 4096));
    REQUIRE_CUDA(cudaEventCreateWithFlags(&of_own, kInterprocess));
    cudaIpcMemHandle_t handle{};
    cudaIpcEventHandle_t event_handle{};
    REQUIRE_CUDA(cudaIpcGetMemHandle(&handle, own));
    REQUIRE_CUDA(cudaIpcGetEventHandle(&event_handle, of_own));
    const cudaMemPool_t pool = make_shared_pool(), imported = import_here(pool);
    CHECK_CUDA(cudaMemPoolDestroy(imported));
    CHECK_CUDA(cudaMemPoolDestroy(pool));
    CHECK_CUDA(cudaIpcCloseMemHandle(data));
    CHECK_CUDA(cudaEventDestroy(opened));
    CHECK_CUDA(cudaFree(own));
    CHECK_CUDA(cudaEventDestroy(of_own));
    other.kill();
  }
  CHECK(names_in("/proc/self/fd").size() == descriptors);
  CHECK(names_in("/dev/shm") == files);
  for (const std::string& name : names_in("/tmp"))
    if (temporary.count(name) == 0) CHECK(name.find("penstock shared") == std::string::npos);
}

// A GPU needs no file descriptor for each allocation that is shared.
TEST_CASE("a process that may have no files cannot share, and is told",
          "[emulation][interprocess][stricter]") {
  struct Limit {
    __rlimit_resource what;
    rlim_t value;
    const char* advice;
  };
  const auto limit =
      GENERATE(values<Limit>({{RLIMIT_NOFILE, 0, "ulimit -n"}, {RLIMIT_FSIZE, 4096, "ulimit -f"}}));
  const CapturedStandardError told;
  const DeviceMemory<int> memory(64);
  const TestEvent event(kInterprocess);
  rlimit before{};
  REQUIRE(::getrlimit(limit.what, &before) == 0);
  const rlimit none{limit.value, before.rlim_max};
  const cudaMemPool_t pool = make_shared_pool();
  void* pooled = nullptr;
  cudaIpcMemHandle_t handle{};
  cudaIpcEventHandle_t event_handle{};
  REQUIRE(::setrlimit(limit.what, &none) == 0);
  const cudaError_t of_memory = cudaIpcGetMemHandle(&handle, memory.data());
  const cudaError_t of_event = cudaIpcGetEventHandle(&event_handle, event);
  const cudaError_t of_pool = cudaMallocFromPoolAsync(&pooled, 4096, pool, nullptr);
  REQUIRE(::setrlimit(limit.what, &before) == 0);
  CHECK(of_memory == cudaErrorMemoryAllocation);
  CHECK(of_event == cudaErrorMemoryAllocation);
  CHECK(told.contains(limit.advice));
  // The file of the pool is open already, and has to grow.
  CHECK(of_pool == (limit.what == RLIMIT_FSIZE ? cudaErrorMemoryAllocation : cudaSuccess));
  cudaGetLastError();
  if (of_pool == cudaSuccess) CHECK_CUDA(cudaFreeAsync(pooled, nullptr));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK_CUDA(cudaMemPoolDestroy(pool));
  CHECK_CUDA(cudaIpcGetMemHandle(&handle, memory.data()));
  CHECK_CUDA(cudaIpcGetEventHandle(&event_handle, event));
}

TEST_CASE("a forked child shares nothing, and its parent's memory stays shared",
          "[emulation][interprocess][held]") {
  OtherProcess other;
  const DeviceMemory<int> memory(1024);
  cudaIpcMemHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetMemHandle(&handle, memory.data()));
  const ::pid_t child = ::fork();
  if (child == 0) {
    const bool fails =
        cudaIpcGetMemHandle(&handle, memory.data()) == cudaErrorInitializationError &&
        cudaIpcCloseMemHandle(memory.data()) == cudaErrorInitializationError;
    std::quick_exit(fails ? 0 : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  REQUIRE(other.open_memory(0, handle) == cudaSuccess);
  CHECK(other.fill(0, 0x19) == cudaSuccess);
  CHECK(other.status_of(Do::synchronize_stream) == cudaSuccess);
  CHECK(memory.read()[0] == 0x19191919);
  CHECK(other.close_memory(0) == cudaSuccess);
}

// ---- Every call fails once

TEST_CASE("each call about other processes fails once, and leaves nothing",
          "[emulation][interprocess]") {
  OtherProcess other;
  const auto memory = other.ask(Do::allocate, 0, 1024);
  const auto event = other.ask(Do::create_event, 0);
  REQUIRE(other.fill(0, 0x71) == cudaSuccess);
  REQUIRE(other.status_of(Do::record, 0) == cudaSuccess);
  /// Everything, until a call fails; what was made is released. True: nothing failed.
  const auto scenario = [&] {
    std::vector<std::function<cudaError_t()>> releases;
    const auto all = [&]() -> cudaError_t {
#define MUST(call) \
  if (const cudaError_t failed = call; failed != cudaSuccess) return failed
      cudaStream_t stream = nullptr;
      MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      releases.push_back([=] { return cudaStreamDestroy(stream); });
      void *data = nullptr, *own = nullptr, *pooled = nullptr, *imported = nullptr;
      MUST(open_here(&data, memory));
      releases.push_back([=] { return cudaIpcCloseMemHandle(data); });
      cudaEvent_t opened = nullptr, of_own = nullptr;
      MUST(open_here(&opened, event));
      releases.push_back([=] { return cudaEventDestroy(opened); });
      MUST(cudaStreamWaitEvent(stream, opened, 0));
      MUST(cudaEventSynchronize(opened));
      MUST(cudaMalloc(&own, 4096));
      releases.push_back([=] { return cudaFree(own); });
      MUST(cudaEventCreateWithFlags(&of_own, kInterprocess));
      releases.push_back([=] { return cudaEventDestroy(of_own); });
      cudaIpcMemHandle_t handle{};
      cudaIpcEventHandle_t event_handle{};
      MUST(cudaIpcGetMemHandle(&handle, own));
      MUST(cudaIpcGetEventHandle(&event_handle, of_own));
      MUST(cudaMemcpyAsync(own, data, 4096, cudaMemcpyDeviceToDevice, stream));
      cudaMemPoolProps props{};
      props.allocType = cudaMemAllocationTypePinned;
      props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
      props.location.type = cudaMemLocationTypeDevice;
      cudaMemPool_t pool = nullptr, of_pool = nullptr;
      MUST(cudaMemPoolCreate(&pool, &props));
      releases.push_back([=] { return cudaMemPoolDestroy(pool); });
      int descriptor = -1;
      MUST(cudaMemPoolExportToShareableHandle(&descriptor, pool,
                                              cudaMemHandleTypePosixFileDescriptor, 0));
      const cudaError_t got = cudaMemPoolImportFromShareableHandle(
          &of_pool, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
          cudaMemHandleTypePosixFileDescriptor, 0);
      ::close(descriptor);
      MUST(got);
      releases.push_back([=] { return cudaMemPoolDestroy(of_pool); });
      MUST(cudaMallocFromPoolAsync(&pooled, 4096, pool, stream));
      releases.push_back([=] { return cudaFreeAsync(pooled, stream); });
      cudaMemPoolPtrExportData bytes{};
      MUST(cudaMemPoolExportPointer(&bytes, pooled));
      MUST(cudaMemPoolImportPointer(&imported, of_pool, &bytes));
      releases.push_back([=] { return cudaFreeAsync(imported, stream); });
      MUST(cudaStreamSynchronize(stream));
      int first = 0;
      MUST(cudaMemcpy(&first, own, sizeof first, cudaMemcpyDeviceToHost));
      CHECK(first == 0x71717171);
#undef MUST
      return cudaSuccess;
    };
    const bool done = all() == cudaSuccess;
    for (auto release = releases.rbegin(); release != releases.rend(); ++release)
      if ((*release)() != cudaSuccess) CHECK((*release)() == cudaSuccess);
    cudaDeviceSynchronize();
    cudaGetLastError();
    return done;
  };
  CHECK(scenario());
  for (std::uint64_t n = 1;; ++n) {
    INFO("call " << n);
    emulation::fail_call("*", cudaErrorUnknown, n);
    scenario();
    const bool all_done = emulation::clear_failures();
    CHECK(emulation::live() == emulation::Live{});
    if (all_done) break;
    REQUIRE(n < 100);
  }
  CHECK(emulation::calls("cudaIpcOpenMemHandle") > 10);
  CHECK(other.status_of(Do::free, 0) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
}
