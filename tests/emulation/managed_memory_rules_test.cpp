// SPDX-License-Identifier: Apache-2.0

// The rules of managed memory: advice, and prefetches. Functions: cudaMemAdvise,
// cudaMemPrefetchAsync, cudaMemRangeGetAttribute*, cudaStreamAttachMemAsync.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/managed.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

// CUDA Runtime API, Memory Management, cudaMemRangeGetAttribute: "The result returned will be 1 if
// all pages in the given memory range have read-duplication enabled, or 0 otherwise."
TEST_CASE("memory is read mostly where all of its pages are", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(4);
  const auto read_mostly = [&](std::size_t first, std::size_t pages) {
    return range_attribute(cudaMemRangeAttributeReadMostly, memory.page(first), pages * kPageBytes);
  };
  CHECK(read_mostly(0, 4) == 0);
  // "The location argument is ignored for this advice."
  REQUIRE_CUDA(advise(memory.page(1), 2 * kPageBytes, cudaMemAdviseSetReadMostly, kDevice0));
  CHECK(read_mostly(1, 2) == 1);
  CHECK(read_mostly(0, 1) == 0);
  CHECK(read_mostly(0, 2) == 0);
  REQUIRE_CUDA(advise(memory.page(2), kPageBytes, cudaMemAdviseUnsetReadMostly, kDevice0));
  CHECK(read_mostly(1, 1) == 1);
  CHECK(read_mostly(1, 2) == 0);
}

// The same, cudaMemAdvise: "The start address and end address of the memory range will be rounded
// down and rounded up respectively to be aligned to CPU page size before the advice is applied."
TEST_CASE("advice is about whole pages", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(2);
  REQUIRE_CUDA(advise(memory.page(1) - 1, 2, cudaMemAdviseSetReadMostly, kDevice0));
  CHECK(range_attribute(cudaMemRangeAttributeReadMostly, memory.page(1), 1024) == 1);
  CHECK(range_attribute(cudaMemRangeAttributeReadMostly, memory.page(1) - 1024, 2048) == 1);
}

// The same: "a GPU device id if all pages in the memory range have that GPU as their preferred
// location, or it will be cudaCpuDeviceId if all pages in the memory range have the CPU as their
// preferred location, or it will be cudaInvalidDeviceId if either all the pages don't have the same
// preferred location or some of the pages don't have a preferred location at all."
TEST_CASE("pages have a preferred location", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(2);
  const auto preferred = [&](cudaMemRangeAttribute attribute, std::size_t pages) {
    return range_attribute(attribute, memory.data(), pages * kPageBytes);
  };
  CHECK(preferred(cudaMemRangeAttributePreferredLocation, 2) == cudaInvalidDeviceId);
  CHECK(preferred(cudaMemRangeAttributePreferredLocationType, 2) == cudaMemLocationTypeInvalid);
  REQUIRE_CUDA(advise(memory.page(0), kPageBytes, cudaMemAdviseSetPreferredLocation, kDevice0));
  CHECK(preferred(cudaMemRangeAttributePreferredLocation, 1) == 0);
  CHECK(preferred(cudaMemRangeAttributePreferredLocationType, 1) == cudaMemLocationTypeDevice);
  CHECK(preferred(cudaMemRangeAttributePreferredLocationId, 1) == 0);
  CHECK(preferred(cudaMemRangeAttributePreferredLocation, 2) == cudaInvalidDeviceId);
  REQUIRE_CUDA(advise(memory.data(), 2 * kPageBytes, cudaMemAdviseSetPreferredLocation, kHost));
  CHECK(preferred(cudaMemRangeAttributePreferredLocation, 2) == cudaCpuDeviceId);
  CHECK(preferred(cudaMemRangeAttributePreferredLocationType, 2) == cudaMemLocationTypeHost);
  REQUIRE_CUDA(advise(memory.page(1), kPageBytes, cudaMemAdviseSetPreferredLocation, kDevice0));
  CHECK(preferred(cudaMemRangeAttributePreferredLocation, 2) == cudaInvalidDeviceId);
  CHECK(preferred(cudaMemRangeAttributePreferredLocationType, 2) == cudaMemLocationTypeInvalid);
  REQUIRE_CUDA(
      advise(memory.data(), memory.bytes(), cudaMemAdviseUnsetPreferredLocation, kDevice0));
  CHECK(preferred(cudaMemRangeAttributePreferredLocation, 1) == cudaInvalidDeviceId);
}

// The same: "a list of device ids that had cudaMemAdviceSetAccessedBy set for that entire memory
// range. ... If data is larger than the number of devices that have that advice set for that memory
// range, cudaInvalidDeviceId will be returned in all the extra space provided."
TEST_CASE("memory is accessed by the devices that all of its pages are", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(2);
  const auto accessors = [&](std::size_t pages) {
    std::vector<int> devices(3, 77);
    REQUIRE_CUDA(cudaMemRangeGetAttribute(devices.data(), devices.size() * sizeof(int),
                                          cudaMemRangeAttributeAccessedBy, memory.data(),
                                          pages * kPageBytes));
    return devices;
  };
  const int none = cudaInvalidDeviceId;
  CHECK(accessors(2) == std::vector{none, none, none});
  REQUIRE_CUDA(advise(memory.data(), kPageBytes, cudaMemAdviseSetAccessedBy, kDevice0));
  CHECK(accessors(1) == std::vector{0, none, none});
  CHECK(accessors(2) == std::vector{none, none, none});
  REQUIRE_CUDA(advise(memory.data(), memory.bytes(), cudaMemAdviseSetAccessedBy, kHost));
  std::vector<int> both = accessors(1);
  std::sort(both.begin(), both.end());
  CHECK(both == std::vector{none, cudaCpuDeviceId, 0});
  CHECK(accessors(2) == std::vector{cudaCpuDeviceId, none, none});
  REQUIRE_CUDA(advise(memory.data(), kPageBytes, cudaMemAdviseUnsetAccessedBy, kHost));
  CHECK(accessors(1) == std::vector{0, none, none});
  CHECK(accessors(2) == std::vector{none, none, none});
}

// The same: "the last location to which all pages in the memory range were prefetched explicitly
// via cudaMemPrefetchAsync. ... If any page in the memory range was never explicitly prefetched or
// if all pages were not prefetched to the same location, cudaInvalidDeviceId will be returned. ...
// It gives no indication as to whether the prefetch operation to that location has completed or
// even begun."
TEST_CASE("pages know where they were prefetched to last", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(2);
  const TestStream stream;
  const auto last = [&](cudaMemRangeAttribute attribute, std::size_t pages) {
    return range_attribute(attribute, memory.data(), pages * kPageBytes);
  };
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocation, 2) == cudaInvalidDeviceId);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocationType, 2) == cudaMemLocationTypeInvalid);
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(prefetch(memory.data(), 100, kDevice0, stream));
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocation, 2) == cudaInvalidDeviceId);
  REQUIRE_CUDA(prefetch(memory.data(), memory.bytes(), kDevice0, stream));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocation, 2) == 0);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocationType, 2) == cudaMemLocationTypeDevice);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocationId, 2) == 0);
  REQUIRE_CUDA(prefetch(memory.data(), kPageBytes, kHost, stream));
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocation, 1) == cudaCpuDeviceId);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocationType, 1) == cudaMemLocationTypeHost);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocation, 2) == cudaInvalidDeviceId);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

// The same, cudaMemPrefetchAsync: "stream is the stream in which the operation is enqueued." And:
// "this API is not required for functionality".
TEST_CASE("a prefetch has its turn in its stream, and changes no byte", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(2);
  const PinnedMemory<std::uint8_t> host(memory.bytes());
  const TestStream stream, other;
  const TestEvent prefetched;
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaMemsetAsync(memory.data(), 5, memory.bytes(), stream));
  REQUIRE_CUDA(prefetch(memory.data(), memory.bytes(), kHost, stream));
  REQUIRE_CUDA(prefetch(memory.data(), memory.bytes(), kDevice0, stream));
  REQUIRE_CUDA(cudaEventRecord(prefetched, stream));
  REQUIRE_CUDA(cudaStreamWaitEvent(other, prefetched, 0));
  REQUIRE_CUDA(
      cudaMemcpyAsync(host.data(), memory.data(), memory.bytes(), cudaMemcpyDeviceToHost, other));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  gate.open();
  REQUIRE_CUDA(cudaStreamSynchronize(other));
  CHECK(host.all(5));
}

// The same, cudaMemRangeGetAttributes: "The results of the query will be stored in data."
TEST_CASE("several attributes of a range are asked for at once", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(1);
  REQUIRE_CUDA(advise(memory.data(), kPageBytes, cudaMemAdviseSetReadMostly, kDevice0));
  REQUIRE_CUDA(advise(memory.data(), kPageBytes, cudaMemAdviseSetAccessedBy, kDevice0));
  int read_mostly = 77, preferred = 77;
  int accessors[2] = {77, 77};
  void* results[] = {&read_mostly, accessors, &preferred};
  std::size_t sizes[] = {sizeof(int), sizeof(accessors), sizeof(int)};
  cudaMemRangeAttribute attributes[] = {cudaMemRangeAttributeReadMostly,
                                        cudaMemRangeAttributeAccessedBy,
                                        cudaMemRangeAttributePreferredLocation};
  REQUIRE_CUDA(cudaMemRangeGetAttributes(results, sizes, attributes, 3, memory.data(), kPageBytes));
  CHECK(read_mostly == 1);
  CHECK(accessors[0] == 0);
  CHECK(accessors[1] == cudaInvalidDeviceId);
  CHECK(preferred == cudaInvalidDeviceId);
}

// The same: "data will be interpreted as a 32-bit integer, and dataSize must be 4", and "dataSize
// must be a non-zero multiple of 4".
TEST_CASE("an attribute of a range has its size", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(1);
  int room[2] = {};
  const auto ask = [&](std::size_t size, cudaMemRangeAttribute attribute) {
    const cudaError_t status =
        cudaMemRangeGetAttribute(room, size, attribute, memory.data(), kPageBytes);
    cudaGetLastError();
    return status;
  };
  CHECK(ask(8, cudaMemRangeAttributeReadMostly) == cudaErrorInvalidValue);
  CHECK(ask(2, cudaMemRangeAttributePreferredLocation) == cudaErrorInvalidValue);
  CHECK(ask(8, cudaMemRangeAttributeLastPrefetchLocation) == cudaErrorInvalidValue);
  CHECK(ask(0, cudaMemRangeAttributeAccessedBy) == cudaErrorInvalidValue);
  CHECK(ask(6, cudaMemRangeAttributeAccessedBy) == cudaErrorInvalidValue);
  CHECK(ask(4, cudaMemRangeAttributeAccessedBy) == cudaSuccess);
}

// The same, cudaMemPrefetchAsync: "The memory range must refer to managed memory allocated via
// cudaMallocManaged", and "flags for future use, must be zero now".
TEST_CASE("device memory is neither prefetched nor advised about", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(1);
  const DeviceMemory<std::uint8_t> device(1024);
  const TestStream stream;
  int value = 0;
  CHECK(prefetch(device.data(), 1024, kDevice0, stream) == cudaErrorInvalidValue);
  CHECK(advise(device.data(), 1024, cudaMemAdviseSetReadMostly, kDevice0) == cudaErrorInvalidValue);
  CHECK(cudaMemRangeGetAttribute(&value, sizeof(value), cudaMemRangeAttributeReadMostly,
                                 device.data(), 1024) == cudaErrorInvalidValue);
  CHECK(prefetch(memory.data(), kPageBytes, kDevice0, stream, 1) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// The same: "cudaMemLocation::id must be a valid device ordinal", of AccessedBy: "All other
// location types are invalid."
TEST_CASE("advice and prefetches name a location that there is", "[rules][managed]") {
  if (!managed_memory_is_concurrent()) return;
  const ManagedPages memory(1);
  const TestStream stream;
  int devices = 0;
  REQUIRE_CUDA(cudaGetDeviceCount(&devices));
  const cudaMemLocation beyond{cudaMemLocationTypeDevice, devices};
  const cudaMemLocation node{cudaMemLocationTypeHostNuma, 0};
  CHECK(prefetch(memory.data(), kPageBytes, beyond, stream) == cudaErrorInvalidDevice);
  CHECK(advise(memory.data(), kPageBytes, cudaMemAdviseSetPreferredLocation, beyond) ==
        cudaErrorInvalidValue);
  CHECK(advise(memory.data(), kPageBytes, cudaMemAdviseSetAccessedBy, beyond) ==
        cudaErrorInvalidValue);
  CHECK(advise(memory.data(), kPageBytes, cudaMemAdviseSetAccessedBy, node) ==
        cudaErrorInvalidValue);
  CHECK(advise(memory.data(), kPageBytes, static_cast<cudaMemoryAdvise>(0), kDevice0) ==
        cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}
