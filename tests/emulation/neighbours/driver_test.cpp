// SPDX-License-Identifier: Apache-2.0

// What KvikIO takes from the driver that scripts/neighbours builds: where an allocation begins and
// ends, contexts, copies.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

struct Range {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  bool operator==(const Range&) const = default;
};

Range range_of(const void* pointer) {
  Range range;
  REQUIRE(cuMemGetAddressRange(&range.begin, &range.bytes, address(pointer)) == CUDA_SUCCESS);
  return range;
}

CUcontext current() {
  CUcontext context = nullptr;
  REQUIRE(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  return context;
}

}  // namespace

TEST_CASE("the driver finds the allocation around an address", "[neighbours]") {
  for (const std::size_t size : {1u, 255u, 4095u, 4096u, 4097u, 12345u, 1u << 20}) {
    DeviceMemory<char> before(size), memory(size), after(size);
    const Range whole{address(memory.data()), size};
    CHECK(range_of(memory.data()) == whole);
    CHECK(range_of(memory.data() + size / 2) == whole);
    CHECK(range_of(memory.data() + size - 1) == whole);
    CHECK(cuMemGetAddressRange(nullptr, nullptr, whole.begin + size) == CUDA_ERROR_NOT_FOUND);
  }
}

TEST_CASE("the driver's contexts are a stack of each thread, and set the device", "[neighbours]") {
  const auto device_of_runtime = [] {
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    return device;
  };
  std::thread([&] {
    CHECK(cudaSetDevice(0) == cudaSuccess);
    const CUcontext first = current();
    CUcontext second = nullptr, popped = nullptr;
    REQUIRE(cuDevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
    CHECK(second != first);
    REQUIRE(cuCtxPushCurrent(second) == CUDA_SUCCESS);
    CHECK(current() == second);
    CHECK(device_of_runtime() == 1);
    REQUIRE(cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    CHECK(popped == second);
    CHECK(current() == first);
    CHECK(device_of_runtime() == 0);
    REQUIRE(cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    CHECK(popped == first);
    CHECK(current() == nullptr);
    CUevent event = nullptr;
    CHECK(cuEventCreate(&event, 0) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxPopCurrent(&popped) == CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

TEST_CASE("the driver tells memory of the host from a device's", "[neighbours]") {
  DeviceMemory<char> device(16);
  PinnedMemory<char> pinned(16);
  char pageable = 0;
  const auto type_of = [](const void* pointer) {
    CUmemorytype type{};
    CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void* data = &type;
    CHECK(cuPointerGetAttributes(1, &attribute, &data, address(pointer)) == CUDA_SUCCESS);
    return type;
  };
  CHECK(type_of(device.data()) == CU_MEMORYTYPE_DEVICE);
  CHECK(type_of(pinned.data()) == CU_MEMORYTYPE_HOST);
  CHECK(type_of(&pageable) == CUmemorytype{});
  int ordinal = -1;
  CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address(&pageable)) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cudaGetLastError() == cudaSuccess);  // A failure of the driver is none of the runtime.
}
