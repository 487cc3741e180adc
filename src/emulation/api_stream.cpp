// SPDX-License-Identifier: Apache-2.0
//
// Calls about streams and about host functions in them.

#include <algorithm>
#include <penstock/detail/pipeline/host_task.hpp>

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

cudaError_t create(Call& call, cudaStream_t* stream, unsigned flags, int priority) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
  const int urgency = std::clamp(priority, kMostUrgent, kLeastUrgent);
  *stream = call.runtime.create_stream(call.device(), flags, urgency, true)->handle;
  return cudaSuccess;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return enter(Function::cudaStreamCreate,
               [&](Call& call) { return create(call, stream, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return enter(Function::cudaStreamCreateWithFlags,
               [&](Call& call) { return create(call, stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return enter(Function::cudaStreamCreateWithPriority,
               [&](Call& call) { return create(call, stream, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return enter(Function::cudaStreamDestroy, [&](Call& call) {
    Stream* stream = call.runtime.streams.find(reinterpret_cast<std::uint64_t>(handle));
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    call.runtime.destroy(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return enter(Function::cudaStreamQuery, [&](Call& call) {
    Stream* stream = nullptr;
    cudaError_t status = call.find(handle, &stream);
    if (status == cudaSuccess) status = call.runtime.captures.admit_wait(*stream);
    return status == cudaSuccess ? call.query_all(*stream) : status;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return enter(Function::cudaStreamSynchronize, [&](Call& call) {
    Stream* stream = nullptr;
    cudaError_t status = call.find(handle, &stream);
    if (status == cudaSuccess) status = call.runtime.captures.admit_wait(*stream);
    if (status == cudaSuccess) status = call.await_all(*stream);
    if (status == cudaSuccess) call.runtime.trim_pools();
    return status;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return enter(Function::cudaStreamGetFlags, [&](Call& call) {
    Stream* stream = nullptr;
    const cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return enter(Function::cudaStreamGetPriority, [&](Call& call) {
    Stream* stream = nullptr;
    const cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (priority == nullptr) return cudaErrorInvalidValue;
    *priority = stream->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return enter(Function::cudaStreamGetDevice, [&](Call& call) {
    Stream* stream = nullptr;
    const cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (device == nullptr) return cudaErrorInvalidValue;
    // An H100 and an H200 behave like this.
    if (stream->capture != nullptr) return call.runtime.captures.admit_wait(*stream);
    *device = stream->device.index;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return enter(Function::cudaStreamGetId, [&](Call& call) {
    Stream* stream = nullptr;
    const cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (id == nullptr) return cudaErrorInvalidValue;
    // The legacy streams all have number 0, so the id includes the device.
    *id = (static_cast<unsigned long long>(stream->device.index) << 48) + stream->number + 1;
    return cudaSuccess;
  });
}

/// The host and the device may access managed memory at any time, so this call only keeps its place
/// in the stream.
cudaError_t cudaStreamAttachMemAsync(cudaStream_t handle, void* data, std::size_t bytes,
                                     unsigned flags) {
  return enter(Function::cudaStreamAttachMemAsync, [&](Call& call) {
    Stream* stream = nullptr;
    const cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    const Allocation* const allocation = call.runtime.memory.at(data);
    const bool known =
        flags == cudaMemAttachGlobal || flags == cudaMemAttachHost || flags == cudaMemAttachSingle;
    if (!known || allocation == nullptr || allocation->origin != Origin::managed ||
        (bytes != 0 && bytes != allocation->bytes) ||
        (flags == cudaMemAttachSingle && stream->legacy()))
      return cudaErrorInvalidValue;
    if (stream->capture != nullptr) return call.runtime.captures.admit_wait(*stream);
    return call.submit(*stream, GraphWork{});
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return enter(Function::cudaLaunchHostFunc, [&](Call& call) {
    Stream* stream = nullptr;
    const cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (function == nullptr) return cudaErrorInvalidValue;
    return call.submit(*stream, HostWork{function, nullptr, nullptr, data});
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t callback, void* data,
                                  unsigned flags) {
  return enter(Function::cudaStreamAddCallback, [&](Call& call) {
    Stream* stream = nullptr;
    const cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    if (stream->capture != nullptr) return call.runtime.captures.admit_wait(*stream);
    return call.submit(*stream, HostWork{nullptr, callback, handle, data});
  });
}

}  // extern "C"

// This function is in the same file as cudaLaunchHostFunc because for_each calls both.
void penstock::detail::for_each_on_the_real_cuda_runtime_has_to_be_compiled_by_nvcc() noexcept {}
