// SPDX-License-Identifier: Apache-2.0
//
// The calls whose names or parameters differ between CUDA 12 and CUDA 13.

#include "cuda_version.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

cudaStream_t per_thread_if_0(cudaStream_t stream) {
  return stream == nullptr ? cudaStreamPerThread : stream;
}

#if CUDART_VERSION < 13000
cudaMemLocation location_of(int device) {
  if (device == cudaCpuDeviceId) return {cudaMemLocationTypeHost, 0};
  return {cudaMemLocationTypeDevice, device};
}
#endif

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

cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges,
                             std::size_t count, cudaGraphNodeParams* params) {
  return add_node(node, graph, dependencies, edges, count, params);
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* edges, std::size_t* count) {
  return graph_edges(graph, from, to, edges, count);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                         cudaGraphEdgeData* edges, std::size_t* count) {
  return node_dependencies(node, nodes, edges, count);
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                           cudaGraphEdgeData* edges, std::size_t* count) {
  return node_dependents(node, nodes, edges, count);
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                     std::size_t count) {
  return add_dependencies(graph, from, to, edges, count);
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                        std::size_t count) {
  return remove_dependencies(graph, from, to, edges, count);
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges, std::size_t count,
                                                unsigned flags) {
  return update_capture_dependencies(stream, dependencies, edges, count, flags);
}
cudaError_t cudaStreamUpdateCaptureDependencies_ptsz(cudaStream_t stream,
                                                     cudaGraphNode_t* dependencies,
                                                     const cudaGraphEdgeData* edges,
                                                     std::size_t count, unsigned flags) {
  return update_capture_dependencies(per_thread_if_0(stream), dependencies, edges, count, flags);
}

cudaError_t cudaMemAdvise(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
  return advise(data, bytes, advice, location);
}

cudaError_t cudaMemPrefetchAsync(const void* data, std::size_t bytes, cudaMemLocation location,
                                 unsigned flags, cudaStream_t stream) {
  return prefetch(data, bytes, location, flags, stream);
}
cudaError_t cudaMemPrefetchAsync_ptsz(const void* data, std::size_t bytes, cudaMemLocation location,
                                      unsigned flags, cudaStream_t stream) {
  return prefetch(data, bytes, location, flags, per_thread_if_0(stream));
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location,
                                     cudaMemAllocationType type) {
  return default_pool(pool, location, type);
}
cudaError_t cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location,
                              cudaMemAllocationType type) {
  return current_pool(pool, location, type);
}
cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type,
                              cudaMemPool_t pool) {
  return set_current_pool(location, type, pool);
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

cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph,
                             const cudaGraphNode_t* dependencies, std::size_t count,
                             cudaGraphNodeParams* params) {
  return add_node(node, graph, dependencies, nullptr, count, params);
}
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t* node, cudaGraph_t graph,
                                const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges,
                                std::size_t count, cudaGraphNodeParams* params) {
  return add_node(node, graph, dependencies, edges, count, params);
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              std::size_t* count) {
  return graph_edges(graph, from, to, nullptr, count);
}
cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                                 cudaGraphEdgeData* edges, std::size_t* count) {
  return graph_edges(graph, from, to, edges, count);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                         std::size_t* count) {
  return node_dependencies(node, nodes, nullptr, count);
}
cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                            cudaGraphEdgeData* edges, std::size_t* count) {
  return node_dependencies(node, nodes, edges, count);
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                           std::size_t* count) {
  return node_dependents(node, nodes, nullptr, count);
}
cudaError_t cudaGraphNodeGetDependentNodes_v2(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                              cudaGraphEdgeData* edges, std::size_t* count) {
  return node_dependents(node, nodes, edges, count);
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, std::size_t count) {
  return add_dependencies(graph, from, to, nullptr, count);
}
cudaError_t cudaGraphAddDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                        std::size_t count) {
  return add_dependencies(graph, from, to, edges, count);
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                        const cudaGraphNode_t* to, std::size_t count) {
  return remove_dependencies(graph, from, to, nullptr, count);
}
cudaError_t cudaGraphRemoveDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t* from,
                                           const cudaGraphNode_t* to,
                                           const cudaGraphEdgeData* edges, std::size_t count) {
  return remove_dependencies(graph, from, to, edges, count);
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                std::size_t count, unsigned flags) {
  return update_capture_dependencies(stream, dependencies, nullptr, count, flags);
}
cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream,
                                                   cudaGraphNode_t* dependencies,
                                                   const cudaGraphEdgeData* edges,
                                                   std::size_t count, unsigned flags) {
  return update_capture_dependencies(stream, dependencies, edges, count, flags);
}
cudaError_t cudaStreamUpdateCaptureDependencies_ptsz(cudaStream_t stream,
                                                     cudaGraphNode_t* dependencies,
                                                     std::size_t count, unsigned flags) {
  return update_capture_dependencies(per_thread_if_0(stream), dependencies, nullptr, count, flags);
}
cudaError_t cudaStreamUpdateCaptureDependencies_v2_ptsz(cudaStream_t stream,
                                                        cudaGraphNode_t* dependencies,
                                                        const cudaGraphEdgeData* edges,
                                                        std::size_t count, unsigned flags) {
  return update_capture_dependencies(per_thread_if_0(stream), dependencies, edges, count, flags);
}

cudaError_t cudaMemAdvise(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                          int device) {
  return advise(data, bytes, advice, location_of(device));
}
cudaError_t cudaMemAdvise_v2(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                             cudaMemLocation location) {
  return advise(data, bytes, advice, location);
}

cudaError_t cudaMemPrefetchAsync(const void* data, std::size_t bytes, int device,
                                 cudaStream_t stream) {
  return prefetch(data, bytes, location_of(device), 0, stream);
}
cudaError_t cudaMemPrefetchAsync_ptsz(const void* data, std::size_t bytes, int device,
                                      cudaStream_t stream) {
  return prefetch(data, bytes, location_of(device), 0, per_thread_if_0(stream));
}
cudaError_t cudaMemPrefetchAsync_v2(const void* data, std::size_t bytes, cudaMemLocation location,
                                    unsigned flags, cudaStream_t stream) {
  return prefetch(data, bytes, location, flags, stream);
}
cudaError_t cudaMemPrefetchAsync_v2_ptsz(const void* data, std::size_t bytes,
                                         cudaMemLocation location, unsigned flags,
                                         cudaStream_t stream) {
  return prefetch(data, bytes, location, flags, per_thread_if_0(stream));
}

#endif

}  // extern "C"
