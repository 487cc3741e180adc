// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "fake_cupti.hpp"

namespace {

std::atomic<CUresult> answer{CUDA_SUCCESS};
std::atomic<int> waits{0};
std::atomic<std::size_t> taken{0};
std::atomic<int> questions{0};
std::mutex mutex;
std::vector<CUstream> asked_streams;  // guarded by it

CUcontext context() {
  static int object = 0;
  return reinterpret_cast<CUcontext>(&object);
}

}  // namespace

namespace penstock::test::fake {

void set_driver(CUresult result) {
  answer = result;
}

int synchronisations() {
  return waits;
}

void set_memory_taken(std::size_t bytes) {
  taken = bytes;
}

int memory_questions() {
  return questions;
}

std::vector<CUstream> take_asked_streams() {
  const std::lock_guard lock(mutex);
  return std::exchange(asked_streams, {});
}

}  // namespace penstock::test::fake

// Only what the backend looks up.
extern "C" {

CUresult cuInit(unsigned) {
  return answer;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "no CUDA-capable device is detected";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 2;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* bus, int size, CUdevice) {
  std::strncpy(bus, "0000:0f:00.0", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
/// Device 0 has a context.
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = device == 0 ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* retained, CUdevice) {
  *retained = context();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext) {
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext*) {
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* current) {
  *current = nullptr;
  return CUDA_SUCCESS;
}
/// As the real one: its callbacks come, to a backend that must know them as its own.
CUresult cuCtxSynchronize() {
  ++waits;
  penstock::test::fake::driver_call(CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) {
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ++questions;
  *total = std::size_t{1} << 40;
  *free = *total - taken;
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* of_stream) {
  const std::lock_guard lock(mutex);
  asked_streams.push_back(stream);
  *of_stream = context();
  return CUDA_SUCCESS;
}

}  // extern "C"
