// SPDX-License-Identifier: Apache-2.0

// The rules of devices: the current one, and what may cross from one to another. Tests that
// need two devices do nothing where there is one. Functions: cudaDevice*, cudaGetDevice*,
// cudaSetDevice*, cudaInitDevice, cudaProfiler*, cudaDriverGetVersion, cudaRuntimeGetVersion.

#include <cuda_profiler_api.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

int device_count() {
  int count = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&count));
  return count;
}

int current_device() {
  int device = -1;
  REQUIRE_CUDA(cudaGetDevice(&device));
  return device;
}

/// Device `device` is current for the scope, then device 0.
class OnDevice {
 public:
  explicit OnDevice(int device) { REQUIRE_CUDA(cudaSetDevice(device)); }
  ~OnDevice() { CHECK_CUDA(cudaSetDevice(0)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

}  // namespace

// CUDA Runtime API, Device Management, cudaSetDevice: "Valid device id's are 0 to
// (cudaGetDeviceCount() - 1)."
TEST_CASE("devices are numbered from 0", "[rules][device]") {
  const int count = device_count();
  REQUIRE(count >= 1);
  for (int device = 0; device < count; ++device) {
    const OnDevice on(device);
    CHECK(current_device() == device);
  }
  CHECK(cudaSetDevice(count) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(current_device() == 0);
}

// CUDA Runtime API, Device Management, cudaSetDevice: "Sets device as the current device for the
// calling host thread." Programming Guide, Device Selection: "If no call to cudaSetDevice() is
// made, the current device is device 0."
TEST_CASE("every thread has its own current device, at first device 0", "[rules][device]") {
  const int last = device_count() - 1;
  const OnDevice on(last);
  int at_first = -1;
  std::thread([&] { cudaGetDevice(&at_first); }).join();
  CHECK(at_first == 0);
  CHECK(current_device() == last);
}

// CUDA Runtime API, Device Management, cudaDeviceGetAttribute: "Returns in *value the integer value
// of the attribute attr on device device."
TEST_CASE("a device has attributes", "[rules][device]") {
  int value = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  CHECK(value > 0);
  REQUIRE_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMaxThreadsPerBlock, 0));
  CHECK(value > 0);
  REQUIRE_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrUnifiedAddressing, 0));
  CHECK(value == 1);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrUnifiedAddressing, device_count()) ==
        cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

// The same description: "Peak clock frequency in kilohertz", "Peak memory clock frequency in
// kilohertz", "Link between the device and the host supports native atomic operations", "Device
// accesses pageable memory via the host's page tables", and a bitmask of handle types.
TEST_CASE("a device tells its clocks and what it shares with the host", "[rules][device]") {
  int value = 0;
  for (const auto clock : {cudaDevAttrClockRate, cudaDevAttrMemoryClockRate}) {
    REQUIRE_CUDA(cudaDeviceGetAttribute(&value, clock, 0));
    CHECK(value > 0);
  }
  for (const auto flag :
       {cudaDevAttrHostNativeAtomicSupported, cudaDevAttrPageableMemoryAccessUsesHostPageTables}) {
    REQUIRE_CUDA(cudaDeviceGetAttribute(&value, flag, 0));
    CHECK((value == 0 || value == 1));
  }
  REQUIRE_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
  CHECK(value >= 0);
}

// CUDA Runtime API, Device Management, cudaGetDeviceProperties: "Returns in *prop the properties of
// device device."
TEST_CASE("a device has properties that agree with its attributes", "[rules][device]") {
  cudaDeviceProp properties{};
  REQUIRE_CUDA(cudaGetDeviceProperties(&properties, 0));
  CHECK(properties.name[0] != '\0');
  CHECK(properties.unifiedAddressing == 1);
  int processors = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  CHECK(properties.multiProcessorCount == processors);
}

// CUDA Runtime API, Device Management, cudaDeviceGetP2PAttribute: "Queries attributes of the link
// between two devices." "Returns cudaErrorInvalidDevice if srcDevice or dstDevice are not valid or
// if they represent the same device."
TEST_CASE("devices tell what links them", "[rules][device]") {
  int value = -1;
  CHECK(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 0) ==
        cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  if (device_count() < 2) return;
  for (const auto attribute : {cudaDevP2PAttrAccessSupported, cudaDevP2PAttrNativeAtomicSupported,
                               cudaDevP2PAttrCudaArrayAccessSupported}) {
    REQUIRE_CUDA(cudaDeviceGetP2PAttribute(&value, attribute, 0, 1));
    CHECK((value == 0 || value == 1));
  }
  REQUIRE_CUDA(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrPerformanceRank, 0, 1));
  CHECK(value >= 0);
}

// CUDA Runtime API, Profiler Control: "If profiling is already enabled, then cudaProfilerStart()
// has no effect." "If profiling is already disabled, then cudaProfilerStop() has no effect."
TEST_CASE("the profiler can be started and stopped without a profiler", "[rules][device]") {
  CHECK_CUDA(cudaProfilerStart());
  CHECK_CUDA(cudaProfilerStart());
  CHECK_CUDA(cudaProfilerStop());
  CHECK_CUDA(cudaProfilerStop());
}

// CUDA Runtime API, Stream Management, cudaStreamGetDevice: "Returns in *device the device of the
// stream." cudaSetDevice: "Any streams or events created from this host thread will be associated
// with device."
TEST_CASE("a stream belongs to the device it was created on", "[rules][device]") {
  if (!kStreamsTellTheirDevice) return;
  const int last = device_count() - 1;
  const OnDevice on(last);
  const TestStream stream;
  REQUIRE_CUDA(cudaSetDevice(0));
  int device = -1;
  REQUIRE_CUDA(device_of_stream(stream, &device));
  CHECK(device == last);
}

// CUDA C++ Programming Guide, Stream and Event Behavior: "A memory copy will succeed even if it is
// issued to a stream that is not associated to the current device."
TEST_CASE("a copy runs on the device of its stream, whatever is current", "[rules][device]") {
  if (device_count() < 2) return;
  const OnDevice on(1);
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> source(64, 3), result(64);
  const TestStream stream;
  REQUIRE_CUDA(cudaSetDevice(0));
  copy_async(device, source, stream);
  copy_async(result, device, stream);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(result.all(3));
  cudaPointerAttributes attributes{};
  REQUIRE_CUDA(cudaPointerGetAttributes(&attributes, device.data()));
  CHECK(attributes.device == 1);
}

// The same section: "cudaEventRecord() will fail if the input event and input stream are associated
// to different devices."
TEST_CASE("an event is recorded on streams of its own device", "[rules][device]") {
  if (device_count() < 2) return;
  const TestEvent event;
  const OnDevice on(1);
  const TestStream stream;
  CHECK(cudaEventRecord(event, stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

// The same section: "cudaStreamWaitEvent() will succeed even if the input stream and input event
// are associated to different devices." "cudaEventSynchronize() and cudaEventQuery() will succeed
// even if the input event is associated to a device that is different from the current device."
TEST_CASE("a stream waits for an event of another device", "[rules][device]") {
  if (device_count() < 2) return;
  const DeviceMemory<std::uint8_t> device(64);
  const PinnedMemory<std::uint8_t> host(64);
  const TestStream writer;
  const TestEvent written;
  const OnDevice on(1);
  const TestStream reader;
  Gate gate;
  gate.hold(writer);
  fill_async(device, 9, writer);
  copy_async(host, device, writer);
  REQUIRE_CUDA(cudaEventRecord(written, writer));
  REQUIRE_CUDA(cudaStreamWaitEvent(reader, written, 0));
  CHECK(cudaStreamQuery(reader) == cudaErrorNotReady);
  CHECK(cudaEventQuery(written) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(reader));
  CHECK(host.all(9));
}

// The same section: "cudaEventElapsedTime() will fail if the two input events are associated to
// different devices."
TEST_CASE("elapsed time is between events of one device", "[rules][device]") {
  if (device_count() < 2) return;
  const TestEvent first(cudaEventDefault);
  REQUIRE_CUDA(cudaEventRecord(first, cudaStreamPerThread));
  const OnDevice on(1);
  const TestEvent second(cudaEventDefault);
  REQUIRE_CUDA(cudaEventRecord(second, cudaStreamPerThread));
  REQUIRE_CUDA(cudaEventSynchronize(first));
  REQUIRE_CUDA(cudaEventSynchronize(second));
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, first, second) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
}

// The same section: "Each device has its own default stream ..., so commands issued to the default
// stream of a device may execute out of order or concurrently with respect to commands issued to
// the default stream of any other device."
TEST_CASE("every device has its own default stream", "[rules][device]") {
  if (device_count() < 2) return;
  const TestStream blocking(cudaStreamDefault);
  Gate gate, legacy_gate;
  legacy_gate.hold(cudaStreamLegacy);
  gate.hold(blocking);
  CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady);
  const OnDevice on(1);
  const TestEvent event;
  REQUIRE_CUDA(cudaEventRecord(event, cudaStreamLegacy));
  CHECK_CUDA(cudaEventSynchronize(event));
  CHECK_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  CHECK(cudaStreamQuery(blocking) == cudaErrorNotReady);
}

// CUDA Runtime API, Device Management, cudaDeviceSynchronize: "Blocks until the device has
// completed all preceding requested tasks." The current device.
TEST_CASE("synchronising one device does not wait for another", "[rules][device]") {
  if (device_count() < 2) return;
  const TestStream held;
  Gate gate;
  gate.hold(held);
  const OnDevice on(1);
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK(cudaStreamQuery(held) == cudaErrorNotReady);
}

// CUDA Runtime API, Memory Management, cudaMemcpyPeerAsync: "Copies memory from one device to
// memory on another device."
TEST_CASE("memory is copied from device to device", "[rules][device]") {
  if (device_count() < 2) return;
  const DeviceMemory<std::uint8_t> first(64);
  const TestStream stream;
  const OnDevice on(1);
  const DeviceMemory<std::uint8_t> second(64);
  fill_async(first, 8, stream);
  // "serialized with respect all pending and future asynchronous work in to the current device,
  // srcDevice, and dstDevice"
  SECTION("cudaMemcpyPeer") {
    REQUIRE_CUDA(cudaMemcpyPeer(second.data(), 1, first.data(), 0, 64));
  }
  SECTION("cudaMemcpyPeerAsync") {
    REQUIRE_CUDA(cudaMemcpyPeerAsync(second.data(), 1, first.data(), 0, 64, stream));
  }
  SECTION("cudaMemcpyDefault") {
    REQUIRE_CUDA(cudaMemcpyAsync(second.data(), first.data(), 64, cudaMemcpyDefault, stream));
  }
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(second.read() == std::vector<std::uint8_t>(64, 8));
}

// CUDA Runtime API, Device Management, cudaInitDevice: "This function will initialize the CUDA
// Runtime structures and primary context on device when called, but the context will not be made
// current to device."
TEST_CASE("cudaInitDevice does not change the current device", "[rules][device]") {
  const int last = device_count() - 1;
  CHECK_CUDA(cudaInitDevice(last, 0, 0));
  CHECK(current_device() == 0);
  CHECK(cudaInitDevice(last + 1, 0, 0) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

// CUDA Runtime API, Device Management, cudaSetDeviceFlags: "If the current device has been set and
// that device has already been initialized, the previous flags are overwritten."
TEST_CASE("the flags of a device are those that were set last", "[rules][device]") {
  unsigned flags = 0;
  for (const unsigned how :
       {unsigned{cudaDeviceScheduleBlockingSync}, unsigned{cudaDeviceScheduleYield}}) {
    REQUIRE_CUDA(cudaSetDeviceFlags(how));
    REQUIRE_CUDA(cudaGetDeviceFlags(&flags));
    CHECK((flags & cudaDeviceScheduleMask) == how);
  }
  CHECK(cudaSetDeviceFlags(0x8000) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  REQUIRE_CUDA(cudaSetDeviceFlags(cudaDeviceScheduleAuto));
}

// CUDA Runtime API, Device Management, cudaDeviceGetByPCIBusId: "Returns in *device a device
// ordinal given a PCI bus ID string."
TEST_CASE("a device is found by its bus id", "[rules][device]") {
  for (int device = 0; device < device_count(); ++device) {
    char text[32] = {};
    int found = -1;
    REQUIRE_CUDA(cudaDeviceGetPCIBusId(text, sizeof text, device));
    REQUIRE_CUDA(cudaDeviceGetByPCIBusId(&found, text));
    CHECK(found == device);
  }
  char text[32] = {};
  CHECK(cudaDeviceGetPCIBusId(text, sizeof text, device_count()) == cudaErrorInvalidDevice);
  int found = -1;
  CHECK(cudaDeviceGetByPCIBusId(&found, "ffff:ff:1f.0") != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
}

// CUDA Runtime API, Peer Device Memory Access, cudaDeviceEnablePeerAccess: "Returns
// cudaErrorPeerAccessAlreadyEnabled if direct access of peerDevice from the current device has
// already been enabled. Returns cudaErrorInvalidValue if flags is not 0."
// cudaDeviceDisablePeerAccess: "Returns cudaErrorPeerAccessNotEnabled if direct access to memory on
// peerDevice has not yet been enabled from the current device."
TEST_CASE("access to a peer is enabled once and disabled once", "[rules][device]") {
  int can = -1;
  REQUIRE_CUDA(cudaDeviceCanAccessPeer(&can, 0, 0));
  CHECK(can == 0);
  CHECK(cudaDeviceCanAccessPeer(&can, 0, device_count()) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  if (device_count() < 2) return;
  REQUIRE_CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
  if (can == 0) return;
  CHECK(cudaDeviceEnablePeerAccess(1, 7) == cudaErrorInvalidValue);
  REQUIRE_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  CHECK(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
  REQUIRE_CUDA(cudaDeviceDisablePeerAccess(1));
  CHECK(cudaDeviceDisablePeerAccess(1) == cudaErrorPeerAccessNotEnabled);
  CHECK(cudaGetLastError() == cudaErrorPeerAccessNotEnabled);
}

// CUDA Runtime API, Version Management: "The version is returned as (1000 * major + 10 * minor)."
// cudaRuntimeGetVersion: "a compile-time constant stating the CUDA Toolkit version".
TEST_CASE("the runtime has the version of its headers", "[rules][device]") {
  int runtime = 0, driver = 0;
  REQUIRE_CUDA(cudaRuntimeGetVersion(&runtime));
  REQUIRE_CUDA(cudaDriverGetVersion(&driver));
  CHECK(runtime / 1000 == CUDART_VERSION / 1000);
  CHECK(driver / 1000 >= CUDART_VERSION / 1000);
  CHECK(cudaRuntimeGetVersion(nullptr) == cudaErrorInvalidValue);
  CHECK(cudaDriverGetVersion(nullptr) == cudaErrorInvalidValue);
  cudaGetLastError();
}
