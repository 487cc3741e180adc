// SPDX-License-Identifier: Apache-2.0
//
// The names of the calls in programs that are compiled for per-thread default streams (nvcc
// --default-stream per-thread, or CUDA_API_PER_THREAD_DEFAULT_STREAM). Stream 0 is then the
// thread's own default stream.

#include "copy_calls.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

cudaStream_t own(cudaStream_t stream) {
  return stream == nullptr ? cudaStreamPerThread : stream;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

// ---- Calls without a stream

cudaError_t cudaMemcpy_ptds(void* destination, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind) {
  return enter(Function::cudaMemcpy, [&](Call& call) {
    return copy_and_wait(call, cudaStreamPerThread, flat_copy(destination, source, bytes, kind));
  });
}

cudaError_t cudaMemcpy2D_ptds(void* destination, std::size_t destination_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind) {
  return enter(Function::cudaMemcpy2D, [&](Call& call) {
    return copy_and_wait(
        call, cudaStreamPerThread,
        {destination, destination_pitch, source, source_pitch, width, height, kind});
  });
}

cudaError_t cudaMemset_ptds(void* data, int value, std::size_t bytes) {
  return enter(Function::cudaMemset, [&](Call& call) {
    return fill(call, cudaStreamPerThread, {data, value, bytes}, true);
  });
}

cudaError_t cudaMemcpy3D_ptds(const cudaMemcpy3DParms* params) {
  return enter(Function::cudaMemcpy3D, [&](Call& call) {
    CopyRequest request{};
    const cudaError_t status = box_copy(params, request);
    return status == cudaSuccess ? copy_and_wait(call, cudaStreamPerThread, request) : status;
  });
}

cudaError_t cudaMemset2D_ptds(void* data, std::size_t pitch, int value, std::size_t width,
                              std::size_t height) {
  return enter(Function::cudaMemset2D, [&](Call& call) {
    return fill(call, cudaStreamPerThread, {data, value, width, height, 1, pitch}, true);
  });
}

cudaError_t cudaMemset3D_ptds(cudaPitchedPtr memory, int value, cudaExtent extent) {
  return enter(Function::cudaMemset3D, [&](Call& call) {
    FillRequest request{};
    const cudaError_t status = box_fill(memory, value, extent, request);
    return status == cudaSuccess ? fill(call, cudaStreamPerThread, request, true) : status;
  });
}

// ---- Calls with a stream

cudaError_t cudaMemcpyAsync_ptsz(void* destination, const void* source, std::size_t bytes,
                                 cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyAsync(destination, source, bytes, kind, own(stream));
}

cudaError_t cudaMemcpy2DAsync_ptsz(void* destination, std::size_t destination_pitch,
                                   const void* source, std::size_t source_pitch, std::size_t width,
                                   std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(destination, destination_pitch, source, source_pitch, width, height,
                           kind, own(stream));
}

cudaError_t cudaMemsetAsync_ptsz(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return cudaMemsetAsync(data, value, bytes, own(stream));
}

cudaError_t cudaMemcpy3DAsync_ptsz(const cudaMemcpy3DParms* params, cudaStream_t stream) {
  return cudaMemcpy3DAsync(params, own(stream));
}

cudaError_t cudaMemset2DAsync_ptsz(void* data, std::size_t pitch, int value, std::size_t width,
                                   std::size_t height, cudaStream_t stream) {
  return cudaMemset2DAsync(data, pitch, value, width, height, own(stream));
}

cudaError_t cudaMemset3DAsync_ptsz(cudaPitchedPtr memory, int value, cudaExtent extent,
                                   cudaStream_t stream) {
  return cudaMemset3DAsync(memory, value, extent, own(stream));
}

cudaError_t cudaMallocAsync_ptsz(void** data, std::size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(data, bytes, own(stream));
}

cudaError_t cudaMallocFromPoolAsync_ptsz(void** data, std::size_t bytes, cudaMemPool_t pool,
                                         cudaStream_t stream) {
  return cudaMallocFromPoolAsync(data, bytes, pool, own(stream));
}

cudaError_t cudaFreeAsync_ptsz(void* data, cudaStream_t stream) {
  return cudaFreeAsync(data, own(stream));
}

cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) {
  return cudaStreamQuery(own(stream));
}

cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return cudaStreamSynchronize(own(stream));
}

cudaError_t cudaStreamGetDevice_ptsz(cudaStream_t stream, int* device) {
  return cudaStreamGetDevice(own(stream), device);
}

cudaError_t cudaStreamGetFlags_ptsz(cudaStream_t stream, unsigned* flags) {
  return cudaStreamGetFlags(own(stream), flags);
}

cudaError_t cudaStreamGetId_ptsz(cudaStream_t stream, unsigned long long* id) {
  return cudaStreamGetId(own(stream), id);
}

cudaError_t cudaStreamGetPriority_ptsz(cudaStream_t stream, int* priority) {
  return cudaStreamGetPriority(own(stream), priority);
}

cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return cudaStreamWaitEvent(own(stream), event, flags);
}

cudaError_t cudaStreamAttachMemAsync_ptsz(cudaStream_t stream, void* data, std::size_t bytes,
                                          unsigned flags) {
  return cudaStreamAttachMemAsync(own(stream), data, bytes, flags);
}

cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t callback,
                                       void* data, unsigned flags) {
  return cudaStreamAddCallback(own(stream), callback, data, flags);
}

cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return cudaLaunchHostFunc(own(stream), function, data);
}

cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, own(stream));
}

cudaError_t cudaEventRecordWithFlags_ptsz(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return cudaEventRecordWithFlags(event, own(stream), flags);
}

cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return cudaStreamBeginCapture(own(stream), mode);
}

cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph,
                                               const cudaGraphNode_t* dependencies,
                                               const cudaGraphEdgeData* edges, std::size_t count,
                                               cudaStreamCaptureMode mode) {
  return cudaStreamBeginCaptureToGraph(own(stream), graph, dependencies, edges, count, mode);
}

cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* graph) {
  return cudaStreamEndCapture(own(stream), graph);
}

cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(own(stream), status);
}

cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                cudaGraphInstantiateParams* params) {
  if (params == nullptr) return cudaGraphInstantiateWithParams(exec, graph, params);
  cudaGraphInstantiateParams with_own = *params;
  with_own.uploadStream = own(params->uploadStream);
  const cudaError_t status = cudaGraphInstantiateWithParams(exec, graph, &with_own);
  with_own.uploadStream = params->uploadStream;
  *params = with_own;
  return status;
}

cudaError_t cudaGraphUpload_ptsz(cudaGraphExec_t exec, cudaStream_t stream) {
  return cudaGraphUpload(exec, own(stream));
}

cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t exec, cudaStream_t stream) {
  return cudaGraphLaunch(exec, own(stream));
}

}  // extern "C"
