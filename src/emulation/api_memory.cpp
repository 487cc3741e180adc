// SPDX-License-Identifier: Apache-2.0
//
// Calls that allocate, free and describe memory; stream-ordered ones are in api_pool.cpp.

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr unsigned kHostAllocFlags =
    cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
constexpr unsigned kHostRegisterFlags = cudaHostRegisterPortable | cudaHostRegisterMapped;

constexpr std::size_t kPitchAlignment = 512;   // like cudaDevAttrTextureAlignment
constexpr std::size_t kMaxPitch = 0x7fffffff;  // like cudaDevAttrMaxPitch

cudaError_t allocate(Call& call, Origin origin, void** data, std::size_t bytes, unsigned flags) {
  if (data == nullptr) return cudaErrorInvalidValue;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  Allocation request;
  request.bytes = bytes;
  request.origin = origin;
  request.device = call.thread.device;
  request.flags = flags;
  request.managed = origin == Origin::managed;
  Memory& memory = call.runtime.memory;
  if (request.page_locked()) return memory.allocate(request, data);
  return call.runtime.allocate_on(call.device(), [&] { return memory.allocate(request, data); });
}

/// Allocates rows of `width` bytes. Each row starts at a multiple of the pitch, which this chooses.
cudaError_t allocate_rows(Call& call, void** data, std::size_t* pitch, std::size_t width,
                          std::size_t rows) {
  if (data == nullptr || pitch == nullptr || width > kMaxPitch) return cudaErrorInvalidValue;
  const std::size_t chosen = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(chosen, rows, &bytes)) return cudaErrorMemoryAllocation;
  const cudaError_t status = allocate(call, Origin::device, data, bytes, 0);
  if (status == cudaSuccess) *pitch = chosen;
  return status;
}

/// Frees stream-ordered memory at once; the program must make sure that nothing uses it any more.
cudaError_t release_ordered(Call& call, const Allocation& allocation) {
  if (allocation.origin == Origin::graph) {
    const cudaError_t status = call.runtime.free_graph_memory(allocation.data);
    if (status != cudaSuccess) return status;
  }
  const Memory& memory = call.runtime.memory;
  const FreeWork free = allocation.free();
  memory.end_use(free);
  memory.renew(free);
  memory.note_free(free);
  if (allocation.origin == Origin::graph) return cudaSuccess;
  Mark freed;  // The host frees it: the next owner of the memory is ordered after this call.
  freed.edges = make_task_edges();
  if (freed.edges) freed.edges->completed.release();
  // The copy is necessary because the pool destroys the object that `allocation` refers to.
  const Allocation released = allocation;  // NOLINT(performance-unnecessary-copy-initialization)
  released.pool->free(released, std::move(freed));
  return cudaSuccess;
}

cudaError_t describe(const Call& call, const void* data, cudaPointerAttributes& attributes) {
  attributes = cudaPointerAttributes{};
  void* const address = const_cast<void*>(data);
  const Allocation* const allocation = call.runtime.memory.find(data);
  if (allocation == nullptr) {
    attributes.type = cudaMemoryTypeUnregistered;
    attributes.device = cudaInvalidDeviceId;
    attributes.hostPointer = address;
    return cudaSuccess;
  }
  attributes.device = allocation->device;
  attributes.devicePointer = address;
  if (allocation->page_locked())
    attributes.type = cudaMemoryTypeHost;
  else if (allocation->managed)
    attributes.type = cudaMemoryTypeManaged;
  else
    attributes.type = cudaMemoryTypeDevice;
  if (attributes.type != cudaMemoryTypeDevice) attributes.hostPointer = address;
  return cudaSuccess;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return enter(Function::cudaMalloc,
               [&](Call& call) { return allocate(call, Origin::device, data, bytes, 0); });
}

cudaError_t cudaMallocPitch(void** data, std::size_t* pitch, std::size_t width,
                            std::size_t height) {
  return enter(Function::cudaMallocPitch,
               [&](Call& call) { return allocate_rows(call, data, pitch, width, height); });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* memory, cudaExtent extent) {
  return enter(Function::cudaMalloc3D, [&](Call& call) {
    if (memory == nullptr) return cudaErrorInvalidValue;
    std::size_t rows = 0, pitch = 0;
    void* data = nullptr;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
      return cudaErrorMemoryAllocation;
    const cudaError_t status = allocate_rows(call, &data, &pitch, extent.width, rows);
    if (status == cudaSuccess) *memory = {data, pitch, extent.width, extent.height};
    return status;
  });
}

cudaError_t cudaMallocManaged(void** data, std::size_t bytes, unsigned flags) {
  return enter(Function::cudaMallocManaged, [&](Call& call) {
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost) return cudaErrorInvalidValue;
    return allocate(call, Origin::managed, data, bytes, flags);
  });
}

cudaError_t cudaFree(void* data) {
  return enter(Function::cudaFree, [&](Call& call) {
    if (data == nullptr) return cudaSuccess;
    const Allocation* allocation = call.runtime.memory.at(data);
    if (allocation != nullptr &&
        (allocation->origin == Origin::pool || allocation->origin == Origin::graph))
      return release_ordered(call, *allocation);
    return call.release(data, Origin::device, Origin::managed);
  });
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned flags) {
  return enter(Function::cudaHostAlloc, [&](Call& call) {
    if ((flags & ~kHostAllocFlags) != 0) return cudaErrorInvalidValue;
    return allocate(call, Origin::pinned, data, bytes, flags);
  });
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return enter(Function::cudaMallocHost, [&](Call& call) {
    return allocate(call, Origin::pinned, data, bytes, cudaHostAllocDefault);
  });
}

cudaError_t cudaFreeHost(void* data) {
  return enter(Function::cudaFreeHost, [&](Call& call) {
    return data == nullptr ? cudaSuccess : call.release(data, Origin::pinned, Origin::pinned);
  });
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags) {
  return enter(Function::cudaHostRegister, [&](Call& call) {
    if (data == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if ((flags & (cudaHostRegisterIoMemory | cudaHostRegisterReadOnly)) != 0)
      return cudaErrorNotSupported;
    if ((flags & ~kHostRegisterFlags) != 0) return cudaErrorInvalidValue;
    return call.runtime.memory.enroll(data, bytes, flags, call.thread.device);
  });
}

cudaError_t cudaHostUnregister(void* data) {
  return enter(Function::cudaHostUnregister, [&](Call& call) {
    const cudaError_t status = call.release(data, Origin::registered, Origin::registered);
    return status == cudaErrorInvalidValue ? cudaErrorHostMemoryNotRegistered : status;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device_data, void* data, unsigned flags) {
  return enter(Function::cudaHostGetDevicePointer, [&](Call& call) {
    if (device_data == nullptr || flags != 0) return cudaErrorInvalidValue;
    const Allocation* allocation = call.runtime.memory.find(data);
    if (allocation == nullptr || !allocation->page_locked()) return cudaErrorInvalidValue;
    *device_data = data;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* data) {
  return enter(Function::cudaHostGetFlags, [&](Call& call) {
    const Allocation* allocation = call.runtime.memory.find(data);
    if (flags == nullptr || allocation == nullptr || allocation->origin != Origin::pinned)
      return cudaErrorInvalidValue;
    *flags = allocation->flags | cudaHostAllocMapped;  // Unified addressing maps all of it.
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return enter(Function::cudaPointerGetAttributes, [&](Call& call) {
    return attributes == nullptr ? cudaErrorInvalidValue : describe(call, data, *attributes);
  });
}

}  // extern "C"
