// SPDX-License-Identifier: Apache-2.0

// The rules of what processes share: memory, events and pools of one process that another opens.
// The other process is this program again (support/other_process.hpp).
// Functions: cudaIpc*, cudaMemPoolExport*, cudaMemPoolImport*.

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/other_process.hpp"

using namespace penstock::test;
using Do = OtherProcess::Do;

namespace {

cudaIpcMemHandle_t handle_of(const DeviceMemory<int>& memory) {
  cudaIpcMemHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetMemHandle(&handle, memory.data()));
  return handle;
}
cudaIpcEventHandle_t handle_of(const TestEvent& event) {
  cudaIpcEventHandle_t handle{};
  REQUIRE_CUDA(cudaIpcGetEventHandle(&handle, event));
  return handle;
}

/// A pool whose memory other processes can open.
class SharedPool {
 public:
  SharedPool() {
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    props.location.type = cudaMemLocationTypeDevice;
    REQUIRE_CUDA(cudaMemPoolCreate(&pool_, &props));
  }
  ~SharedPool() { CHECK_CUDA(cudaMemPoolDestroy(pool_)); }
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;
  // NOLINTNEXTLINE(google-explicit-constructor): stands for the handle in CUDA calls.
  operator cudaMemPool_t() const { return pool_; }

 private:
  cudaMemPool_t pool_ = nullptr;
};

constexpr int repeated(int byte) {
  return byte | byte << 8 | byte << 16 | byte << 24;
}

}  // namespace

TEST_CASE(kOtherProcess, "[.]") {
  OtherProcess::serve();
}

TEST_CASE("a stream waits for an event of another process and then sees its memory",
          "[rules][interprocess]") {
  OtherProcess other;
  const DeviceMemory<int> memory(1 << 20);
  const TestEvent event(kInterprocess);
  const TestStream stream;
  REQUIRE(other.open_memory(0, handle_of(memory)) == cudaSuccess);
  REQUIRE(other.open_event(0, handle_of(event)) == cudaSuccess);
  Gate gate;
  gate.hold(stream);
  fill_async(memory, 0x11, stream);
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  // None of the other's calls blocks, although the record is not reached.
  CHECK(other.status_of(Do::wait, 0) == cudaSuccess);
  CHECK(other.status_of(Do::queue_read, 0) == cudaSuccess);
  CHECK(other.status_of(Do::query_stream) == cudaErrorNotReady);
  gate.open();
  const OtherProcess::Answer seen = other.ask(Do::synchronize_stream);
  CHECK(seen.status == cudaSuccess);
  CHECK(seen.value == repeated(0x11));
  CHECK(other.read(0, (1 << 20) - 1).value == repeated(0x11));
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  CHECK(other.close_memory(0) == cudaSuccess);
}

TEST_CASE("the host waits for an event of another process", "[rules][interprocess]") {
  OtherProcess other;
  const DeviceMemory<int> memory(64);
  const TestEvent event(kInterprocess);
  const TestStream stream;
  REQUIRE(other.open_memory(0, handle_of(memory)) == cudaSuccess);
  REQUIRE(other.open_event(0, handle_of(event)) == cudaSuccess);
  Gate gate;
  gate.hold(stream);
  fill_async(memory, 0x22, stream);
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  CHECK(other.status_of(Do::query_event, 0) == cudaErrorNotReady);
  other.send(Do::synchronize_event, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(other.answered());
  gate.open();
  CHECK(other.answer().status == cudaSuccess);
  CHECK(other.status_of(Do::query_event, 0) == cudaSuccess);
  CHECK(other.read(0).value == repeated(0x22));
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  CHECK(other.close_memory(0) == cudaSuccess);
}

TEST_CASE("a process waits for what another one has recorded with its event",
          "[rules][interprocess]") {
  OtherProcess other;
  const DeviceMemory<int> memory(64);
  const PinnedMemory<int> host(64);
  const TestEvent event(kInterprocess);
  const TestStream stream;
  REQUIRE(other.open_memory(0, handle_of(memory)) == cudaSuccess);
  REQUIRE(other.open_event(0, handle_of(event)) == cudaSuccess);
  REQUIRE(other.status_of(Do::hold) == cudaSuccess);
  REQUIRE(other.fill(0, 0x33) == cudaSuccess);
  REQUIRE(other.status_of(Do::record, 0) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK_CUDA(cudaStreamWaitEvent(stream, event, 0));
  copy_async(host, memory, stream);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  REQUIRE(other.status_of(Do::let_go) == cudaSuccess);
  CHECK_CUDA(cudaEventSynchronize(event));
  CHECK_CUDA(cudaEventQuery(event));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(host[0] == repeated(0x33));
  CHECK(host[1] == 0);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  CHECK(other.close_memory(0) == cudaSuccess);
}

TEST_CASE("an event goes back and forth between two processes", "[rules][interprocess]") {
  OtherProcess other;
  const DeviceMemory<int> memory(64);
  const TestEvent ours(kInterprocess);
  const TestStream stream;
  REQUIRE(other.open_memory(0, handle_of(memory)) == cudaSuccess);
  REQUIRE(other.open_event(0, handle_of(ours)) == cudaSuccess);
  const auto made = other.ask(Do::create_event, 1);
  REQUIRE(made.status == cudaSuccess);
  cudaEvent_t theirs = nullptr;
  REQUIRE_CUDA(
      cudaIpcOpenEventHandle(&theirs, OtherProcess::handle_of<cudaIpcEventHandle_t>(made.bytes)));
  const PinnedMemory<int> host(64);
  for (int round = 1; round <= 8; ++round) {
    fill_async(memory, static_cast<unsigned char>(round), stream);
    REQUIRE_CUDA(cudaEventRecord(ours, stream));
    REQUIRE(other.status_of(Do::wait, 0) == cudaSuccess);
    REQUIRE(other.status_of(Do::queue_read, 0) == cudaSuccess);
    REQUIRE(other.fill(0, 0x80 + round) == cudaSuccess);
    REQUIRE(other.status_of(Do::record, 1) == cudaSuccess);
    REQUIRE_CUDA(cudaStreamWaitEvent(stream, theirs, 0));
    copy_async(host, memory, stream);
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    CHECK(host[0] == repeated(0x80 + round));
    CHECK(host[1] == repeated(round));
    CHECK(other.ask(Do::synchronize_stream).value == repeated(round));
  }
  CHECK_CUDA(cudaEventDestroy(theirs));
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 1) == cudaSuccess);
  CHECK(other.close_memory(0) == cudaSuccess);
}

TEST_CASE("two streams are in order by way of another process", "[rules][interprocess]") {
  OtherProcess other;
  const TestEvent ours(kInterprocess);
  REQUIRE(other.open_event(0, handle_of(ours)) == cudaSuccess);
  const auto made = other.ask(Do::create_event, 1);
  REQUIRE(made.status == cudaSuccess);
  cudaEvent_t theirs = nullptr;
  REQUIRE_CUDA(
      cudaIpcOpenEventHandle(&theirs, OtherProcess::handle_of<cudaIpcEventHandle_t>(made.bytes)));
  const DeviceMemory<int> memory(1 << 16);
  const TestStream first, second;
  Gate gate;
  gate.hold(first);
  fill_async(memory, 0x66, first);
  REQUIRE_CUDA(cudaEventRecord(ours, first));
  REQUIRE(other.status_of(Do::wait, 0) == cudaSuccess);
  REQUIRE(other.status_of(Do::record, 1) == cudaSuccess);
  REQUIRE_CUDA(cudaStreamWaitEvent(second, theirs, 0));
  fill_async(memory, 0x67, second);
  CHECK(cudaStreamQuery(second) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(second));
  CHECK(memory.read()[0] == repeated(0x67));
  CHECK_CUDA(cudaEventDestroy(theirs));
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 1) == cudaSuccess);
}

TEST_CASE("an event of another process that was never recorded holds nobody",
          "[rules][interprocess]") {
  OtherProcess other;
  const TestEvent event(kInterprocess);
  REQUIRE(other.open_event(0, handle_of(event)) == cudaSuccess);
  CHECK(other.status_of(Do::query_event, 0) == cudaSuccess);
  CHECK(other.status_of(Do::wait, 0) == cudaSuccess);
  CHECK(other.status_of(Do::synchronize_stream) == cudaSuccess);
  CHECK(other.status_of(Do::synchronize_event, 0) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
}

TEST_CASE("memory that was written before its handle was asked for is seen with its content",
          "[rules][interprocess]") {
  OtherProcess other;
  const DeviceMemory<int> memory(1 << 18);
  const TestStream stream;
  fill_async(memory, 0x44, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE(other.open_memory(0, handle_of(memory)) == cudaSuccess);
  CHECK(other.read(0, (1 << 18) - 1).value == repeated(0x44));
  CHECK(other.ask(Do::describe, 0).value == cudaMemoryTypeDevice);
  // What either writes, the other sees.
  fill_async(memory, 0x45, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(other.read(0).value == repeated(0x45));
  CHECK(other.fill(0, 0x46) == cudaSuccess);
  CHECK(other.status_of(Do::synchronize_stream) == cudaSuccess);
  CHECK(memory.read()[0] == repeated(0x46));
  CHECK(other.close_memory(0) == cudaSuccess);
}

TEST_CASE("memory is closed as often as it was opened", "[rules][interprocess]") {
  OtherProcess other;
  const DeviceMemory<int> memory(1 << 20);
  const cudaIpcMemHandle_t handle = handle_of(memory);
  REQUIRE(other.open_memory(0, handle) == cudaSuccess);
  const auto again = other.ask(Do::open_memory, 0, 0, OtherProcess::bytes_of(handle));
  CHECK(again.status == cudaSuccess);
  CHECK(again.value == 1);  // the same address
  CHECK(other.close_memory(0) == cudaSuccess);
  CHECK(other.read(0).status == cudaSuccess);
  CHECK(other.close_memory(0) == cudaSuccess);
  CHECK(other.close_memory(0) == cudaErrorInvalidValue);
  CHECK(other.open_memory(0, handle) == cudaSuccess);
  CHECK(other.close_memory(0) == cudaSuccess);
}

TEST_CASE("memory has one handle, and other memory has another", "[rules][interprocess]") {
  const DeviceMemory<int> memory(1 << 20);
  const cudaIpcMemHandle_t handle = handle_of(memory), again = handle_of(memory);
  CHECK(std::memcmp(&handle, &again, sizeof handle) == 0);
  const DeviceMemory<int> more(1 << 20);
  const cudaIpcMemHandle_t of_more = handle_of(more);
  CHECK(std::memcmp(&handle, &of_more, sizeof handle) != 0);
}

TEST_CASE("a process does not open its own handles", "[rules][interprocess]") {
  const DeviceMemory<int> memory(1 << 20);
  const TestEvent event(kInterprocess);
  void* opened = nullptr;
  CHECK(cudaIpcOpenMemHandle(&opened, handle_of(memory), cudaIpcMemLazyEnablePeerAccess) ==
        cudaErrorDeviceUninitialized);
  cudaEvent_t opened_event = nullptr;
  CHECK(cudaIpcOpenEventHandle(&opened_event, handle_of(event)) == cudaErrorDeviceUninitialized);
  CHECK(cudaIpcCloseMemHandle(memory.data()) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("only cudaMalloc's memory has a handle", "[rules][interprocess]") {
  const PinnedMemory<int> pinned(1024);
  const TestStream stream;
  void *ordered = nullptr, *managed = nullptr, *freed = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&ordered, 1 << 21, stream));
  REQUIRE_CUDA(cudaMallocManaged(&managed, 1 << 21));
  REQUIRE_CUDA(cudaMalloc(&freed, 1 << 21));
  REQUIRE_CUDA(cudaFree(freed));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  int on_stack = 0;
  cudaIpcMemHandle_t handle{};
  for (void* const data : {ordered, managed, freed, static_cast<void*>(pinned.data()),
                           static_cast<void*>(&on_stack), static_cast<void*>(nullptr)})
    CHECK(cudaIpcGetMemHandle(&handle, data) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK_CUDA(cudaFree(managed));
  CHECK_CUDA(cudaFreeAsync(ordered, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("an interprocess event has no timing", "[rules][interprocess]") {
  cudaEvent_t none = nullptr;
  CHECK(cudaEventCreateWithFlags(&none, cudaEventInterprocess) == cudaErrorInvalidValue);
  CHECK(cudaEventCreateWithFlags(&none, cudaEventInterprocess | cudaEventBlockingSync) ==
        cudaErrorInvalidValue);
  const TestEvent event(kInterprocess), blocking(kInterprocess | cudaEventBlockingSync);
  const TestStream stream;
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  REQUIRE_CUDA(cudaEventSynchronize(event));
  float elapsed = 0;
  CHECK(cudaEventElapsedTime(&elapsed, event, event) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("an event that is not interprocess has no handle", "[rules][interprocess]") {
  const TestEvent plain;
  cudaIpcEventHandle_t handle{};
  CHECK(cudaIpcGetEventHandle(&handle, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaIpcGetEventHandle(&handle, plain) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("devices tell what processes can share", "[rules][interprocess]") {
  int events = 0, types = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&events, cudaDevAttrIpcEventSupport, 0));
  CHECK(events == 1);
  REQUIRE_CUDA(cudaDeviceGetAttribute(&types, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
  CHECK((types & cudaMemHandleTypePosixFileDescriptor) != 0);
  CHECK((types & (cudaMemHandleTypeWin32 | cudaMemHandleTypeWin32Kmt)) == 0);
  cudaDeviceProp prop{};
  REQUIRE_CUDA(cudaGetDeviceProperties(&prop, 0));
  CHECK(prop.ipcEventSupported == events);
  CHECK(static_cast<int>(prop.memoryPoolSupportedHandleTypes) == types);
}

TEST_CASE("a pool is exported as it was created", "[rules][interprocess]") {
  int descriptor = -1;
  cudaMemPool_t own = nullptr;
  REQUIRE_CUDA(cudaDeviceGetDefaultMemPool(&own, 0));
  const auto export_it = [&](cudaMemPool_t pool, cudaMemAllocationHandleType type, unsigned flags) {
    return cudaMemPoolExportToShareableHandle(&descriptor, pool, type, flags);
  };
  CHECK(export_it(own, cudaMemHandleTypePosixFileDescriptor, 0) == cudaErrorInvalidValue);
  const SharedPool pool;
  const TestStream stream;
  void* shared = nullptr;
  cudaMemPoolPtrExportData data{};
  REQUIRE_CUDA(cudaMallocFromPoolAsync(&shared, 64, pool, stream));
  CHECK(cudaMemPoolExportPointer(&data, shared) == cudaErrorInvalidValue);  // before its pool
  REQUIRE_CUDA(cudaFreeAsync(shared, stream));
  CHECK(export_it(pool, cudaMemHandleTypeWin32, 0) == cudaErrorInvalidValue);
  CHECK(export_it(pool, cudaMemHandleTypeNone, 0) == cudaErrorInvalidValue);
  CHECK(export_it(pool, cudaMemHandleTypePosixFileDescriptor, 1) == cudaErrorInvalidValue);
  CHECK_CUDA(export_it(pool, cudaMemHandleTypePosixFileDescriptor, 0));
  CHECK(::fcntl(descriptor, F_GETFD) == 0);  // A program that this one becomes has it, too.
  ::close(descriptor);
  // Memory of other pools, and other memory, has nothing to export.
  void* ordered = nullptr;
  REQUIRE_CUDA(cudaMallocAsync(&ordered, 64, stream));
  const DeviceMemory<int> memory(64);
  CHECK(cudaMemPoolExportPointer(&data, ordered) == cudaErrorInvalidValue);
  CHECK(cudaMemPoolExportPointer(&data, memory.data()) == cudaErrorInvalidValue);
  CHECK(cudaMemPoolExportPointer(&data, nullptr) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK_CUDA(cudaFreeAsync(ordered, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
}

TEST_CASE("another process uses memory of a pool", "[rules][interprocess]") {
  OtherProcess other;
  const SharedPool pool;
  const TestStream stream;
  const TestEvent event(kInterprocess);
  REQUIRE(other.open_event(0, handle_of(event)) == cudaSuccess);
  int descriptor = -1;
  REQUIRE_CUDA(cudaMemPoolExportToShareableHandle(&descriptor, pool,
                                                  cudaMemHandleTypePosixFileDescriptor, 0));
  REQUIRE(other.import_pool(descriptor).status == cudaSuccess);
  ::close(descriptor);
  int *one = nullptr, *two = nullptr;
  REQUIRE_CUDA(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&one), 1 << 20, pool, stream));
  REQUIRE_CUDA(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&two), 1 << 20, pool, stream));
  REQUIRE_CUDA(cudaMemsetAsync(one, 0x51, 1 << 20, stream));
  REQUIRE_CUDA(cudaMemsetAsync(two, 0x52, 1 << 20, stream));
  REQUIRE_CUDA(cudaEventRecord(event, stream));
  cudaMemPoolPtrExportData data{};
  REQUIRE_CUDA(cudaMemPoolExportPointer(&data, one));
  REQUIRE(other.ask(Do::import_pointer, 1, 0, OtherProcess::bytes_of(data)).status == cudaSuccess);
  REQUIRE_CUDA(cudaMemPoolExportPointer(&data, two));
  REQUIRE(other.ask(Do::import_pointer, 2, 0, OtherProcess::bytes_of(data)).status == cudaSuccess);
  REQUIRE(other.status_of(Do::wait, 0) == cudaSuccess);
  CHECK(other.read(1).value == repeated(0x51));
  CHECK(other.read(2, (1 << 18) - 1).value == repeated(0x52));
  CHECK(other.ask(Do::describe, 1).value == cudaMemoryTypeDevice);
  CHECK(other.fill(1, 0x53) == cudaSuccess);
  // The other's free is done before this process frees.
  CHECK(other.status_of(Do::free_async, 1) == cudaSuccess);
  CHECK(other.status_of(Do::synchronize_stream) == cudaSuccess);
  CHECK(other.status_of(Do::free, 2) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_pool) == cudaSuccess);
  const PinnedMemory<int> host(2);
  REQUIRE_CUDA(cudaMemcpyAsync(host.data(), one, 8, cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaFreeAsync(one, stream));
  REQUIRE_CUDA(cudaFreeAsync(two, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(host[0] == repeated(0x53));
  CHECK(host[1] == repeated(0x51));
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
}

TEST_CASE("a pool of another process allocates nothing", "[rules][interprocess]") {
  OtherProcess other;
  const SharedPool pool;
  int descriptor = -1;
  REQUIRE_CUDA(cudaMemPoolExportToShareableHandle(&descriptor, pool,
                                                  cudaMemHandleTypePosixFileDescriptor, 0));
  REQUIRE(other.import_pool(descriptor).status == cudaSuccess);
  ::close(descriptor);
  CHECK(other.status_of(Do::allocate_from_pool) != cudaSuccess);
  CHECK(other.status_of(Do::set_pool) != cudaSuccess);
  CHECK(other.status_of(Do::destroy_pool) == cudaSuccess);
}

TEST_CASE("bytes that are no handle open neither memory nor an event, and no descriptor a pool",
          "[rules][interprocess]") {
  void* data = nullptr;
  CHECK(cudaIpcOpenMemHandle(&data, cudaIpcMemHandle_t{}, cudaIpcMemLazyEnablePeerAccess) ==
        cudaErrorInvalidValue);
  cudaEvent_t event = nullptr;
  CHECK(cudaIpcOpenEventHandle(&event, cudaIpcEventHandle_t{}) == cudaErrorMapBufferObjectFailed);
  cudaMemPool_t pool = nullptr;
  const auto import_it = [&](std::intptr_t descriptor, cudaMemAllocationHandleType type) {
    return cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(descriptor), type,
                                                0);
  };
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  CHECK(import_it(-1, cudaMemHandleTypePosixFileDescriptor) == cudaErrorUnknown);
  CHECK(import_it(null, cudaMemHandleTypePosixFileDescriptor) == cudaErrorUnknown);
  ::close(null);
  const SharedPool exported;
  int descriptor = -1;
  REQUIRE_CUDA(cudaMemPoolExportToShareableHandle(&descriptor, exported,
                                                  cudaMemHandleTypePosixFileDescriptor, 0));
  CHECK(import_it(descriptor, cudaMemHandleTypeNone) == cudaErrorInvalidValue);
  CHECK(import_it(descriptor, cudaMemHandleTypeWin32) == cudaErrorNotSupported);
  ::close(descriptor);
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  for (const auto type : {cudaMemHandleTypeWin32, cudaMemHandleTypeWin32Kmt}) {
    props.handleTypes = type;
    CHECK(cudaMemPoolCreate(&pool, &props) == cudaErrorInvalidValue);
  }
  cudaGetLastError();
}

TEST_CASE("handles of memory and events do not end a capture, and exports of pools do",
          "[rules][interprocess]") {
  OtherProcess other;
  const auto theirs = other.ask(Do::allocate, 0, 1 << 20);
  const auto their_event = other.ask(Do::create_event, 0);
  const auto memory_handle = OtherProcess::handle_of<cudaIpcMemHandle_t>(theirs.bytes);
  const auto event_handle = OtherProcess::handle_of<cudaIpcEventHandle_t>(their_event.bytes);
  const DeviceMemory<int> memory(1 << 20);
  const TestEvent event(kInterprocess);
  const TestStream stream;
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  handle_of(memory);
  handle_of(event);
  void* opened = nullptr;
  CHECK_CUDA(cudaIpcOpenMemHandle(&opened, memory_handle, cudaIpcMemLazyEnablePeerAccess));
  CHECK_CUDA(cudaIpcCloseMemHandle(opened));
  cudaEvent_t opened_event = nullptr;
  CHECK_CUDA(cudaIpcOpenEventHandle(&opened_event, event_handle));
  CHECK_CUDA(cudaEventRecordWithFlags(opened_event, stream, cudaEventRecordExternal));
  CHECK(cudaEventRecord(opened_event, stream) == cudaErrorStreamCaptureUnsupported);
  CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
  CHECK_CUDA(cudaGraphDestroy(graph));
  CHECK_CUDA(cudaEventDestroy(opened_event));
  const SharedPool pool;
  int descriptor = -1;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaMemPoolExportToShareableHandle(&descriptor, pool, cudaMemHandleTypePosixFileDescriptor,
                                           0) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  CHECK(other.status_of(Do::free, 0) == cudaSuccess);
  CHECK(other.status_of(Do::destroy_event, 0) == cudaSuccess);
}
