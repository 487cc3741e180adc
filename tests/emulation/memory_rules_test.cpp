// SPDX-License-Identifier: Apache-2.0

// The rules of memory: allocation, page-locking, and what the runtime knows about a pointer.
// Functions: cudaMalloc*, cudaFree*, cudaHost*, cudaPointerGetAttributes, cudaMemGetInfo.

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

cudaPointerAttributes attributes_of(const void* pointer) {
  cudaPointerAttributes attributes{};
  REQUIRE_CUDA(cudaPointerGetAttributes(&attributes, pointer));
  return attributes;
}

bool managed_memory_is_supported() {
  int supported = 0;
  REQUIRE_CUDA(cudaDeviceGetAttribute(&supported, cudaDevAttrManagedMemory, 0));
  return supported != 0;
}

}  // namespace

// CUDA C++ Programming Guide, Device Memory Accesses: "Any address of a variable residing in global
// memory or returned by one of the memory allocation routines from the driver or runtime API is
// always aligned to at least 256 bytes."
TEST_CASE("device memory is aligned to 256 bytes", "[rules][memory]") {
  const std::size_t size = GENERATE(as<std::size_t>{}, 1, 3, 255, 257, 100'000);
  const DeviceMemory<std::uint8_t> first(size), second(size);
  CHECK(reinterpret_cast<std::uintptr_t>(first.data()) % 256 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(second.data()) % 256 == 0);
}

// CUDA Runtime API, Memory Management, cudaMalloc: "cudaMalloc() returns cudaErrorMemoryAllocation
// in case of failure."
TEST_CASE("too large an allocation is an error that passes", "[rules][memory]") {
  constexpr std::size_t too_large = std::size_t{1} << 46;  // 64 TiB
  void* pointer = nullptr;
  CHECK(cudaMalloc(&pointer, too_large) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaMallocHost(&pointer, too_large) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  const DeviceMemory<std::uint8_t> small(64);
  CHECK(cudaGetLastError() == cudaSuccess);
}

// CUDA Runtime API, Memory Management, cudaFree: "If devPtr is 0, no operation is performed."
TEST_CASE("freeing a null pointer does nothing", "[rules][memory]") {
  CHECK_CUDA(cudaFree(nullptr));
}

// CUDA Runtime API, Memory Management, cudaFree: "If cudaFree(devPtr) has already been called
// before, an error is returned."
TEST_CASE("device memory cannot be freed twice", "[rules][memory]") {
  void* pointer = nullptr;
  REQUIRE_CUDA(cudaMalloc(&pointer, 64));
  REQUIRE_CUDA(cudaFree(pointer));
  CHECK(cudaFree(pointer) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA Runtime API, Memory Management, cudaFreeHost: "Frees the memory space pointed to by hostPtr,
// which must have been returned by a previous call to cudaMallocHost() or cudaHostAlloc()."
TEST_CASE("cudaFreeHost takes page-locked allocations only", "[rules][memory]") {
  std::vector<std::uint8_t> pageable(64);
  CHECK(cudaFreeHost(pageable.data()) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA Runtime API, Memory Management, cudaMemGetInfo: "Returns in *total the total amount of
// memory available to the current context. Returns in *free the amount of memory on the device that
// is free".
TEST_CASE("free memory is a part of the total", "[rules][memory]") {
  std::size_t free = 0, total = 0;
  REQUIRE_CUDA(cudaMemGetInfo(&free, &total));
  CHECK(free > 0);
  CHECK(free <= total);
}

// CUDA Runtime API, Memory Management, cudaHostAlloc: "All of these flags are orthogonal to one
// another: a developer may allocate memory that is portable, mapped and/or write-combined with no
// restrictions."
TEST_CASE("page-locked memory of every kind can be copied", "[rules][memory]") {
  const unsigned flags =
      GENERATE(as<unsigned>{}, cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped,
               cudaHostAllocWriteCombined, cudaHostAllocPortable | cudaHostAllocMapped);
  const PinnedMemory<std::uint8_t> host(64, 5, flags);
  const DeviceMemory<std::uint8_t> device(64);
  REQUIRE_CUDA(cudaMemcpy(device.data(), host.data(), 64, cudaMemcpyHostToDevice));
  CHECK(device.read() == std::vector<std::uint8_t>(64, 5));
  // cudaHostGetFlags: "Passes back flags used to allocate pinned host memory". The driver adds what
  // unified addressing implies (portable, mapped), so: at least these.
  unsigned found = 0;
  REQUIRE_CUDA(cudaHostGetFlags(&found, host.data()));
  CHECK((found & flags) == flags);
}

// The same description lists every flag.
TEST_CASE("unknown flags of page-locked memory are an error", "[rules][memory]") {
  void* pointer = nullptr;
  CHECK(cudaHostAlloc(&pointer, 64, 0x100) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA Runtime API, Memory Management, cudaHostRegister: "Page-locks the memory range specified by
// ptr and size"; cudaErrorHostMemoryAlreadyRegistered is among its answers.
TEST_CASE("host memory is registered once and unregistered once", "[rules][memory]") {
  std::vector<std::uint8_t> memory(10'000);
  REQUIRE_CUDA(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault));
  CHECK(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault) ==
        cudaErrorHostMemoryAlreadyRegistered);
  REQUIRE_CUDA(cudaHostUnregister(memory.data()));
  CHECK(cudaHostUnregister(memory.data()) == cudaErrorHostMemoryNotRegistered);
  CHECK(cudaGetLastError() == cudaErrorHostMemoryNotRegistered);
  // It can be registered again.
  REQUIRE_CUDA(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable));
  REQUIRE_CUDA(cudaHostUnregister(memory.data()));
}

// CUDA Runtime API, Memory Management, cudaHostRegister: size 0 is no range.
TEST_CASE("an empty range cannot be registered", "[rules][memory]") {
  std::vector<std::uint8_t> memory(64);
  CHECK(cudaHostRegister(memory.data(), 0, cudaHostRegisterDefault) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

// CUDA Runtime API, Memory Management, cudaHostUnregister: "The base address must be the same one
// specified to cudaHostRegister()."
TEST_CASE("a range is unregistered by its base address", "[rules][memory]") {
  std::vector<std::uint8_t> memory(10'000);
  REQUIRE_CUDA(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault));
  CHECK(cudaHostUnregister(memory.data() + 1) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
  CHECK_CUDA(cudaHostUnregister(memory.data()));
}

// CUDA Runtime API, Unified Addressing, cudaPointerGetAttributes: "In CUDA 11.0 forward passing
// host pointer will return cudaMemoryTypeUnregistered in cudaPointerAttributes::type and call will
// return cudaSuccess."
TEST_CASE("ordinary host memory is unregistered", "[rules][memory]") {
  const std::vector<std::uint8_t> memory(64);
  CHECK(attributes_of(memory.data()).type == cudaMemoryTypeUnregistered);
}

// CUDA Runtime API, Unified Addressing, cudaPointerGetAttributes: "If ptr has memory type
// cudaMemoryTypeDevice then this identifies the device on which the memory referred to by ptr
// physically resides. ... If the memory referred to by ptr cannot be accessed directly by the host
// then this is NULL."
TEST_CASE("device memory is known by any pointer into it", "[rules][memory]") {
  const DeviceMemory<std::uint8_t> memory(1000);
  const std::size_t offset = GENERATE(as<std::size_t>{}, 0, 1, 999);
  const auto attributes = attributes_of(memory.data() + offset);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  CHECK(attributes.devicePointer == memory.data() + offset);
  CHECK(attributes.hostPointer == nullptr);
}

// CUDA C++ Programming Guide, Unified Virtual Address Space: "Allocations via cudaHostAlloc() are
// automatically portable across all the devices for which the unified address space is used, and
// pointers returned by cudaHostAlloc() can be used directly from within kernels running on these
// devices".
TEST_CASE("page-locked memory has one address for host and device", "[rules][memory]") {
  const PinnedMemory<std::uint8_t> memory(1000);
  const std::size_t offset = GENERATE(as<std::size_t>{}, 0, 1, 999);
  const auto attributes = attributes_of(memory.data() + offset);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(attributes.hostPointer == memory.data() + offset);
  CHECK(attributes.devicePointer == memory.data() + offset);
  void* on_device = nullptr;
  REQUIRE_CUDA(cudaHostGetDevicePointer(&on_device, memory.data(), 0));
  CHECK(on_device == memory.data());
}

// CUDA Runtime API, Memory Management, cudaHostRegister: "This memory range also is added to the
// same tracking mechanism as cudaHostAlloc()".
TEST_CASE("registered memory is page-locked memory while it is registered", "[rules][memory]") {
  std::vector<std::uint8_t> memory(10'000);
  REQUIRE_CUDA(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault));
  CHECK(attributes_of(memory.data()).type == cudaMemoryTypeHost);
  CHECK(attributes_of(memory.data() + 9'999).type == cudaMemoryTypeHost);
  CHECK(attributes_of(memory.data() + 9'999).hostPointer == memory.data() + 9'999);
  REQUIRE_CUDA(cudaHostUnregister(memory.data()));
  CHECK(attributes_of(memory.data()).type == cudaMemoryTypeUnregistered);
}

// CUDA Runtime API, Memory Management, cudaMallocManaged: "The pointer is valid on the CPU and on
// all GPUs in the system that support managed memory."
TEST_CASE("managed memory is one memory for host and device", "[rules][memory]") {
  if (!managed_memory_is_supported()) return;
  void* pointer = nullptr;
  REQUIRE_CUDA(cudaMallocManaged(&pointer, 64, cudaMemAttachGlobal));
  const auto attributes = attributes_of(pointer);
  CHECK(attributes.type == cudaMemoryTypeManaged);
  CHECK(attributes.hostPointer == pointer);
  CHECK(attributes.devicePointer == pointer);
  CHECK_CUDA(cudaMemset(pointer, 7, 64));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK(int{static_cast<const std::uint8_t*>(pointer)[63]} == 7);
  CHECK_CUDA(cudaFree(pointer));
}

// No sentence of the documentation: "If size is 0, cudaMallocManaged returns
// cudaErrorInvalidValue", it says, and CUDA 13.0 on a GPU does not.
TEST_CASE("an allocation of no bytes succeeds and is null", "[rules][memory]") {
  int anything = 0;
  void* pointer = &anything;
  SECTION("cudaMalloc") {
    REQUIRE_CUDA(cudaMalloc(&pointer, 0));
  }
  SECTION("cudaMallocHost") {
    REQUIRE_CUDA(cudaMallocHost(&pointer, 0));
  }
  SECTION("cudaHostAlloc") {
    REQUIRE_CUDA(cudaHostAlloc(&pointer, 0, cudaHostAllocDefault));
  }
  SECTION("cudaMallocManaged") {
    if (!managed_memory_is_supported()) return;
    REQUIRE_CUDA(cudaMallocManaged(&pointer, 0, cudaMemAttachGlobal));
  }
  CHECK(pointer == nullptr);
}

// CUDA Runtime API, Memory Management, cudaMallocPitch: "The function may pad the allocation to
// ensure that corresponding pointers in any given row will continue to meet the alignment
// requirements for coalescing as the address is updated from row to row."
TEST_CASE("pitched memory holds its rows at its pitch", "[rules][memory]") {
  constexpr std::size_t width = 100, height = 7;
  void* data = nullptr;
  std::size_t pitch = 0;
  REQUIRE_CUDA(cudaMallocPitch(&data, &pitch, width, height));
  CHECK(pitch >= width);
  CHECK(pitch % 32 == 0);
  std::vector<std::uint8_t> host(width * height), back(width * height);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::uint8_t>(i % 251);
  REQUIRE_CUDA(
      cudaMemcpy2D(data, pitch, host.data(), width, width, height, cudaMemcpyHostToDevice));
  REQUIRE_CUDA(
      cudaMemcpy2D(back.data(), width, data, pitch, width, height, cudaMemcpyDeviceToHost));
  CHECK(back == host);
  CHECK_CUDA(cudaFree(data));
}

// CUDA Runtime API, Memory Management, cudaMalloc3D: "The returned cudaPitchedPtr contains
// additional fields xsize and ysize, the logical width and height of the allocation".
TEST_CASE("a box of memory is rows at a pitch", "[rules][memory]") {
  cudaPitchedPtr box{};
  REQUIRE_CUDA(cudaMalloc3D(&box, cudaExtent{100, 5, 3}));
  CHECK(box.pitch >= 100);
  CHECK(box.xsize == 100);
  CHECK(box.ysize == 5);
  CHECK_CUDA(cudaMemset(box.ptr, 1, box.pitch * 5 * 3));
  CHECK_CUDA(cudaFree(box.ptr));
}

// cudaErrorInvalidValue and cudaErrorMemoryAllocation are among its answers.
TEST_CASE("rows wider than any pitch are an error", "[rules][memory]") {
  void* data = nullptr;
  std::size_t pitch = 0;
  CHECK(cudaMallocPitch(&data, &pitch, std::size_t{1} << 40, 1) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
  CHECK(cudaMallocPitch(&data, &pitch, std::size_t{1} << 20, ~std::size_t{0} >> 18) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
}

// CUDA Runtime API, Stream Management, cudaStreamAttachMemAsync: "Enqueues an operation in stream
// to specify stream association of length bytes of memory starting from devPtr. This function is a
// stream-ordered operation". "devPtr must point to ... memory declared using __managed__ or
// allocated with cudaMallocManaged", and its length be "either zero ... or must match the size of
// the original allocation".
TEST_CASE("managed memory is attached whole, in the order of the stream", "[rules][memory]") {
  const TestStream stream;
  void *managed = nullptr, *device = nullptr;
  REQUIRE_CUDA(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal));
  REQUIRE_CUDA(cudaMalloc(&device, 4096));
  CHECK_CUDA(cudaStreamAttachMemAsync(stream, managed, 0, cudaMemAttachSingle));
  CHECK_CUDA(cudaStreamAttachMemAsync(stream, managed, 4096, cudaMemAttachGlobal));
  CHECK(cudaStreamAttachMemAsync(stream, device, 0, cudaMemAttachGlobal) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
  CHECK(cudaStreamAttachMemAsync(stream, managed, 0, 64) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK_CUDA(cudaFree(managed));
  CHECK_CUDA(cudaFree(device));
}
