// SPDX-License-Identifier: Apache-2.0
#pragma once

// Graphs that tests make node by node:
//
//   const TestGraph graph = empty_graph();
//   const cudaGraphNode_t fill = add_fill(graph, {}, device, 1);
//   add_copy(graph, {fill}, host, device);

#include <cstddef>
#include <vector>

#include "catch.hpp"
#include "cuda_version.hpp"
#include "graphs.hpp"
#include "host_log.hpp"
#include "memory.hpp"

namespace penstock::test {

using Nodes = std::vector<cudaGraphNode_t>;

inline TestGraph empty_graph() {
  cudaGraph_t graph = nullptr;
  REQUIRE_CUDA(cudaGraphCreate(&graph, 0));
  return TestGraph(graph);
}

// ---- Nodes, each after those in `after`

inline cudaGraphNode_t add_empty(cudaGraph_t graph, const Nodes& after) {
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddEmptyNode(&node, graph, after.data(), after.size()));
  return node;
}

inline cudaMemsetParams fill_params(void* data, unsigned value, std::size_t bytes) {
  cudaMemsetParams params{};
  params.dst = data;
  params.value = value;
  params.elementSize = 1;
  params.width = bytes;
  params.height = 1;
  return params;
}
inline cudaGraphNode_t add_fill(cudaGraph_t graph, const Nodes& after,
                                const cudaMemsetParams& params) {
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddMemsetNode(&node, graph, after.data(), after.size(), &params));
  return node;
}
template <class T>
cudaGraphNode_t add_fill(cudaGraph_t graph, const Nodes& after, const DeviceMemory<T>& memory,
                         unsigned value) {
  return add_fill(graph, after, fill_params(memory.data(), value, memory.bytes()));
}

inline cudaGraphNode_t add_copy(cudaGraph_t graph, const Nodes& after, void* to, const void* from,
                                std::size_t bytes, cudaMemcpyKind kind) {
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(
      cudaGraphAddMemcpyNode1D(&node, graph, after.data(), after.size(), to, from, bytes, kind));
  return node;
}
template <class T>
cudaGraphNode_t add_copy(cudaGraph_t graph, const Nodes& after, const DeviceMemory<T>& to,
                         const PinnedMemory<T>& from) {
  return add_copy(graph, after, to.data(), from.data(), to.bytes(), cudaMemcpyHostToDevice);
}
template <class T>
cudaGraphNode_t add_copy(cudaGraph_t graph, const Nodes& after, const PinnedMemory<T>& to,
                         const DeviceMemory<T>& from) {
  return add_copy(graph, after, to.data(), from.data(), to.bytes(), cudaMemcpyDeviceToHost);
}

inline cudaGraphNode_t add_host(cudaGraph_t graph, const Nodes& after, cudaHostFn_t function,
                                void* data) {
  const cudaHostNodeParams params{function, data};
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddHostNode(&node, graph, after.data(), after.size(), &params));
  return node;
}

/// A host function that notes a number.
inline cudaGraphNode_t add_note(cudaGraph_t graph, const Nodes& after, HostLog& log, int number) {
  return add_host(graph, after, &HostLog::append, log.note(number));
}

inline cudaGraphNode_t add_child(cudaGraph_t graph, const Nodes& after, cudaGraph_t child) {
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddChildGraphNode(&node, graph, after.data(), after.size(), child));
  return node;
}

inline cudaMemAllocNodeParams allocation_params(std::size_t bytes) {
  cudaMemAllocNodeParams params{};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location = {cudaMemLocationTypeDevice, 0};
  params.bytesize = bytes;
  return params;
}
/// Its address is written to `data`.
inline cudaGraphNode_t add_allocation(cudaGraph_t graph, const Nodes& after, std::size_t bytes,
                                      void** data) {
  cudaMemAllocNodeParams params = allocation_params(bytes);
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddMemAllocNode(&node, graph, after.data(), after.size(), &params));
  *data = params.dptr;
  return node;
}
inline cudaGraphNode_t add_free(cudaGraph_t graph, const Nodes& after, void* data) {
  cudaGraphNode_t node = nullptr;
  REQUIRE_CUDA(cudaGraphAddMemFreeNode(&node, graph, after.data(), after.size(), data));
  return node;
}

/// The call fails, by this error or any, and the last error is taken.
inline void check_invalid(cudaError_t status, int line = __builtin_LINE()) {
  INFO("the call is in line " << line);
  CHECK(status == cudaErrorInvalidValue);
  cudaGetLastError();
}
inline void check_refused(cudaError_t status, int line = __builtin_LINE()) {
  INFO("the call is in line " << line);
  CHECK(status != cudaSuccess);
  cudaGetLastError();
}

/// Makes one executable graph, launches it once and waits for it.
inline void run_once(cudaGraph_t graph, cudaStream_t stream) {
  const TestGraphExec exec(graph);
  REQUIRE_CUDA(cudaGraphLaunch(exec, stream));
  REQUIRE_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace penstock::test
