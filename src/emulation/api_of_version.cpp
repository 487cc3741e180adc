// SPDX-License-Identifier: Apache-2.0
//
// The calls that have other names or parameters in CUDA 12 than in CUDA 13.

#include "cuda_version.hpp"

namespace penstock::emulation::detail {

namespace {

cudaStream_t per_thread_if_0(cudaStream_t stream) {
  return stream == nullptr ? cudaStreamPerThread : stream;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

#if CUDART_VERSION >= 13000

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  return capture_info(stream, status, id, graph, dependencies, edges, count);
}
cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                          unsigned long long* id, cudaGraph_t* graph,
                                          const cudaGraphNode_t** dependencies,
                                          const cudaGraphEdgeData** edges, std::size_t* count) {
  return capture_info(per_thread_if_0(stream), status, id, graph, dependencies, edges, count);
}

#else

cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                        unsigned long long* id, cudaGraph_t* graph,
                                        const cudaGraphNode_t** dependencies, std::size_t* count) {
  return capture_info(stream, status, id, graph, dependencies, nullptr, count);
}
cudaError_t cudaStreamGetCaptureInfo_v2_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                             unsigned long long* id, cudaGraph_t* graph,
                                             const cudaGraphNode_t** dependencies,
                                             std::size_t* count) {
  return capture_info(per_thread_if_0(stream), status, id, graph, dependencies, nullptr, count);
}
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                        unsigned long long* id, cudaGraph_t* graph,
                                        const cudaGraphNode_t** dependencies,
                                        const cudaGraphEdgeData** edges, std::size_t* count) {
  return capture_info(stream, status, id, graph, dependencies, edges, count);
}
cudaError_t cudaStreamGetCaptureInfo_v3_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                             unsigned long long* id, cudaGraph_t* graph,
                                             const cudaGraphNode_t** dependencies,
                                             const cudaGraphEdgeData** edges, std::size_t* count) {
  return capture_info(per_thread_if_0(stream), status, id, graph, dependencies, edges, count);
}

#endif

}  // extern "C"
