// SPDX-License-Identifier: Apache-2.0
#pragma once

// The headers of CUDA 12.4 and newer declare almost the same runtime. The differences are handled
// here and in api_of_version.cpp; no other part of the emulated runtime depends on the version.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <penstock/version.hpp>

static_assert(CUDART_VERSION >= 12040,
              "the emulated runtime needs the headers of CUDA 12.4 or newer");

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// cudaStreamGetCaptureInfo as CUDA 13 has it. CUDA 12 has it under other names.
cudaError_t capture_info(cudaStream_t handle, cudaStreamCaptureStatus* capture_status,
                         unsigned long long* id, cudaGraph_t* graph,
                         const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                         std::size_t* count);

/// Calls about the edges of graphs as CUDA 13 has them. In CUDA 12 they have the suffix _v2, and
/// those without it know only ordinary edges.
cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     const cudaGraphEdgeData* edges, std::size_t count,
                     cudaGraphNodeParams* params);
cudaError_t graph_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                        cudaGraphEdgeData* edges, std::size_t* count);
cudaError_t node_dependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                              cudaGraphEdgeData* edges, std::size_t* count);
cudaError_t node_dependents(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                            std::size_t* count);
cudaError_t add_dependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                             const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                             std::size_t count);
cudaError_t remove_dependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                std::size_t count);
cudaError_t update_capture_dependencies(cudaStream_t stream, const cudaGraphNode_t* dependencies,
                                        const cudaGraphEdgeData* edges, std::size_t count,
                                        unsigned flags);

/// cudaMemAdvise and cudaMemPrefetchAsync as CUDA 13 has them. In CUDA 12 they have the suffix _v2,
/// and those without it take a device.
cudaError_t advise(const void* data, std::size_t bytes, cudaMemoryAdvise advice,
                   cudaMemLocation location);
cudaError_t prefetch(const void* data, std::size_t bytes, cudaMemLocation location, unsigned flags,
                     cudaStream_t handle);

/// cudaMemGetDefaultMemPool, cudaMemGetMemPool and cudaMemSetMemPool, which are new in CUDA 13.
cudaError_t default_pool(cudaMemPool_t* pool, const cudaMemLocation* location,
                         cudaMemAllocationType type);
cudaError_t current_pool(cudaMemPool_t* pool, const cudaMemLocation* location,
                         cudaMemAllocationType type);
cudaError_t set_current_pool(const cudaMemLocation* location, cudaMemAllocationType type,
                             cudaMemPool_t handle);

/// Sets the NUMA nodes of a device to "none". These members are new in CUDA 13.
template <class Properties>
void set_no_numa(Properties& prop) {
  if constexpr (requires { prop.deviceNumaId; }) prop.deviceNumaId = prop.hostNumaId = -1;
}

// Names that the older headers do not have.
#if CUDART_VERSION < 13000
inline constexpr auto cudaMemAllocationTypeManaged = static_cast<cudaMemAllocationType>(2);
#endif
#if CUDART_VERSION < 12080
inline constexpr auto cudaErrorContained = static_cast<cudaError_t>(226);
inline constexpr auto cudaErrorTensorMemoryLeak = static_cast<cudaError_t>(721);
#endif
#if CUDART_VERSION < 12060
inline constexpr auto cudaErrorFunctionNotLoaded = static_cast<cudaError_t>(913);
inline constexpr auto cudaErrorInvalidResourceType = static_cast<cudaError_t>(914);
inline constexpr auto cudaErrorInvalidResourceConfiguration = static_cast<cudaError_t>(915);
#endif

}  // namespace penstock::emulation::detail

#if CUDART_VERSION < 12080
extern "C" cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device);
#endif
