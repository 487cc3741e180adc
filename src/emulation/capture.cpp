// SPDX-License-Identifier: Apache-2.0
#include "capture.hpp"

#include <algorithm>
#include <set>

#include "device.hpp"
#include "runtime.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

cudaError_t may_begin(const Stream& stream) {
  if (stream.legacy()) return cudaErrorStreamCaptureUnsupported;
  return stream.capture == nullptr ? cudaSuccess : cudaErrorIllegalState;
}

void add_unique(std::vector<GraphNode*>& nodes, GraphNode* node) {
  if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

}  // namespace

cudaGraphNodeType node_type(const Work& work) {
  if (std::holds_alternative<CopyWork>(work)) return cudaGraphNodeTypeMemcpy;
  if (std::holds_alternative<FillWork>(work)) return cudaGraphNodeTypeMemset;
  if (std::holds_alternative<HostWork>(work)) return cudaGraphNodeTypeHost;
  if (std::holds_alternative<AllocateWork>(work)) return cudaGraphNodeTypeMemAlloc;
  if (std::holds_alternative<FreeWork>(work)) return cudaGraphNodeTypeMemFree;
  return cudaGraphNodeTypeEmpty;
}

// ---- Begin and end

cudaError_t Captures::begin(Stream& stream, cudaStreamCaptureMode mode, const ThreadState& thread) {
  const cudaError_t status = may_begin(stream);
  if (status == cudaSuccess) start(stream, mode, thread, runtime_.create_graph(), true);
  return status;
}

cudaError_t Captures::begin(Stream& stream, cudaStreamCaptureMode mode, const ThreadState& thread,
                            Graph& graph, std::vector<GraphNode*> after) {
  const cudaError_t status = may_begin(stream);
  if (status != cudaSuccess) return status;
  if (captures(graph)) return cudaErrorInvalidValue;
  start(stream, mode, thread, Ref<Graph>(&graph), false);
  stream.capture_tail = std::move(after);
  return cudaSuccess;
}

void Captures::start(Stream& stream, cudaStreamCaptureMode mode, const ThreadState& thread,
                     Ref<Graph> graph, bool makes_graph) {
  auto capture = std::make_unique<Capture>();
  capture->number = ++begun_;
  capture->mode = mode;
  capture->thread = thread.number;
  capture->origin = &stream;
  capture->graph = std::move(graph);
  capture->makes_graph = makes_graph;
  capture->streams.push_back(&stream);
  stream.capture = capture.get();
  captures_.push_back(std::move(capture));
}

cudaError_t Captures::end(Stream& stream, const ThreadState& thread, Ref<Graph>* graph) {
  Capture* const capture = stream.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    capture->valid = false;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != thread.number) {
    capture->valid = false;
    return cudaErrorStreamCaptureWrongThread;
  }
  cudaError_t status = cudaSuccess;
  if (!capture->valid)
    status = cudaErrorStreamCaptureInvalidated;
  else if (!joined(*capture))
    status = cudaErrorStreamCaptureUnjoined;
  if (status == cudaSuccess)
    *graph = capture->graph;
  else if (capture->makes_graph)
    runtime_.graphs.remove(capture->graph->handle);
  drop(*capture);
  return status;
}

/// Whether the origin stream is ordered after all work of the other streams of the capture.
bool Captures::joined(const Capture& capture) const {
  std::set<const GraphNode*> before_end;
  std::vector<const GraphNode*> open(capture.origin->capture_tail.begin(),
                                     capture.origin->capture_tail.end());
  while (!open.empty()) {
    const GraphNode* const node = open.back();
    open.pop_back();
    if (before_end.insert(node).second)
      open.insert(open.end(), node->after.begin(), node->after.end());
  }
  for (const Stream* stream : capture.streams)
    for (const GraphNode* node : stream->capture_tail)
      if (before_end.count(node) == 0) return false;
  return true;
}

/// Removes every stream from the capture and destroys it.
void Captures::drop(Capture& capture) {
  for (Stream* stream : capture.streams) {
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  const auto is_it = [&](const std::unique_ptr<Capture>& other) { return other.get() == &capture; };
  captures_.erase(std::find_if(captures_.begin(), captures_.end(), is_it));
}

Capture* Captures::find(std::uint64_t number) const {
  for (const auto& capture : captures_)
    if (capture->number == number) return capture.get();
  return nullptr;
}

bool Captures::captures(const Graph& graph) const {
  return std::any_of(captures_.begin(), captures_.end(),
                     [&](const auto& capture) { return capture->graph.get() == &graph; });
}

bool Captures::makes(const Graph& graph) const {
  return std::any_of(captures_.begin(), captures_.end(), [&](const auto& capture) {
    return capture->graph.get() == &graph && capture->makes_graph;
  });
}

// ---- Which calls a capture permits

cudaError_t Captures::admit_unsafe(const ThreadState& thread) {
  if (captures_.empty() || thread.capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  for (const auto& capture : captures_) {
    const bool own =
        capture->thread == thread.number && capture->mode != cudaStreamCaptureModeRelaxed;
    const bool of_all = capture->mode == cudaStreamCaptureModeGlobal &&
                        thread.capture_mode == cudaStreamCaptureModeGlobal;
    if (!own && !of_all) continue;
    capture->valid = false;
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

cudaError_t Captures::admit_look(const Stream& stream) const {
  if (!stream.legacy()) return cudaSuccess;
  for (const auto& capture : captures_)
    for (const Stream* captured : capture->streams)
      if (&captured->device == &stream.device && captured->blocking())
        return cudaErrorStreamCaptureImplicit;
  return cudaSuccess;
}

cudaError_t Captures::admit(Stream& stream) {
  if (stream.capture != nullptr)
    return stream.capture->valid ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
  if (captures_.empty() || admit_look(stream) == cudaSuccess) return cudaSuccess;
  for (const auto& capture : captures_)
    for (const Stream* captured : capture->streams)
      if (&captured->device == &stream.device && captured->blocking()) capture->valid = false;
  return cudaErrorStreamCaptureImplicit;
}

cudaError_t Captures::admit_wait(Stream& stream) {
  const cudaError_t status = admit(stream);
  if (status != cudaSuccess || stream.capture == nullptr) return status;
  stream.capture->valid = false;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t Captures::admit_wait(const Device& device) {
  cudaError_t status = cudaSuccess;
  for (const auto& capture : captures_)
    for (const Stream* captured : capture->streams)
      if (&captured->device == &device) {
        capture->valid = false;
        status = cudaErrorStreamCaptureUnsupported;
      }
  return status;
}

// ---- Captured work

void Captures::add(Stream& stream, NodeAction action) {
  advance(stream, stream.capture->graph->add(std::move(action), stream.capture_tail));
}

void Captures::depend(Stream& stream, const std::vector<GraphNode*>& nodes, bool replace) {
  if (replace) stream.capture_tail.clear();
  for (GraphNode* node : nodes) add_unique(stream.capture_tail, node);
}

void Captures::record(Stream& stream, Event& event) {
  event.record_captured(stream.capture->number, stream.capture_tail);
}

cudaError_t Captures::wait(Stream& stream, const Event& event) {
  if (event.capture() == 0) {
    if (!event.recorded()) return cudaSuccess;
    stream.capture->valid = false;
    return cudaErrorStreamCaptureIsolation;
  }
  Capture* const capture = find(event.capture());
  if (capture == nullptr) {  // The capture has ended, so there is nothing to wait for.
    if (stream.capture != nullptr) stream.capture->valid = false;
    return cudaErrorCapturedEvent;
  }
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  if (stream.capture != nullptr && stream.capture != capture) {
    capture->valid = stream.capture->valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  if (stream.legacy()) {
    capture->valid = false;
    return cudaErrorStreamCaptureImplicit;
  }
  if (stream.capture == nullptr) {
    stream.capture = capture;
    capture->streams.push_back(&stream);
  }
  for (GraphNode* node : event.captured()) add_unique(stream.capture_tail, node);
  return cudaSuccess;
}

void Captures::forget_all() {
  while (!captures_.empty()) forget(*captures_.back()->origin);
}

void Captures::forget(Stream& stream) {
  Capture* const capture = stream.capture;
  if (capture == nullptr) return;
  capture->valid = false;
  if (capture->origin == &stream) {  // No call can end the capture any more.
    if (capture->makes_graph) runtime_.graphs.remove(capture->graph->handle);
    drop(*capture);
    return;
  }
  capture->streams.erase(std::find(capture->streams.begin(), capture->streams.end(), &stream));
  stream.capture = nullptr;
  stream.capture_tail.clear();
}

}  // namespace penstock::emulation::detail
