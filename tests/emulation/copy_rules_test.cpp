// SPDX-License-Identifier: Apache-2.0

// The rules of copies and fills: which call blocks, when memory is read and written,
// directions, and two dimensions. Functions: cudaMemcpy*, cudaMemset*.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

namespace {

using Bytes = std::vector<std::uint8_t>;

// Above the 64 KiB up to which a driver may take a small copy's bytes along with the command.
constexpr std::size_t large = std::size_t{1} << 20;

Bytes counting(std::size_t size) {
  Bytes bytes(size);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}

}  // namespace

// CUDA Runtime API, API synchronization behavior, Memcpy, Asynchronous: "For all other transfers,
// the function should be fully asynchronous." (Page-locked host memory to the device.)
TEST_CASE("a queued copy from page-locked memory reads it when its turn comes", "[rules][copy]") {
  const PinnedMemory<std::uint8_t> source(large, 1);
  const DeviceMemory<std::uint8_t> device(large);
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  copy_async(device, source, stream);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  source.set(2);
  gate.open_and_publish();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == Bytes(large, 2));
}

// The same sentence: the device to page-locked host memory.
TEST_CASE("a queued copy into page-locked memory writes it when its turn comes", "[rules][copy]") {
  const DeviceMemory<std::uint8_t> device(large);
  const PinnedMemory<std::uint8_t> host(large, 7);
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  copy_async(host, device, stream);
  CHECK(host.all(7));
  gate.open_and_publish();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(host.all(0));
}

// The same sentence, for memory that cudaHostRegister has page-locked: "This memory range also is
// added to the same tracking mechanism as cudaHostAlloc()".
TEST_CASE("copies of registered memory are asynchronous as well", "[rules][copy]") {
  Bytes source(large, 1);
  const DeviceMemory<std::uint8_t> device(large);
  const TestStream stream;
  REQUIRE_CUDA(cudaHostRegister(source.data(), large, cudaHostRegisterDefault));
  {
    Gate gate;
    gate.hold(stream);
    CHECK_CUDA(
        cudaMemcpyAsync(device.data(), source.data(), large, cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    std::fill(source.begin(), source.end(), std::uint8_t{2});
    gate.open_and_publish();
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  REQUIRE_CUDA(cudaHostUnregister(source.data()));
  CHECK(device.read() == Bytes(large, 2));
}

// CUDA Runtime API, API synchronization behavior, Memcpy, Asynchronous: "If pageable memory must
// first be staged to pinned memory, the driver may synchronize with the stream and stage the copy
// into pinned memory." Either way the stream's order holds.
TEST_CASE("asynchronous copies of pageable memory keep the order of the stream", "[rules][copy]") {
  const Bytes source = counting(large);
  Bytes before(large), after(large);
  const DeviceMemory<std::uint8_t> device(large);
  const TestStream stream;
  fill_async(device, 9, stream);
  REQUIRE_CUDA(
      cudaMemcpyAsync(before.data(), device.data(), large, cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(
      cudaMemcpyAsync(device.data(), source.data(), large, cudaMemcpyHostToDevice, stream));
  REQUIRE_CUDA(cudaMemcpyAsync(after.data(), device.data(), large, cudaMemcpyDeviceToHost, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(before == Bytes(large, 9));
  CHECK(after == source);
}

// CUDA Runtime API, API synchronization behavior, Memcpy, Synchronous: "For transfers from pageable
// host memory to device memory ... The function will return once the pageable buffer has been
// copied to the staging memory for DMA transfer to device memory".
TEST_CASE("a synchronous copy has read its pageable source when it returns", "[rules][copy]") {
  const std::size_t bytes = GENERATE(as<std::size_t>{}, 256, large);
  Bytes source = counting(bytes);
  const Bytes original = source;
  const DeviceMemory<std::uint8_t> device(bytes);
  REQUIRE_CUDA(cudaMemcpy(device.data(), source.data(), bytes, cudaMemcpyHostToDevice));
  std::fill(source.begin(), source.end(), std::uint8_t{0});
  CHECK(device.read() == original);
}

// The same list: "For transfers from pinned host memory to device memory, the function is
// synchronous with respect to the host."
TEST_CASE("a synchronous copy has read its page-locked source when it returns", "[rules][copy]") {
  const PinnedMemory<std::uint8_t> source(large, 1);
  const DeviceMemory<std::uint8_t> device(large);
  REQUIRE_CUDA(cudaMemcpy(device.data(), source.data(), large, cudaMemcpyHostToDevice));
  source.set(2);
  CHECK(device.read() == Bytes(large, 1));
}

// The same list: "For transfers from device to either pageable or pinned host memory, the function
// returns only once the copy has completed."
TEST_CASE("a synchronous copy to the host has completed when it returns", "[rules][copy]") {
  const DeviceMemory<std::uint8_t> device(large);
  const PinnedMemory<std::uint8_t> pinned(large);
  Bytes pageable(large);
  REQUIRE_CUDA(cudaMemset(device.data(), 3, large));
  REQUIRE_CUDA(cudaMemcpy(pinned.data(), device.data(), large, cudaMemcpyDeviceToHost));
  CHECK(pinned.all(3));
  REQUIRE_CUDA(cudaMemcpy(pageable.data(), device.data(), large, cudaMemcpyDeviceToHost));
  CHECK(pageable == Bytes(large, 3));
}

// The same list: "For transfers from device memory to device memory, no host-side synchronization
// is performed."
TEST_CASE("a copy within the device does not block the host", "[rules][copy]") {
  const DeviceMemory<std::uint8_t> from(large), to(large);
  const TestStream blocking(cudaStreamDefault);
  {
    Gate gate;
    gate.hold(blocking);
    fill_async(from, 4, blocking);
    REQUIRE_CUDA(cudaMemcpy(to.data(), from.data(), large, cudaMemcpyDeviceToDevice));
    CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady);
  }
  CHECK(to.read() == Bytes(large, 4));
}

// The same list: "For transfers from any host memory to any host memory, the function is fully
// synchronous with respect to the host." It stands in the list for asynchronous copies as well.
TEST_CASE("a copy from host to host has completed when it returns", "[rules][copy]") {
  const std::size_t bytes = GENERATE(as<std::size_t>{}, 256, large);
  const Bytes source = counting(bytes);
  Bytes to(bytes);
  const TestStream stream;
  SECTION("cudaMemcpy") {
    REQUIRE_CUDA(cudaMemcpy(to.data(), source.data(), bytes, cudaMemcpyHostToHost));
  }
  SECTION("cudaMemcpyAsync") {
    REQUIRE_CUDA(cudaMemcpyAsync(to.data(), source.data(), bytes, cudaMemcpyHostToHost, stream));
  }
  CHECK(to == source);
}

// CUDA Runtime API, API synchronization behavior, Memset: "The cudaMemset functions are
// asynchronous with respect to the host except when the target memory is pinned host memory."
TEST_CASE("a fill of device memory does not block the host", "[rules][copy]") {
  const DeviceMemory<std::uint8_t> device(large);
  const TestStream blocking(cudaStreamDefault);
  {
    Gate gate;
    gate.hold(blocking);
    REQUIRE_CUDA(cudaMemset(device.data(), 6, large));
    CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady);
  }
  CHECK(device.read() == Bytes(large, 6));
}

// The same sentence: "... except when the target memory is pinned host memory."
TEST_CASE("a fill of page-locked memory has completed when it returns", "[rules][copy]") {
  const PinnedMemory<std::uint8_t> host(large);
  REQUIRE_CUDA(cudaMemset(host.data(), 6, large));
  CHECK(host.all(6));
}

// The same section: "The Async versions are always asynchronous with respect to the host."
TEST_CASE("a queued fill happens when its turn comes", "[rules][copy]") {
  const PinnedMemory<std::uint8_t> host(large, 1);
  const TestStream stream;
  Gate gate;
  gate.hold(stream);
  REQUIRE_CUDA(cudaMemsetAsync(host.data(), 6, large, stream));
  CHECK(host.all(1));
  gate.open_and_publish();
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  CHECK(host.all(6));
}

// CUDA Runtime API, Memory Management, cudaMemset: "Fills the first count bytes of the memory area
// pointed to by devPtr with the constant byte value value."
TEST_CASE("a fill touches its bytes and no others", "[rules][copy]") {
  const DeviceMemory<std::uint8_t> device(16);
  REQUIRE_CUDA(cudaMemset(device.data() + 4, 0x1ff, 3));  // a byte value: 0xff
  Bytes expected(16, 0);
  std::fill_n(expected.begin() + 4, 3, std::uint8_t{0xff});
  CHECK(device.read() == expected);
}

// CUDA Runtime API, Memory Management, cudaMemcpy: "Passing cudaMemcpyDefault is recommended, in
// which case the type of transfer is inferred from the pointer values."
TEST_CASE("cudaMemcpyDefault finds the direction", "[rules][copy]") {
  const Bytes source = counting(256);
  const PinnedMemory<std::uint8_t> pinned(256);
  const DeviceMemory<std::uint8_t> first(256), second(256);
  Bytes result(256);
  const TestStream stream(cudaStreamDefault);  // behind the first copy, in the legacy stream
  REQUIRE_CUDA(cudaMemcpy(first.data(), source.data(), 256, cudaMemcpyDefault));
  REQUIRE_CUDA(cudaMemcpyAsync(second.data(), first.data(), 256, cudaMemcpyDefault, stream));
  REQUIRE_CUDA(cudaMemcpyAsync(pinned.data(), second.data(), 256, cudaMemcpyDefault, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
  REQUIRE_CUDA(cudaMemcpy(result.data(), pinned.data(), 256, cudaMemcpyDefault));
  CHECK(result == source);
}

// CUDA Runtime API, Memory Management, cudaMemcpy: "kind specifies the direction of the copy, and
// must be one of cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
// cudaMemcpyDeviceToDevice, or cudaMemcpyDefault."
TEST_CASE("an unknown direction is an error", "[rules][copy]") {
  const DeviceMemory<std::uint8_t> device(16);
  const PinnedMemory<std::uint8_t> host(16);
  const auto unknown = static_cast<cudaMemcpyKind>(7);
  CHECK(cudaMemcpy(device.data(), host.data(), 16, unknown) == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaGetLastError() == cudaErrorInvalidMemcpyDirection);
}

// CUDA C++ Programming Guide, Unified Virtual Address Space: interior pointers are pointers too.
TEST_CASE("copies begin and end anywhere in an allocation", "[rules][copy]") {
  const Bytes source = counting(256);
  const DeviceMemory<std::uint8_t> device(256);
  REQUIRE_CUDA(cudaMemcpy(device.data() + 100, source.data() + 7, 50, cudaMemcpyHostToDevice));
  Bytes expected(256, 0);
  std::copy_n(source.begin() + 7, 50, expected.begin() + 100);
  CHECK(device.read() == expected);
  CHECK_CUDA(cudaMemcpy(device.data(), source.data(), 0, cudaMemcpyHostToDevice));
  CHECK(device.read() == expected);
}

// CUDA Runtime API, Memory Management, cudaMemcpy2D: "Copies a matrix (height rows of width bytes
// each) ... dpitch and spitch are the widths in memory in bytes of the 2D arrays pointed to by dst
// and src, including any padding added to the end of each row."
TEST_CASE("a copy in two dimensions leaves the padding alone", "[rules][copy]") {
  constexpr std::size_t width = 5, height = 3, source_pitch = 8, pitch = 6;
  const Bytes source = counting(source_pitch * height);
  const PinnedMemory<std::uint8_t> pinned(source_pitch * height);
  std::copy(source.begin(), source.end(), pinned.data());
  const DeviceMemory<std::uint8_t> device(pitch * height);
  const TestStream stream;
  Bytes expected(pitch * height, 0);
  for (std::size_t row = 0; row < height; ++row)
    for (std::size_t i = 0; i < width; ++i)
      expected[row * pitch + i] = source[row * source_pitch + i];

  SECTION("cudaMemcpy2D") {
    REQUIRE_CUDA(cudaMemcpy2D(device.data(), pitch, source.data(), source_pitch, width, height,
                              cudaMemcpyHostToDevice));
  }
  SECTION("cudaMemcpy2DAsync") {
    REQUIRE_CUDA(cudaMemcpy2DAsync(device.data(), pitch, pinned.data(), source_pitch, width, height,
                                   cudaMemcpyHostToDevice, stream));
  }
  CHECK(device.read() == expected);
}

// CUDA Runtime API, Memory Management, cudaMemcpy2D: "width must not exceed either dpitch or
// spitch."
TEST_CASE("a row cannot be wider than its pitch", "[rules][copy]") {
  const Bytes source(64);
  const DeviceMemory<std::uint8_t> device(64);
  CHECK(cudaMemcpy2D(device.data(), 8, source.data(), 16, 10, 2, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidPitchValue);
  CHECK(cudaMemcpy2D(device.data(), 16, source.data(), 8, 10, 2, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidPitchValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidPitchValue);
}

// CUDA Runtime API, Memory Management, cudaMemcpy3D: "The srcPos and dstPos fields are optional
// offsets into the source and destination objects", and "The extent field defines the dimensions of
// the transferred area in elements".
TEST_CASE("a box of bytes is copied out of another one", "[rules][copy]") {
  constexpr std::size_t source_pitch = 8, source_rows = 4, slices = 3;
  constexpr std::size_t pitch = 6, rows = 3;
  const cudaExtent box{4, 2, 2};
  const Bytes source = counting(source_pitch * source_rows * slices);
  const PinnedMemory<std::uint8_t> pinned(source.size());
  std::copy(source.begin(), source.end(), pinned.data());
  const DeviceMemory<std::uint8_t> device(pitch * rows * slices);
  Bytes expected(pitch * rows * slices, 0);
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y)
      for (std::size_t x = 0; x < box.width; ++x)
        expected[((z + 1) * rows + y + 1) * pitch + x + 2] =
            source[(z * source_rows + y + 2) * source_pitch + x + 3];
  cudaMemcpy3DParms copy{};
  copy.srcPos = {3, 2, 0};
  copy.dstPtr = {device.data(), pitch, pitch, rows};
  copy.dstPos = {2, 1, 1};
  copy.extent = box;
  copy.kind = cudaMemcpyHostToDevice;
  const TestStream stream;

  SECTION("cudaMemcpy3D") {
    copy.srcPtr = {const_cast<std::uint8_t*>(source.data()), source_pitch, source_pitch,
                   source_rows};
    REQUIRE_CUDA(cudaMemcpy3D(&copy));
  }
  SECTION("cudaMemcpy3DAsync") {
    copy.srcPtr = {pinned.data(), source_pitch, source_pitch, source_rows};
    Gate gate;
    gate.hold(stream);
    REQUIRE_CUDA(cudaMemcpy3DAsync(&copy, stream));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    gate.open();
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  SECTION("from a device, into a box of the host") {
    copy.srcPtr = {pinned.data(), source_pitch, source_pitch, source_rows};
    copy.kind = cudaMemcpyDefault;
    REQUIRE_CUDA(cudaMemcpy3DAsync(&copy, stream));
    Bytes back(pitch * rows * slices, 0);
    cudaMemcpy3DParms again{};
    again.srcPtr = copy.dstPtr;
    again.srcPos = again.dstPos = copy.dstPos;
    again.dstPtr = {back.data(), pitch, pitch, rows};
    again.extent = box;
    again.kind = cudaMemcpyDeviceToHost;
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
    REQUIRE_CUDA(cudaMemcpy3D(&again));
    CHECK(back == expected);
  }
  CHECK(device.read() == expected);
}

// The same: "The source object must entirely contain the region defined by srcPos and extent. The
// destination object must entirely contain the region defined by dstPos and extent."
TEST_CASE("a box that does not lie in its memory is not copied", "[rules][copy]") {
  const PinnedMemory<std::uint8_t> host(256);
  const DeviceMemory<std::uint8_t> device(256);
  cudaMemcpy3DParms copy{};
  copy.srcPtr = {host.data(), 8, 8, 4};
  copy.dstPtr = {device.data(), 8, 8, 4};
  copy.extent = {4, 2, 2};
  copy.kind = cudaMemcpyHostToDevice;
  REQUIRE_CUDA(cudaMemcpy3D(&copy));
  SECTION("to the right") {
    copy.srcPos = {5, 0, 0};
  }
  SECTION("below") {
    copy.dstPos = {0, 3, 0};
  }
  SECTION("a row wider than its pitch") {
    copy.extent.width = 9;
  }
  CHECK(cudaMemcpy3D(&copy) != cudaSuccess);
  CHECK(cudaGetLastError() != cudaSuccess);
}

// CUDA Runtime API, Memory Management, cudaMemset2D: "pitch is the width in bytes of the 2D array
// pointed to by devPtr, including any padding added to the end of each row."
TEST_CASE("a fill of rows leaves the padding alone", "[rules][copy]") {
  constexpr std::size_t pitch = 8, width = 5, height = 3;
  const DeviceMemory<std::uint8_t> device(pitch * (height + 1));
  const TestStream stream;
  SECTION("cudaMemset2D") {
    REQUIRE_CUDA(cudaMemset2D(device.data(), pitch, 7, width, height));
  }
  SECTION("cudaMemset2DAsync") {
    Gate gate;
    gate.hold(stream);
    REQUIRE_CUDA(cudaMemset2DAsync(device.data(), pitch, 7, width, height, stream));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    gate.open();
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  Bytes expected(pitch * (height + 1), 0);
  for (std::size_t i = 0; i < pitch * height; ++i)
    if (i % pitch < width) expected[i] = 7;
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(device.read() == expected);
}

// The same, cudaMemset3D: "The extents of the initialized region are specified as a width in bytes,
// a height in rows, and a depth in slices."
TEST_CASE("a fill of a box leaves the bytes around it alone", "[rules][copy]") {
  constexpr std::size_t pitch = 8, rows = 4, slices = 3;
  const cudaExtent box{5, 3, 2};
  const DeviceMemory<std::uint8_t> device(pitch * rows * slices);
  const cudaPitchedPtr memory{device.data(), pitch, pitch, rows};
  const TestStream stream;
  SECTION("cudaMemset3D") {
    REQUIRE_CUDA(cudaMemset3D(memory, 9, box));
  }
  SECTION("cudaMemset3DAsync") {
    REQUIRE_CUDA(cudaMemset3DAsync(memory, 9, box, stream));
    REQUIRE_CUDA(cudaStreamSynchronize(stream));
  }
  Bytes expected(pitch * rows * slices, 0);
  for (std::size_t z = 0; z < box.depth; ++z)
    for (std::size_t y = 0; y < box.height; ++y)
      for (std::size_t x = 0; x < box.width; ++x) expected[(z * rows + y) * pitch + x] = 9;
  REQUIRE_CUDA(cudaDeviceSynchronize());
  CHECK(device.read() == expected);
}

// cudaMemset2D and cudaMemset3D return cudaErrorInvalidValue.
TEST_CASE("rows that do not lie in their memory are not filled", "[rules][copy]") {
  const DeviceMemory<std::uint8_t> device(64);
  CHECK(cudaMemset2D(device.data(), 8, 1, 9, 2) == cudaErrorInvalidValue);
  CHECK(cudaMemset3D({device.data(), 8, 8, 4}, 1, {9, 2, 2}) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(device.read() == Bytes(64, 0));
  // "pitch: ... Unused if height is 1".
  CHECK_CUDA(cudaMemset2D(device.data(), 0, 1, 64, 1));
  CHECK_CUDA(cudaDeviceSynchronize());
  CHECK(device.read() == Bytes(64, 1));
}
