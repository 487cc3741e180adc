// SPDX-License-Identifier: Apache-2.0
//
// Calls about stream capture.

#include "graph_handles.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

bool is_mode(cudaStreamCaptureMode mode) {
  return mode == cudaStreamCaptureModeGlobal || mode == cudaStreamCaptureModeThreadLocal ||
         mode == cudaStreamCaptureModeRelaxed;
}

cudaStreamCaptureStatus status_of(const Stream& stream) {
  if (stream.capture == nullptr) return cudaStreamCaptureStatusNone;
  return stream.capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
}

}  // namespace

cudaError_t capture_info(cudaStream_t handle, cudaStreamCaptureStatus* capture_status,
                         unsigned long long* id, cudaGraph_t* graph,
                         const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                         std::size_t* count) {
  return enter(Function::cudaStreamGetCaptureInfo, [&](Call& call) {
    Stream* stream = nullptr;
    cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (capture_status == nullptr || (edges != nullptr && dependencies == nullptr))
      return cudaErrorInvalidValue;
    status = call.runtime.captures.admit_look(*stream);
    if (status != cudaSuccess) return status;
    *capture_status = status_of(*stream);
    if (*capture_status != cudaStreamCaptureStatusActive) return cudaSuccess;
    Capture& capture = *stream->capture;
    if (id != nullptr) *id = capture.number;
    if (graph != nullptr) *graph = handle_of(*capture.graph);
    if (edges != nullptr) *edges = nullptr;  // All edges are ordinary.
    if (count != nullptr) *count = stream->capture_tail.size();
    if (dependencies != nullptr) {  // They are valid until the next call about this capture.
      capture.told.clear();
      for (const GraphNode* node : stream->capture_tail) capture.told.push_back(handle_of(*node));
      *dependencies = capture.told.data();
    }
    return cudaSuccess;
  });
}

cudaError_t update_capture_dependencies(cudaStream_t handle, const cudaGraphNode_t* dependencies,
                                        const cudaGraphEdgeData* edges, std::size_t count,
                                        unsigned flags) {
  return enter(Function::cudaStreamUpdateCaptureDependencies, [&](Call& call) {
    Stream* stream = nullptr;
    cudaError_t status = call.find(handle, &stream);
    if (status == cudaSuccess) status = call.runtime.captures.admit(*stream);
    if (status != cudaSuccess) return status;
    if (flags > cudaStreamSetCaptureDependencies) return cudaErrorInvalidValue;
    if (stream->capture == nullptr) return cudaErrorIllegalState;
    std::vector<GraphNode*> nodes;
    status = find_all(call, *stream->capture->graph, dependencies, edges, count, nodes);
    if (status == cudaSuccess)
      call.runtime.captures.depend(*stream, nodes, flags == cudaStreamSetCaptureDependencies);
    return status;
  });
}

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return enter(Function::cudaStreamBeginCapture, [&](Call& call) {
    Stream* stream = nullptr;
    const cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (!is_mode(mode)) return cudaErrorInvalidValue;
    return call.runtime.captures.begin(*stream, mode, call.thread);
  });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph_handle,
                                          const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* edges, std::size_t count,
                                          cudaStreamCaptureMode mode) {
  return enter(Function::cudaStreamBeginCaptureToGraph, [&](Call& call) {
    Stream* stream = nullptr;
    cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    Graph* const graph = find(call, graph_handle);
    if (graph == nullptr || !is_mode(mode)) return cudaErrorInvalidValue;
    std::vector<GraphNode*> after;
    status = find_all(call, *graph, dependencies, edges, count, after);
    return status == cudaSuccess
               ? call.runtime.captures.begin(*stream, mode, call.thread, *graph, std::move(after))
               : status;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return enter(Function::cudaStreamEndCapture, [&](Call& call) {
    Stream* stream = nullptr;
    cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (graph == nullptr) return cudaErrorInvalidValue;
    Ref<Graph> captured;
    status = call.runtime.captures.end(*stream, call.thread, &captured);
    *graph = captured ? handle_of(*captured) : nullptr;
    return status;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* capture_status) {
  return enter(Function::cudaStreamIsCapturing, [&](Call& call) {
    Stream* stream = nullptr;
    cudaError_t status = call.find(handle, &stream);
    if (status != cudaSuccess) return status;
    if (capture_status == nullptr) return cudaErrorInvalidValue;
    status = call.runtime.captures.admit_look(*stream);
    if (status == cudaSuccess) *capture_status = status_of(*stream);
    return status;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return enter(Function::cudaThreadExchangeStreamCaptureMode, [&](Call& call) {
    if (mode == nullptr || !is_mode(*mode)) return cudaErrorInvalidValue;
    std::swap(*mode, call.thread.capture_mode);
    return cudaSuccess;
  });
}

}  // extern "C"
