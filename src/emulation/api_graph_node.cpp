// SPDX-License-Identifier: Apache-2.0
//
// Calls that add nodes to a graph, and get and set what a node does, in the graph or in an
// executable one.

#include <utility>

#include "graph_handles.hpp"
#include "node_params.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// The place where a call adds a node.
struct Site {
  cudaGraphNode_t* node;
  cudaGraph_t graph;
  const cudaGraphNode_t* dependencies;
  std::size_t count;
  const cudaGraphEdgeData* edges = nullptr;
};

/// Calls `add(graph, after, &node)`, which adds the node, if the place is valid.
template <class Add>
cudaError_t add_at(const Call& call, const Site& site, Add add) {
  Graph* const graph = find(call, site.graph);
  if (site.node == nullptr || graph == nullptr) return cudaErrorInvalidValue;
  std::vector<GraphNode*> after;
  cudaError_t status = find_all(call, *graph, site.dependencies, site.edges, site.count, after);
  GraphNode* node = nullptr;
  if (status == cudaSuccess) status = add(*graph, std::move(after), &node);
  if (status == cudaSuccess) *site.node = handle_of(*node);
  return status;
}

cudaError_t add_action(const Call& call, const Site& site, const NodeAction& action) {
  return add_at(call, site, [&](Graph& graph, std::vector<GraphNode*> after, GraphNode** node) {
    *node = &graph.add(action, std::move(after));
    return cudaSuccess;
  });
}

/// Adds a node whose action is made from the parameters of the call.
template <class... Params>
cudaError_t add_made(const Call& call, const Site& site, const Params&... params) {
  NodeAction action;
  const cudaError_t status = to_action(params..., action);
  return status == cudaSuccess ? add_action(call, site, action) : status;
}

/// Whether `graph` is `other`, or is nested in `other` as a child graph at any depth.
bool is_in(const Graph& graph, const Graph& other) {
  if (&graph == &other) return true;
  for (const Ref<GraphNode>& node : other.nodes())
    if (node->child && is_in(graph, *node->child)) return true;
  return false;
}

cudaError_t add_child(const Call& call, const Site& site, cudaGraph_t child_handle, Embedded how) {
  Graph* const child = find(call, child_handle);
  if (child == nullptr || child->embedded == Embedded::moved) return cudaErrorInvalidValue;
  if (how == Embedded::cloned && child->orders_memory()) return cudaErrorNotSupported;
  return add_at(call, site, [&](Graph& graph, std::vector<GraphNode*> after, GraphNode** node) {
    const bool moves = how == Embedded::moved;
    if (moves && (child->embedded != Embedded::no || is_in(graph, *child) ||
                  call.runtime.captures.captures(*child)))
      return cudaErrorInvalidValue;
    const Ref<Graph> own = moves ? Ref<Graph>(child) : child->clone();
    *node = &graph.add_child(own, how, std::move(after));
    return cudaSuccess;
  });
}

cudaError_t add_allocation(const Call& call, const Site& site, const cudaMemPoolProps& props,
                           const cudaMemAccessDesc* access, std::size_t access_count,
                           std::size_t bytes, void** data) {
  const int devices = static_cast<int>(call.runtime.devices.size());
  const auto is_device = [&](const cudaMemLocation& location) {
    return location.type == cudaMemLocationTypeDevice && location.id >= 0 && location.id < devices;
  };
  if (props.allocType != cudaMemAllocationTypePinned || !is_device(props.location) || bytes == 0 ||
      props.handleTypes != cudaMemHandleTypeNone || (access == nullptr && access_count != 0) ||
      access_count > call.runtime.devices.size())
    return cudaErrorInvalidValue;
  for (std::size_t i = 0; i < access_count; ++i)
    if (!is_device(access[i].location)) return cudaErrorInvalidValue;
  Device& device = *call.runtime.devices[static_cast<std::size_t>(props.location.id)];
  return add_at(call, site, [&](Graph& graph, std::vector<GraphNode*> after, GraphNode** node) {
    const cudaError_t status = graph.add_allocation(device, bytes, std::move(after), node);
    if (status != cudaSuccess) return status;
    (*node)->access.assign(access, access + access_count);
    *data = std::get<AllocateWork>((*node)->action.work).data;
    return cudaSuccess;
  });
}

cudaError_t add_free(const Call& call, const Site& site, void* data) {
  return add_at(call, site, [&](Graph& graph, std::vector<GraphNode*> after, GraphNode** node) {
    return graph.add_free(data, std::move(after), node);
  });
}

/// CUDA before 12.9 has no ownership of child graphs: they are cloned.
template <class Params>
Embedded ownership(const Params& child) {
  if constexpr (requires { child.ownership; })
    return static_cast<int>(child.ownership) == 1 ? Embedded::moved : Embedded::cloned;
  else
    return Embedded::cloned;
}

cudaError_t add_any(const Call& call, const Site& site, cudaGraphNodeParams* params) {
  if (params == nullptr || !rest_is_zero(*params)) return cudaErrorInvalidValue;
  switch (params->type) {
    case cudaGraphNodeTypeGraph:
      return add_child(call, site, params->graph.graph, ownership(params->graph));
    case cudaGraphNodeTypeMemAlloc: {
      auto& alloc = params->alloc;
      return add_allocation(call, site, alloc.poolProps, alloc.accessDescs, alloc.accessDescCount,
                            alloc.bytesize, &alloc.dptr);
    }
    case cudaGraphNodeTypeMemFree:
      return add_free(call, site, params->free.dptr);
    default:
      return add_made(call, site, call, *params);
  }
}

// ---- Existing nodes

/// Returns the node if it has this type, else null.
GraphNode* find(const Call& call, cudaGraphNode_t handle, cudaGraphNodeType type) {
  GraphNode* const node = find(call, handle);
  return node != nullptr && node->action.type == type ? node : nullptr;
}

cudaError_t set_action(const Call& call, cudaGraphNode_t handle, NodeAction action) {
  GraphNode* const node = find(call, handle, action.type);
  if (node == nullptr) return cudaErrorInvalidValue;
  node->action = std::move(action);
  return cudaSuccess;
}

cudaError_t set_action(const Call& call, cudaGraphExec_t exec_handle, cudaGraphNode_t handle,
                       const NodeAction& action) {
  GraphExec* const exec = find(call, exec_handle);
  const GraphNode* const node = find(call, handle);
  return exec == nullptr || node == nullptr ? cudaErrorInvalidValue
                                            : exec->set(node->handle, action);
}

template <class... Params>
cudaError_t set_made(const Call& call, cudaGraphNode_t node, const Params&... params) {
  NodeAction action;
  const cudaError_t status = to_action(params..., action);
  return status == cudaSuccess ? set_action(call, node, std::move(action)) : status;
}

template <class... Params>
cudaError_t set_made(const Call& call, cudaGraphExec_t exec, cudaGraphNode_t node,
                     const Params&... params) {
  NodeAction action;
  const cudaError_t status = to_action(params..., action);
  return status == cudaSuccess ? set_action(call, exec, node, action) : status;
}

cudaError_t set_child(const Call& call, cudaGraphExec_t exec_handle, cudaGraphNode_t handle,
                      cudaGraph_t child_handle) {
  GraphExec* const exec = find(call, exec_handle);
  const GraphNode* const node = find(call, handle);
  const Graph* const child = find(call, child_handle);
  if (exec == nullptr || node == nullptr || child == nullptr) return cudaErrorInvalidValue;
  return exec->update_child(node->handle, *child);
}

cudaError_t get_event(const Call& call, cudaGraphNode_t handle, cudaGraphNodeType type,
                      cudaEvent_t* event) {
  const GraphNode* const node = find(call, handle, type);
  if (node == nullptr || event == nullptr) return cudaErrorInvalidValue;
  *event = reinterpret_cast<cudaEvent_t>(node->action.event->handle);
  return cudaSuccess;
}

}  // namespace

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     const cudaGraphEdgeData* edges, std::size_t count,
                     cudaGraphNodeParams* params) {
  return enter(Function::cudaGraphAddNode, [&](Call& call) {
    return add_any(call, {node, graph, dependencies, count, edges}, params);
  });
}

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

// ---- Adding

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* dependencies, std::size_t count) {
  return enter(Function::cudaGraphAddEmptyNode, [&](Call& call) {
    return add_action(call, {node, graph, dependencies, count}, {});
  });
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, std::size_t count,
                                   const cudaMemcpy3DParms* params) {
  return enter(Function::cudaGraphAddMemcpyNode, [&](Call& call) {
    return add_made(call, {node, graph, dependencies, count}, call, params);
  });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, std::size_t count,
                                     void* destination, const void* source, std::size_t bytes,
                                     cudaMemcpyKind kind) {
  return enter(Function::cudaGraphAddMemcpyNode1D, [&](Call& call) {
    return add_made(call, {node, graph, dependencies, count}, call,
                    flat_copy(destination, source, bytes, kind));
  });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, std::size_t count,
                                   const cudaMemsetParams* params) {
  return enter(Function::cudaGraphAddMemsetNode, [&](Call& call) {
    return add_made(call, {node, graph, dependencies, count}, call, params);
  });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* dependencies, std::size_t count,
                                 const cudaHostNodeParams* params) {
  return enter(Function::cudaGraphAddHostNode, [&](Call& call) {
    return add_made(call, {node, graph, dependencies, count}, params);
  });
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                        const cudaGraphNode_t* dependencies, std::size_t count,
                                        cudaEvent_t event) {
  return enter(Function::cudaGraphAddEventRecordNode, [&](Call& call) {
    return add_made(call, {node, graph, dependencies, count}, call, cudaGraphNodeTypeEventRecord,
                    event);
  });
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                      const cudaGraphNode_t* dependencies, std::size_t count,
                                      cudaEvent_t event) {
  return enter(Function::cudaGraphAddEventWaitNode, [&](Call& call) {
    return add_made(call, {node, graph, dependencies, count}, call, cudaGraphNodeTypeWaitEvent,
                    event);
  });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                       const cudaGraphNode_t* dependencies, std::size_t count,
                                       cudaGraph_t child) {
  return enter(Function::cudaGraphAddChildGraphNode, [&](Call& call) {
    return add_child(call, {node, graph, dependencies, count}, child, Embedded::cloned);
  });
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, std::size_t count,
                                     cudaMemAllocNodeParams* params) {
  return enter(Function::cudaGraphAddMemAllocNode, [&](Call& call) {
    if (params == nullptr) return cudaErrorInvalidValue;
    return add_allocation(call, {node, graph, dependencies, count}, params->poolProps,
                          params->accessDescs, params->accessDescCount, params->bytesize,
                          &params->dptr);
  });
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                    const cudaGraphNode_t* dependencies, std::size_t count,
                                    void* data) {
  return enter(Function::cudaGraphAddMemFreeNode, [&](Call& call) {
    return add_free(call, {node, graph, dependencies, count}, data);
  });
}

// ---- Copies

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t handle, cudaMemcpy3DParms* params) {
  return enter(Function::cudaGraphMemcpyNodeGetParams, [&](Call& call) {
    const GraphNode* const node = find(call, handle, cudaGraphNodeTypeMemcpy);
    if (node == nullptr || params == nullptr) return cudaErrorInvalidValue;
    *params = copy_params(std::get<CopyWork>(node->action.work));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* params) {
  return enter(Function::cudaGraphMemcpyNodeSetParams,
               [&](Call& call) { return set_made(call, node, call, params); });
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* destination,
                                           const void* source, std::size_t bytes,
                                           cudaMemcpyKind kind) {
  return enter(Function::cudaGraphMemcpyNodeSetParams1D, [&](Call& call) {
    return set_made(call, node, call, flat_copy(destination, source, bytes, kind));
  });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* params) {
  return enter(Function::cudaGraphExecMemcpyNodeSetParams,
               [&](Call& call) { return set_made(call, exec, node, call, params); });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node,
                                               void* destination, const void* source,
                                               std::size_t bytes, cudaMemcpyKind kind) {
  return enter(Function::cudaGraphExecMemcpyNodeSetParams1D, [&](Call& call) {
    return set_made(call, exec, node, call, flat_copy(destination, source, bytes, kind));
  });
}

// ---- Fills

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t handle, cudaMemsetParams* params) {
  return enter(Function::cudaGraphMemsetNodeGetParams, [&](Call& call) {
    const GraphNode* const node = find(call, handle, cudaGraphNodeTypeMemset);
    if (node == nullptr || params == nullptr) return cudaErrorInvalidValue;
    return fill_params(std::get<FillWork>(node->action.work), *params);
  });
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* params) {
  return enter(Function::cudaGraphMemsetNodeSetParams,
               [&](Call& call) { return set_made(call, node, call, params); });
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams* params) {
  return enter(Function::cudaGraphExecMemsetNodeSetParams,
               [&](Call& call) { return set_made(call, exec, node, call, params); });
}

// ---- Host functions

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t handle, cudaHostNodeParams* params) {
  return enter(Function::cudaGraphHostNodeGetParams, [&](Call& call) {
    const GraphNode* const node = find(call, handle, cudaGraphNodeTypeHost);
    if (node == nullptr || params == nullptr) return cudaErrorInvalidValue;
    const auto& work = std::get<HostWork>(node->action.work);
    *params = {work.function, work.data};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* params) {
  return enter(Function::cudaGraphHostNodeSetParams,
               [&](Call& call) { return set_made(call, node, params); });
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const cudaHostNodeParams* params) {
  return enter(Function::cudaGraphExecHostNodeSetParams,
               [&](Call& call) { return set_made(call, exec, node, params); });
}

// ---- Events

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return enter(Function::cudaGraphEventRecordNodeGetEvent, [&](Call& call) {
    return get_event(call, node, cudaGraphNodeTypeEventRecord, event);
  });
}

cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return enter(Function::cudaGraphEventRecordNodeSetEvent, [&](Call& call) {
    return set_made(call, node, call, cudaGraphNodeTypeEventRecord, event);
  });
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                 cudaEvent_t event) {
  return enter(Function::cudaGraphExecEventRecordNodeSetEvent, [&](Call& call) {
    return set_made(call, exec, node, call, cudaGraphNodeTypeEventRecord, event);
  });
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return enter(Function::cudaGraphEventWaitNodeGetEvent, [&](Call& call) {
    return get_event(call, node, cudaGraphNodeTypeWaitEvent, event);
  });
}

cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return enter(Function::cudaGraphEventWaitNodeSetEvent, [&](Call& call) {
    return set_made(call, node, call, cudaGraphNodeTypeWaitEvent, event);
  });
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node,
                                               cudaEvent_t event) {
  return enter(Function::cudaGraphExecEventWaitNodeSetEvent, [&](Call& call) {
    return set_made(call, exec, node, call, cudaGraphNodeTypeWaitEvent, event);
  });
}

// ---- Child graphs, memory

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t handle, cudaGraph_t* graph) {
  return enter(Function::cudaGraphChildGraphNodeGetGraph, [&](Call& call) {
    const GraphNode* const node = find(call, handle, cudaGraphNodeTypeGraph);
    if (node == nullptr || graph == nullptr) return cudaErrorInvalidValue;
    *graph = handle_of(*node->child);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                 cudaGraph_t child) {
  return enter(Function::cudaGraphExecChildGraphNodeSetParams,
               [&](Call& call) { return set_child(call, exec, node, child); });
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t handle, cudaMemAllocNodeParams* params) {
  return enter(Function::cudaGraphMemAllocNodeGetParams, [&](Call& call) {
    const GraphNode* const node = find(call, handle, cudaGraphNodeTypeMemAlloc);
    if (node == nullptr || params == nullptr) return cudaErrorInvalidValue;
    *params = allocation_params(call.runtime.memory, *node);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t handle, void* data) {
  return enter(Function::cudaGraphMemFreeNodeGetParams, [&](Call& call) {
    const GraphNode* const node = find(call, handle, cudaGraphNodeTypeMemFree);
    if (node == nullptr || data == nullptr) return cudaErrorInvalidValue;
    *static_cast<void**>(data) = std::get<FreeWork>(node->action.work).data;
    return cudaSuccess;
  });
}

// ---- Nodes of any type

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* params) {
  return enter(Function::cudaGraphNodeSetParams, [&](Call& call) {
    if (params == nullptr || !rest_is_zero(*params)) return cudaErrorInvalidValue;
    return set_made(call, node, call, *params);
  });
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                       cudaGraphNodeParams* params) {
  return enter(Function::cudaGraphExecNodeSetParams, [&](Call& call) {
    if (params == nullptr || !rest_is_zero(*params)) return cudaErrorInvalidValue;
    return params->type == cudaGraphNodeTypeGraph ? set_child(call, exec, node, params->graph.graph)
                                                  : set_made(call, exec, node, call, *params);
  });
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec_handle, cudaGraphNode_t handle,
                                    unsigned enabled) {
  return enter(Function::cudaGraphNodeSetEnabled, [&](Call& call) {
    GraphExec* const exec = find(call, exec_handle);
    const GraphNode* const node = find(call, handle);
    if (exec == nullptr || node == nullptr) return cudaErrorInvalidValue;
    bool* const now = exec->enabled(node->handle);
    if (now == nullptr) return cudaErrorInvalidValue;
    *now = enabled != 0;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec_handle, cudaGraphNode_t handle,
                                    unsigned* enabled) {
  return enter(Function::cudaGraphNodeGetEnabled, [&](Call& call) {
    GraphExec* const exec = find(call, exec_handle);
    const GraphNode* const node = find(call, handle);
    if (exec == nullptr || node == nullptr || enabled == nullptr) return cudaErrorInvalidValue;
    const bool* const now = exec->enabled(node->handle);
    if (now == nullptr) return cudaErrorInvalidValue;
    *enabled = *now ? 1 : 0;
    return cudaSuccess;
  });
}

}  // extern "C"
