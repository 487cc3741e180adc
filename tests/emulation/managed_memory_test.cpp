// SPDX-License-Identifier: Apache-2.0

// Managed memory where the documentation leaves something open, and on a machine of several
// devices.

#include <cstdint>
#include <penstock/emulation.hpp>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/handles.hpp"
#include "support/managed.hpp"

using namespace penstock::test;
namespace emulation = penstock::emulation;

namespace {

constexpr cudaMemLocation kSecondDevice{cudaMemLocationTypeDevice, 1};

void use_two_devices() {
  emulation::Options options = emulation::options();
  options.machine.devices = 2;
  emulation::reset(options);
}

}  // namespace

// A GPU that reaches all memory of the host takes advice about any range of it.
TEST_CASE("advice is about bytes of one managed allocation", "[emulation][managed][stricter]") {
  const ManagedPages memory(2);
  const TestStream stream;
  std::vector<std::uint8_t> pageable(64);
  const auto refused = [&](const void* data, std::size_t bytes) {
    int value = 0;
    CHECK(advise(data, bytes, cudaMemAdviseSetReadMostly, kDevice0) == cudaErrorInvalidValue);
    CHECK(prefetch(data, bytes, kDevice0, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemRangeGetAttribute(&value, sizeof(value), cudaMemRangeAttributeReadMostly, data,
                                   bytes) == cudaErrorInvalidValue);
  };
  refused(memory.data(), memory.bytes() + 1);
  refused(memory.page(1), kPageBytes + 1);
  refused(memory.data(), 0);
  refused(memory.data(), ~std::size_t{0});
  refused(pageable.data(), pageable.size());
  refused(nullptr, 1);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(range_attribute(cudaMemRangeAttributeReadMostly, memory.data(), memory.bytes()) == 0);
  CHECK(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, memory.data(), memory.bytes()) ==
        cudaInvalidDeviceId);
}

TEST_CASE("advice goes with its allocation", "[emulation][managed][held]") {
  const TestStream stream;
  const void* before = nullptr;
  {
    const ManagedPages memory(1);
    before = memory.data();
    REQUIRE_CUDA(advise(memory.data(), kPageBytes, cudaMemAdviseSetReadMostly, kDevice0));
    REQUIRE_CUDA(prefetch(memory.data(), kPageBytes, kDevice0, stream));
  }
  const ManagedPages memory(1);
  REQUIRE(memory.data() == before);
  CHECK(range_attribute(cudaMemRangeAttributeReadMostly, memory.data(), kPageBytes) == 0);
  CHECK(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, memory.data(), kPageBytes) ==
        cudaInvalidDeviceId);
}

// A GPU knows every node of a host that has several.
TEST_CASE("the host has one node of memory", "[emulation][managed][stricter]") {
  const ManagedPages memory(2);
  const TestStream stream;
  const cudaMemLocation current{cudaMemLocationTypeHostNumaCurrent, 99};
  const cudaMemLocation node{cudaMemLocationTypeHostNuma, 0}, other{cudaMemLocationTypeHostNuma, 1};
  CHECK(prefetch(memory.data(), kPageBytes, other, stream) == cudaErrorInvalidValue);
  CHECK(prefetch(memory.data(), kPageBytes, {cudaMemLocationTypeInvalid, 0}, stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  REQUIRE_CUDA(prefetch(memory.page(0), kPageBytes, current, stream));
  REQUIRE_CUDA(prefetch(memory.page(1), kPageBytes, node, stream));
  const auto last = [&](cudaMemRangeAttribute attribute) {
    return range_attribute(attribute, memory.data(), 2 * kPageBytes);
  };
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocationType) == cudaMemLocationTypeHostNuma);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocationId) == 0);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocation) == cudaCpuDeviceId);
  REQUIRE_CUDA(prefetch(memory.page(1), kPageBytes, {cudaMemLocationTypeHost, 99}, stream));
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocationType) == cudaMemLocationTypeInvalid);
  CHECK(last(cudaMemRangeAttributeLastPrefetchLocation) == cudaCpuDeviceId);
}

TEST_CASE("pages are advised about several devices", "[emulation][managed][held]") {
  use_two_devices();
  const ManagedPages memory(2);
  const TestStream stream;
  REQUIRE_CUDA(advise(memory.page(0), kPageBytes, cudaMemAdviseSetPreferredLocation, kDevice0));
  REQUIRE_CUDA(
      advise(memory.page(1), kPageBytes, cudaMemAdviseSetPreferredLocation, kSecondDevice));
  REQUIRE_CUDA(prefetch(memory.data(), 2 * kPageBytes, kSecondDevice, stream));
  for (const cudaMemLocation location : {kDevice0, kSecondDevice})
    REQUIRE_CUDA(advise(memory.data(), 2 * kPageBytes, cudaMemAdviseSetAccessedBy, location));
  CHECK(range_attribute(cudaMemRangeAttributePreferredLocation, memory.page(1), kPageBytes) == 1);
  CHECK(range_attribute(cudaMemRangeAttributePreferredLocation, memory.data(), 2 * kPageBytes) ==
        cudaInvalidDeviceId);
  CHECK(range_attribute(cudaMemRangeAttributePreferredLocationType, memory.data(),
                        2 * kPageBytes) == cudaMemLocationTypeInvalid);
  CHECK(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, memory.data(), 2 * kPageBytes) ==
        1);
  int accessors[3] = {};
  REQUIRE_CUDA(cudaMemRangeGetAttribute(accessors, sizeof(accessors),
                                        cudaMemRangeAttributeAccessedBy, memory.data(),
                                        2 * kPageBytes));
  CHECK(accessors[0] == 0);
  CHECK(accessors[1] == 1);
  CHECK(accessors[2] == cudaInvalidDeviceId);
  int first = 77;  // "only as many devices will be returned as can fit in the array"
  REQUIRE_CUDA(cudaMemRangeGetAttribute(&first, sizeof(first), cudaMemRangeAttributeAccessedBy,
                                        memory.data(), kPageBytes));
  CHECK(first == 0);
}

TEST_CASE("a prefetch is an operation of its stream", "[emulation][managed][held]") {
  const ManagedPages memory(1);
  const TestStream stream;
  emulation::record_timeline(true);
  REQUIRE_CUDA(cudaMemsetAsync(memory.data(), 1, kPageBytes, stream));
  REQUIRE_CUDA(prefetch(memory.data(), kPageBytes, kHost, stream));
  REQUIRE_CUDA(cudaMemsetAsync(memory.data(), 2, kPageBytes, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  emulation::record_timeline(false);
  std::vector<std::string> names;
  for (const emulation::Operation& operation : emulation::timeline())
    names.emplace_back(operation.name);
  CHECK(names ==
        std::vector<std::string>{"cudaMemsetAsync", "cudaMemPrefetchAsync", "cudaMemsetAsync"});
}

// CUDA does not say that it cannot be captured.
TEST_CASE("a prefetch is not captured, and ends the capture", "[emulation][managed][stricter]") {
  const ManagedPages memory(1);
  const TestStream stream;
  REQUIRE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(prefetch(memory.data(), kPageBytes, kDevice0, stream) == cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);
  CHECK(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
  CHECK(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, memory.data(), kPageBytes) ==
        cudaInvalidDeviceId);
}

TEST_CASE("a prefetch fails with its device", "[emulation][managed][held]") {
  use_two_devices();
  const ManagedPages memory(1);
  REQUIRE_CUDA(cudaSetDevice(1));
  cudaStream_t stream = nullptr;
  REQUIRE_CUDA(cudaStreamCreate(&stream));
  REQUIRE_CUDA(cudaSetDevice(0));
  emulation::fail_operation(emulation::OperationKind::fill, cudaErrorIllegalAddress);
  REQUIRE_CUDA(cudaMemsetAsync(memory.data(), 0, kPageBytes, stream));
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  CHECK(prefetch(memory.data(), kPageBytes, kDevice0, stream) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, memory.data(), kPageBytes) ==
        cudaInvalidDeviceId);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

#if CUDART_VERSION < 13000
TEST_CASE("advice and prefetches of CUDA 12 name a device", "[emulation][managed][held]") {
  const ManagedPages memory(1);
  const TestStream stream;
  REQUIRE_CUDA(cudaMemAdvise(memory.data(), kPageBytes, cudaMemAdviseSetPreferredLocation, 0));
  REQUIRE_CUDA(cudaMemPrefetchAsync(memory.data(), kPageBytes, cudaCpuDeviceId, stream));
  CHECK(range_attribute(cudaMemRangeAttributePreferredLocation, memory.data(), kPageBytes) == 0);
  CHECK(range_attribute(cudaMemRangeAttributeLastPrefetchLocation, memory.data(), kPageBytes) ==
        cudaCpuDeviceId);
  CHECK(cudaMemPrefetchAsync(memory.data(), kPageBytes, cudaInvalidDeviceId, stream) ==
        cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}
#endif
