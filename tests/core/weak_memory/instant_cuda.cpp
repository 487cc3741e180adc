// SPDX-License-Identifier: Apache-2.0

// A CUDA runtime on the machine of execution.hpp: the calls that a pipeline makes. Work is done by
// the thread that queues it, before the call returns; that an event was reached may come to light
// later. So every order that the host's threads owe each other is asked for, and none of the
// device's: those are the emulated runtime's to check.

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "execution.hpp"
#include "instant_cuda.hpp"

using penstock::test::weak::Access;
using penstock::test::weak::Execution;

namespace penstock::test::weak {

namespace {

std::map<std::string, int> calls_until_failure;  // 0: every call fails

/// Any call: another thread may go on, and it may be the one that fails.
cudaError_t call(const char* function) {
  if (Execution::current() == nullptr) return cudaSuccess;
  Execution::current()->step();
  const auto left = calls_until_failure.find(function);
  if (left == calls_until_failure.end()) return cudaSuccess;
  if (left->second != 0) {
    if (--left->second != 0) return cudaSuccess;
    calls_until_failure.erase(left);
  }
  return cudaErrorInvalidValue;
}

template <class Handle>
Handle new_handle() {
  return reinterpret_cast<Handle>(new char);
}
template <class Handle>
void delete_handle(Handle handle) {
  delete reinterpret_cast<char*>(handle);
}

cudaError_t allocate(void** memory, std::size_t bytes, cudaError_t status) {
  if (status == cudaSuccess) *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return status;
}

}  // namespace

void fail_call(const std::string& function, int nth) {
  calls_until_failure[function] = nth;
}

void fail_no_calls() {
  calls_until_failure.clear();
}

void note_access(const void* memory, Access access) {
  Execution& execution = *Execution::current();
  execution.note(execution.accesses_of(memory), access);
}

}  // namespace penstock::test::weak

using namespace penstock::test::weak;

extern "C" {

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return allocate(memory, bytes, call("cudaMalloc"));
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return allocate(memory, bytes, call("cudaHostAlloc"));
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return call("cudaFree");
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return call("cudaFreeHost");
}
/// Of an upstream's memory, which no scenario has.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  *attributes = {};
  return call("cudaPointerGetAttributes");
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  const cudaError_t status = call("cudaMemcpyAsync");
  if (status != cudaSuccess) return status;
  note_access(from, Access::read);
  note_access(to, Access::write);
  std::memcpy(to, from, bytes);
  return status;
}

cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t) {
  const cudaError_t status = call("cudaMemsetAsync");
  if (status != cudaSuccess) return status;
  note_access(at, Access::write);
  std::memset(at, value, bytes);
  return status;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new_handle<cudaStream_t>();
  return call("cudaStreamCreateWithPriority");
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete_handle(stream);
  return call("cudaStreamDestroy");
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = 0;
  return call("cudaMemGetInfo");
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) {
  *device = 0;
  return call("cudaStreamGetDevice");
}
cudaError_t cudaStreamGetId(cudaStream_t, unsigned long long* id) {
  *id = 1;
  return call("cudaStreamGetId");
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return call("cudaStreamIsCapturing");
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return call("cudaStreamSynchronize");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return call("cudaStreamWaitEvent");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new_handle<cudaEvent_t>();
  return call("cudaEventCreateWithFlags");
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete_handle(event);
  return call("cudaEventDestroy");
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  note_access(event, Access::write);
  return call("cudaEventRecord");
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return call("cudaEventSynchronize");
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  const cudaError_t status = call("cudaEventQuery");
  return Execution::current()->once_in(3) ? cudaErrorNotReady : status;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = 0;
  note_access(from, Access::read);
  note_access(to, Access::read);
  return call("cudaEventElapsedTime");
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return call("cudaGetDevice");
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return call("cudaGetDeviceCount");
}
cudaError_t cudaDeviceGetPCIBusId(char* bus_id, int bytes, int) {
  std::strncpy(bus_id, "none", static_cast<std::size_t>(bytes));
  return call("cudaDeviceGetPCIBusId");
}
cudaError_t cudaSetDevice(int) {
  return call("cudaSetDevice");
}
cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize");
}
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) {
  return call("cudaHostRegister");
}
cudaError_t cudaHostUnregister(void*) {
  return call("cudaHostUnregister");
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return call("cudaThreadExchangeStreamCaptureMode");
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
  return "an error";
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error";
}

}  // extern "C"
