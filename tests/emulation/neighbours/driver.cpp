// SPDX-License-Identifier: Apache-2.0
//
// The calls of the CUDA driver that KvikIO looks up in libcuda.so.1, and that RMM's tests link,
// over the calls of the emulated runtime. Handles of streams and events, and the numbers of errors
// and attributes, are the same in both. It is for the tests of the neighbours alone, and not
// complete: the runtime is what is emulated, the driver is not.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

struct CUctx_st {
  int device;
};

namespace {

// A failed call of the driver is not the last error of the runtime.
CUresult result_of(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return static_cast<CUresult>(error);
}

CUcontext primary_context(int device) {
  static std::mutex mutex;
  static auto& contexts =
      *new std::unordered_map<int, CUctx_st>;  // It is used while the program ends, too.
  const std::lock_guard lock(mutex);
  return &contexts.try_emplace(device, CUctx_st{device}).first->second;
}

struct Pushed {
  CUcontext context;
  int device_before;  // the runtime's, which comes back when the context is popped
};
thread_local std::vector<Pushed> pushed;
// A thread that has called the runtime has the primary context of its device below those that it
// pushed, until it pops that too. The driver cannot see whether it has called the runtime, and
// takes it that it has.
thread_local bool has_primary = true;

CUresult push(CUcontext context) {
  int before = 0;
  if (const auto error = cudaGetDevice(&before); error != cudaSuccess) return result_of(error);
  if (const auto error = cudaSetDevice(context->device); error != cudaSuccess)
    return result_of(error);
  pushed.push_back({context, before});
  return CUDA_SUCCESS;
}

CUresult current_context(CUcontext& context) {
  int device = 0;
  if (!pushed.empty()) {
    context = pushed.back().context;
  } else if (!has_primary) {
    context = nullptr;
  } else if (const auto error = cudaGetDevice(&device); error != cudaSuccess) {
    return result_of(error);
  } else {
    context = primary_context(device);
  }
  return CUDA_SUCCESS;
}

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

CUresult attributes_of(CUdeviceptr address, cudaPointerAttributes& attributes) {
  return result_of(cudaPointerGetAttributes(&attributes, pointer(address)));
}

bool is_allocated(CUdeviceptr address) {
  cudaPointerAttributes attributes{};
  return attributes_of(address, attributes) == CUDA_SUCCESS &&
         attributes.type != cudaMemoryTypeUnregistered;
}

// The runtime does not tell where an allocation begins and ends. But a page that is in none follows
// each one: the search goes from page to page, and then halves the last one.
constexpr CUdeviceptr kPage = 4096;

CUdeviceptr first_byte(CUdeviceptr inside) {
  CUdeviceptr outside = inside;
  while (is_allocated(outside)) {
    inside = outside;
    outside -= kPage;
  }
  while (inside - outside > 1) {
    const CUdeviceptr middle = outside + (inside - outside) / 2;
    (is_allocated(middle) ? inside : outside) = middle;
  }
  return inside;
}

CUdeviceptr end_of(CUdeviceptr inside) {
  CUdeviceptr outside = inside;
  while (is_allocated(outside)) {
    inside = outside;
    outside += kPage;
  }
  while (outside - inside > 1) {
    const CUdeviceptr middle = inside + (outside - inside) / 2;
    (is_allocated(middle) ? inside : outside) = middle;
  }
  return outside;
}

CUresult write_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr address,
                         const cudaPointerAttributes& of) {
  const bool known = of.type != cudaMemoryTypeUnregistered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<CUmemorytype*>(data) = !known                          ? CUmemorytype{}
                                          : of.type == cudaMemoryTypeHost ? CU_MEMORYTYPE_HOST
                                                                          : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = known ? of.device : -2;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = known ? primary_context(of.device) : nullptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = known ? address : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      *static_cast<void**>(data) = of.hostPointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<bool*>(data) = of.type == cudaMemoryTypeManaged;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

cudaError_t copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, cudaMemcpyKind kind,
                 CUstream stream) {
  return cudaMemcpyAsync(pointer(to), pointer(from), bytes, kind, stream);
}

}  // namespace

// The headers of CUDA define most of these names as those of the newest version, such as
// cuMemHostRegister_v2.
extern "C" {

CUresult cuInit(unsigned) {
  int count = 0;
  return result_of(cudaGetDeviceCount(&count));
}
CUresult cuDriverGetVersion(int* version) {
  return result_of(cudaDriverGetVersion(version));
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = cudaGetErrorName(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  int count = 0;
  if (const auto error = cudaGetDeviceCount(&count); error != cudaSuccess) return result_of(error);
  if (ordinal < 0 || ordinal >= count) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  return result_of(cudaGetDeviceCount(count));
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return result_of(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = primary_context(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  return CUDA_SUCCESS;
}
#if CUDA_VERSION >= 13000
CUresult cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
#else
CUresult cuCtxCreate(CUcontext* context, unsigned, CUdevice device) {
#endif
  *context = new CUctx_st{device};
  return push(*context);
}
CUresult cuCtxDestroy(CUcontext context) {
  CUcontext popped = nullptr;
  if (!pushed.empty() && pushed.back().context == context) cuCtxPopCurrent(&popped);
  delete context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : push(context);
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (pushed.empty()) {
    if (!has_primary) return CUDA_ERROR_INVALID_CONTEXT;
    const auto error = context == nullptr ? CUDA_SUCCESS : current_context(*context);
    has_primary = error != CUDA_SUCCESS;
    return error;
  }
  const Pushed last = pushed.back();
  pushed.pop_back();
  if (context != nullptr) *context = last.context;
  return result_of(cudaSetDevice(last.device_before));
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  return current_context(*context);
}
CUresult cuCtxGetDevice(CUdevice* device) {
  CUcontext context = nullptr;
  if (const auto error = current_context(context); error != CUDA_SUCCESS) return error;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  return result_of(cudaHostAlloc(memory, bytes, flags));
}
CUresult cuMemFreeHost(void* memory) {
  return result_of(cudaFreeHost(memory));
}
CUresult cuMemHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  return result_of(cudaHostRegister(memory, bytes, flags));
}
CUresult cuMemHostUnregister(void* memory) {
  return result_of(cudaHostUnregister(memory));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return result_of(copy(to, from, bytes, cudaMemcpyDefault, stream));
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return result_of(cudaMemcpyAsync(pointer(to), from, bytes, cudaMemcpyHostToDevice, stream));
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return result_of(cudaMemcpyAsync(to, pointer(from), bytes, cudaMemcpyDeviceToHost, stream));
}
#if CUDA_VERSION >= 13000
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes,
                            std::size_t count, CUmemcpyAttributes*, std::size_t*, std::size_t,
                            CUstream stream) {
#elif CUDA_VERSION >= 12080
CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes,
                            std::size_t count, CUmemcpyAttributes*, std::size_t*, std::size_t,
                            std::size_t*, CUstream stream) {
#endif
#if CUDA_VERSION >= 12080
  if (stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const auto error = copy(to[i], from[i], bytes[i], cudaMemcpyDefault, stream);
    if (error != cudaSuccess) return result_of(error);
  }
  return CUDA_SUCCESS;
}
#endif

CUresult cuMemGetAddressRange(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr address) {
  if (!is_allocated(address)) return CUDA_ERROR_NOT_FOUND;
  const CUdeviceptr first = first_byte(address);
  if (begin != nullptr) *begin = first;
  if (bytes != nullptr) *bytes = end_of(address) - first;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  cudaPointerAttributes attributes{};
  if (const auto error = attributes_of(address, attributes); error != CUDA_SUCCESS) return error;
  if (attributes.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
  return write_attribute(data, attribute, address, attributes);
}
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  cudaPointerAttributes of{};
  if (const auto error = attributes_of(address, of); error != CUDA_SUCCESS) return error;
  for (unsigned i = 0; i < count; ++i) {
    const auto error = write_attribute(data[i], attributes[i], address, of);
    if (error != CUDA_SUCCESS) return error;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  if (pushed.empty() && !has_primary) return CUDA_ERROR_INVALID_CONTEXT;
  return result_of(cudaStreamCreateWithFlags(stream, flags));
}
CUresult cuStreamDestroy(CUstream stream) {
  return result_of(cudaStreamDestroy(stream));
}
CUresult cuStreamSynchronize(CUstream stream) {
  return result_of(cudaStreamSynchronize(stream));
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
  if (pushed.empty() && !has_primary) return CUDA_ERROR_INVALID_CONTEXT;
  return result_of(cudaEventCreateWithFlags(event, flags));
}
CUresult cuEventDestroy(CUevent event) {
  return result_of(cudaEventDestroy(event));
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return result_of(cudaEventRecord(event, stream));
}
CUresult cuEventQuery(CUevent event) {
  return result_of(cudaEventQuery(event));
}
CUresult cuEventSynchronize(CUevent event) {
  return result_of(cudaEventSynchronize(event));
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return result_of(cudaLaunchHostFunc(stream, function, data));
}

}  // extern "C"
