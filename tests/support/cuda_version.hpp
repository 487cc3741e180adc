// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests of CUDA's calls have to know of the version of the headers, 12.4 or newer.

#include <cuda_runtime_api.h>

#include <cstddef>

namespace penstock::test {

/// Whether the runtime tells the device of a stream. Where it does not, a stream of another device
/// is refused only when an event is recorded on it.
inline constexpr bool kStreamsTellTheirDevice = CUDART_VERSION >= 12080;

inline cudaError_t device_of_stream(cudaStream_t stream, int* device) {
#if CUDART_VERSION >= 12080
  return cudaStreamGetDevice(stream, device);
#else
  static_cast<void>(stream);
  static_cast<void>(device);
  return cudaErrorNotSupported;
#endif
}

/// cudaStreamGetCaptureInfo with the edges, which CUDA 12 calls _v3.
inline cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                std::size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nodes, edges, count);
#else
  return cudaStreamGetCaptureInfo_v3(stream, status, nullptr, nullptr, nodes, edges, count);
#endif
}

/// Calls about the edges of graphs, which CUDA 12 has with and without edge data (_v2).
inline cudaError_t add_dependency(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, &from, &to, nullptr, 1);
#else
  return cudaGraphAddDependencies(graph, &from, &to, 1);
#endif
}
inline cudaError_t remove_dependency(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to) {
#if CUDART_VERSION >= 13000
  return cudaGraphRemoveDependencies(graph, &from, &to, nullptr, 1);
#else
  return cudaGraphRemoveDependencies(graph, &from, &to, 1);
#endif
}
inline cudaError_t edges_of(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                            std::size_t* count, cudaGraphEdgeData* edges = nullptr) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, edges, count);
#else
  return cudaGraphGetEdges_v2(graph, from, to, edges, count);
#endif
}
inline cudaError_t dependencies_of(cudaGraphNode_t node, cudaGraphNode_t* nodes, std::size_t* count,
                                   cudaGraphEdgeData* edges = nullptr) {
#if CUDART_VERSION >= 13000
  return cudaGraphNodeGetDependencies(node, nodes, edges, count);
#else
  return cudaGraphNodeGetDependencies_v2(node, nodes, edges, count);
#endif
}
inline cudaError_t dependents_of(cudaGraphNode_t node, cudaGraphNode_t* nodes, std::size_t* count,
                                 cudaGraphEdgeData* edges = nullptr) {
#if CUDART_VERSION >= 13000
  return cudaGraphNodeGetDependentNodes(node, nodes, edges, count);
#else
  return cudaGraphNodeGetDependentNodes_v2(node, nodes, edges, count);
#endif
}
inline cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph,
                            const cudaGraphNode_t* dependencies, std::size_t count,
                            cudaGraphNodeParams* params, const cudaGraphEdgeData* edges = nullptr) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddNode(node, graph, dependencies, edges, count, params);
#else
  return cudaGraphAddNode_v2(node, graph, dependencies, edges, count, params);
#endif
}
inline cudaError_t update_dependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                       std::size_t count, unsigned flags) {
#if CUDART_VERSION >= 13000
  return cudaStreamUpdateCaptureDependencies(stream, nodes, nullptr, count, flags);
#else
  return cudaStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags);
#endif
}

/// cudaMemAdvise and cudaMemPrefetchAsync with a location, which CUDA 12 calls _v2.
inline cudaError_t advise(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location) {
#if CUDART_VERSION >= 13000
  return cudaMemAdvise(data, bytes, advice, location);
#else
  return cudaMemAdvise_v2(data, bytes, advice, location);
#endif
}
inline cudaError_t prefetch(const void* data, std::size_t bytes, cudaMemLocation location,
                            cudaStream_t stream, unsigned flags = 0) {
#if CUDART_VERSION >= 13000
  return cudaMemPrefetchAsync(data, bytes, location, flags, stream);
#else
  return cudaMemPrefetchAsync_v2(data, bytes, location, flags, stream);
#endif
}

}  // namespace penstock::test
