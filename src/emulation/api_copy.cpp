// SPDX-License-Identifier: Apache-2.0
//
// Calls that copy and fill memory (copy_calls.hpp).

#include "copy_calls.hpp"

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaMemcpy(void* destination, const void* source, std::size_t bytes,
                       cudaMemcpyKind kind) {
  return enter(Function::cudaMemcpy, [&](Call& call) {
    return copy_and_wait(call, cudaStreamLegacy, flat_copy(destination, source, bytes, kind));
  });
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return enter(Function::cudaMemcpyAsync, [&](Call& call) {
    return copy_async(call, stream, flat_copy(destination, source, bytes, kind));
  });
}

cudaError_t cudaMemcpy2D(void* destination, std::size_t destination_pitch, const void* source,
                         std::size_t source_pitch, std::size_t width, std::size_t height,
                         cudaMemcpyKind kind) {
  return enter(Function::cudaMemcpy2D, [&](Call& call) {
    return copy_and_wait(
        call, cudaStreamLegacy,
        {destination, destination_pitch, source, source_pitch, width, height, kind});
  });
}

cudaError_t cudaMemcpy2DAsync(void* destination, std::size_t destination_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return enter(Function::cudaMemcpy2DAsync, [&](Call& call) {
    return copy_async(call, stream,
                      {destination, destination_pitch, source, source_pitch, width, height, kind});
  });
}

cudaError_t cudaMemcpyPeer(void* destination, int destination_device, const void* source,
                           int source_device, std::size_t bytes) {
  return enter(Function::cudaMemcpyPeer, [&](Call& call) {
    // CUDA orders this copy after all work of the devices that take part.
    if (!call.runtime.await_idle(call.lock, nullptr, true)) return cudaErrorCudartUnloading;
    CopyRequest request = flat_copy(destination, source, bytes, cudaMemcpyDeviceToDevice);
    request.synchronous = true;
    const cudaError_t status =
        copy_between_devices(call, cudaStreamLegacy, request, destination_device, source_device);
    return status == cudaSuccess ? call.await(call.device().legacy->end()) : status;
  });
}

cudaError_t cudaMemcpyPeerAsync(void* destination, int destination_device, const void* source,
                                int source_device, std::size_t bytes, cudaStream_t stream) {
  return enter(Function::cudaMemcpyPeerAsync, [&](Call& call) {
    return copy_between_devices(call, stream,
                                flat_copy(destination, source, bytes, cudaMemcpyDeviceToDevice),
                                destination_device, source_device);
  });
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* params) {
  return enter(Function::cudaMemcpy3D, [&](Call& call) {
    CopyRequest request{};
    const cudaError_t status = box_copy(params, request);
    return status == cudaSuccess ? copy_and_wait(call, cudaStreamLegacy, request) : status;
  });
}

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* params, cudaStream_t stream) {
  return enter(Function::cudaMemcpy3DAsync, [&](Call& call) {
    CopyRequest request{};
    const cudaError_t status = box_copy(params, request);
    return status == cudaSuccess ? copy_async(call, stream, request) : status;
  });
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return enter(Function::cudaMemset, [&](Call& call) {
    return fill(call, cudaStreamLegacy, {data, value, bytes}, true);
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return enter(Function::cudaMemsetAsync, [&](Call& call) {
    return fill(call, stream, {data, value, bytes}, false);
  });
}

cudaError_t cudaMemset2D(void* data, std::size_t pitch, int value, std::size_t width,
                         std::size_t height) {
  return enter(Function::cudaMemset2D, [&](Call& call) {
    return fill(call, cudaStreamLegacy, {data, value, width, height, 1, pitch}, true);
  });
}

cudaError_t cudaMemset2DAsync(void* data, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  return enter(Function::cudaMemset2DAsync, [&](Call& call) {
    return fill(call, stream, {data, value, width, height, 1, pitch}, false);
  });
}

cudaError_t cudaMemset3D(cudaPitchedPtr memory, int value, cudaExtent extent) {
  return enter(Function::cudaMemset3D, [&](Call& call) {
    FillRequest request{};
    const cudaError_t status = box_fill(memory, value, extent, request);
    return status == cudaSuccess ? fill(call, cudaStreamLegacy, request, true) : status;
  });
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr memory, int value, cudaExtent extent,
                              cudaStream_t stream) {
  return enter(Function::cudaMemset3DAsync, [&](Call& call) {
    FillRequest request{};
    const cudaError_t status = box_fill(memory, value, extent, request);
    return status == cudaSuccess ? fill(call, stream, request, false) : status;
  });
}

}  // extern "C"
