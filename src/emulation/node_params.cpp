// SPDX-License-Identifier: Apache-2.0
#include "node_params.hpp"

#include <algorithm>

#include "graph_handles.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

// ---- From parameters to work

cudaError_t to_action(const Call& call, const cudaMemcpy3DParms* params, NodeAction& action) {
  CopyRequest request{};
  const cudaError_t status = box_copy(params, request);
  return status == cudaSuccess ? to_action(call, request, action) : status;
}

cudaError_t to_action(const Call& call, const CopyRequest& request, NodeAction& action) {
  CopyWork work;
  const cudaError_t status = make_work(call.runtime.memory, request, work);
  if (status != cudaSuccess) return status;
  if (work.width == 0) return cudaErrorInvalidValue;
  action = {cudaGraphNodeTypeMemcpy, work};
  return cudaSuccess;
}

cudaError_t to_action(const Call& call, const cudaMemsetParams* params, NodeAction& action) {
  if (params == nullptr) return cudaErrorInvalidValue;
  const unsigned element = params->elementSize;
  std::size_t width = 0;
  if ((element != 1 && element != 2 && element != 4) ||
      __builtin_mul_overflow(params->width, element, &width) ||
      reinterpret_cast<std::uintptr_t>(params->dst) % element != 0 ||
      (params->height > 1 && params->pitch % element != 0))
    return cudaErrorInvalidValue;
  FillRequest request{params->dst, static_cast<int>(params->value), width, params->height};
  request.pitch = params->pitch;
  request.element = element;
  FillWork work;
  const cudaError_t status = make_work(call.runtime.memory, request, work);
  if (status != cudaSuccess) return status;
  if (work.width == 0) return cudaErrorInvalidValue;
  action = {cudaGraphNodeTypeMemset, work};
  return cudaSuccess;
}

cudaError_t to_action(const cudaHostNodeParams* params, NodeAction& action) {
  if (params == nullptr || params->fn == nullptr) return cudaErrorInvalidValue;
  action = {cudaGraphNodeTypeHost, HostWork{params->fn, nullptr, nullptr, params->userData}};
  return cudaSuccess;
}

cudaError_t to_action(const Call& call, cudaGraphNodeType type, cudaEvent_t event,
                      NodeAction& action) {
  Event* const found = call.runtime.events.find(reinterpret_cast<std::uint64_t>(event));
  if (found == nullptr) return cudaErrorInvalidValue;
  action = {type, JoinWork{}, Ref<Event>(found)};
  if (type == cudaGraphNodeTypeWaitEvent) action.work = WaitWork{};
  return cudaSuccess;
}

cudaError_t to_action(const Call& call, const cudaGraphNodeParams& params, NodeAction& action) {
  switch (params.type) {
    case cudaGraphNodeTypeEmpty:
      action = {};
      return cudaSuccess;
    case cudaGraphNodeTypeMemcpy:
      return params.memcpy.flags == 0 ? to_action(call, &params.memcpy.copyParams, action)
                                      : cudaErrorInvalidValue;
    case cudaGraphNodeTypeMemset: {
      const auto& fill = params.memset;
      const cudaMemsetParams plain{fill.dst,         fill.pitch, fill.value,
                                   fill.elementSize, fill.width, fill.height};
      return to_action(call, &plain, action);
    }
    case cudaGraphNodeTypeHost: {
      const cudaHostNodeParams plain{params.host.fn, params.host.userData};
      return to_action(&plain, action);
    }
    case cudaGraphNodeTypeWaitEvent:
      return to_action(call, params.type, params.eventWait.event, action);
    case cudaGraphNodeTypeEventRecord:
      return to_action(call, params.type, params.eventRecord.event, action);
    default:
      return cudaErrorNotSupported;
  }
}

namespace {

std::size_t bytes_used(const cudaGraphNodeParams& params) {
  switch (params.type) {
    case cudaGraphNodeTypeEmpty:
      return 0;
    case cudaGraphNodeTypeMemcpy:
      return sizeof params.memcpy;
    case cudaGraphNodeTypeMemset:
      return sizeof params.memset;
    case cudaGraphNodeTypeHost:
      return sizeof params.host;
    case cudaGraphNodeTypeGraph:
      return sizeof params.graph;
    case cudaGraphNodeTypeWaitEvent:
      return sizeof params.eventWait;
    case cudaGraphNodeTypeEventRecord:
      return sizeof params.eventRecord;
    case cudaGraphNodeTypeMemAlloc:
      return sizeof params.alloc;
    case cudaGraphNodeTypeMemFree:
      return sizeof params.free;
    default:
      return sizeof params.reserved1;
  }
}

}  // namespace

bool rest_is_zero(const cudaGraphNodeParams& params) {
  const auto zero = [](auto value) { return value == 0; };
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&params.reserved1);
  return std::all_of(std::begin(params.reserved0), std::end(params.reserved0), zero) &&
         std::all_of(bytes + bytes_used(params), bytes + sizeof params.reserved1, zero) &&
         params.reserved2 == 0;
}

// ---- From work to parameters

cudaMemcpy3DParms copy_params(const CopyWork& work) {
  const auto rows = [&](std::size_t pitch, std::size_t slice) {
    return work.depth > 1 && pitch != 0 ? slice / pitch : work.height;
  };
  cudaMemcpy3DParms params{};
  params.srcPtr = {const_cast<void*>(work.source), work.source_pitch, work.width,
                   rows(work.source_pitch, work.source_slice)};
  params.dstPtr = {work.destination, work.destination_pitch, work.width,
                   rows(work.destination_pitch, work.destination_slice)};
  params.extent = {work.width, work.height, work.depth};
  params.kind = work.direction;
  return params;
}

cudaError_t fill_params(const FillWork& work, cudaMemsetParams& params) {
  if (work.depth > 1 && work.slice != work.pitch * work.height) return cudaErrorNotSupported;
  // CUDA writes the lowest byte of the value.
  const unsigned mask = work.element == 4 ? ~0u : (1u << (8 * work.element)) - 1;
  params = {};
  params.dst = work.destination;
  params.pitch = work.pitch;
  params.value = static_cast<unsigned>(work.value) & mask;
  params.elementSize = work.element;
  params.width = work.width / work.element;
  params.height = work.height * work.depth;
  return cudaSuccess;
}

cudaMemAllocNodeParams allocation_params(const Memory& memory, const GraphNode& node) {
  const auto& work = std::get<AllocateWork>(node.action.work);
  cudaMemAllocNodeParams params{};
  params.poolProps.allocType = cudaMemAllocationTypePinned;
  params.poolProps.location = {cudaMemLocationTypeDevice, memory.at(work.data)->device};
  params.accessDescs = node.access.empty() ? nullptr : node.access.data();
  params.accessDescCount = node.access.size();
  params.bytesize = work.bytes;
  params.dptr = work.data;
  return params;
}

}  // namespace penstock::emulation::detail
