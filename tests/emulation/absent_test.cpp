// SPDX-License-Identifier: Apache-2.0

// What CUDA has and the emulation does not, where a program can ask for it: the answer is an error.
// A function that does not exist is a link error; absent_functions.txt has those.

#include <cstdint>
#include <vector>

#include "support/catch.hpp"
#include "support/cuda_version.hpp"
#include "support/graphs.hpp"
#include "support/handles.hpp"
#include "support/memory.hpp"
#include "support/refused.hpp"

using namespace penstock::test;

namespace {

constexpr std::size_t kAbsentBytes = 4096;

}  // namespace

// CUDA can page-lock memory of a device of another maker, and memory that may only be read: both
// are cudaErrorNotSupported here.
TEST_CASE("memory of other devices, and memory that is only read, is not registered",
          "[emulation][memory][absent]") {
  std::vector<std::uint8_t> memory(kAbsentBytes);
  for (const unsigned flags : {cudaHostRegisterIoMemory, cudaHostRegisterReadOnly})
    CHECK(refused(cudaHostRegister(memory.data(), kAbsentBytes, flags), cudaErrorNotSupported));
}

// CUDA copies from arrays and to them: a handle of one is cudaErrorInvalidValue here.
TEST_CASE("a box is not copied from an array or to one", "[emulation][copy][absent]") {
  const DeviceMemory<std::uint8_t> device(kAbsentBytes);
  std::uint8_t none = 0;
  cudaMemcpy3DParms copy{};
  copy.srcArray = reinterpret_cast<cudaArray_t>(&none);
  copy.dstPtr = {device.data(), 64, 64, 64};
  copy.extent = {1, 1, 1};
  copy.kind = cudaMemcpyDeviceToDevice;
  CHECK(refused(cudaMemcpy3D(&copy), cudaErrorInvalidValue));
}

// CUDA launches such graphs from kernels: the flag is cudaErrorNotSupported here.
TEST_CASE("graphs are not instantiated for a launch by a device", "[emulation][graph][absent]") {
  const TestStream stream;
  const DeviceMemory<std::uint8_t> device(kAbsentBytes);
  const TestGraph graph = capture(stream, [&] { fill_async(device, 0, stream); });
  cudaGraphExec_t exec = nullptr;
  CHECK(refused(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch),
                cudaErrorNotSupported));
}

// A GPU has about 140 attributes: one that is missing here is cudaErrorInvalidValue.
TEST_CASE("attributes that are about kernels and textures only are missing",
          "[emulation][device][absent]") {
  int value = 0;
  CHECK(refused(cudaDeviceGetAttribute(&value, cudaDevAttrMaxTexture1DWidth, 0),
                cudaErrorInvalidValue));
}
