// SPDX-License-Identifier: Apache-2.0

// Extents beyond all memory.

#include <cstdint>
#include <limits>
#include <vector>

#include "support/catch.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"

using namespace penstock::test;

// No sentence of the documentation: an extent beyond all memory lies in no allocation, also where
// the number of its bytes does not fit 64 bits. On an H200 it was seen: CUDA 13.0 queues some of
// these calls, and the device then fails with cudaErrorIllegalAddress for good.
TEST_CASE("copies and fills refuse an extent that no memory has", "[emulation][copy][stricter]") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  constexpr std::size_t pitch = 16, too_high = (std::size_t{1} << 60) + 1;  // rows of 16: 2^64 + 16
  const PinnedMemory<std::uint8_t> host(pitch, 1);
  const DeviceMemory<std::uint8_t> device(pitch);
  const TestStream stream;
  const cudaMemcpyKind kind = GENERATE(cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost);
  const bool in = kind == cudaMemcpyHostToDevice;
  void* const to = in ? device.data() : host.data();
  const void* const from = in ? host.data() : device.data();
  const std::size_t width = GENERATE(as<std::size_t>{}, 1, 16);
  CHECK(cudaMemcpy2D(to, pitch, from, pitch, width, too_high, kind) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy2DAsync(to, pitch, from, pitch, width, too_high, kind, stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpy2DAsync(to, pitch, from, pitch, width, most, kind, stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpy(to, from, most, kind) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(to, from, most, kind, stream) == cudaErrorInvalidValue);
  CHECK(cudaMemset(device.data(), 0, most) == cudaErrorInvalidValue);
  CHECK(cudaMemsetAsync(device.data(), 0, most - 8, stream) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(device.read() == std::vector<std::uint8_t>(pitch, 0));
  CHECK(host.all(1));
}
