// SPDX-License-Identifier: Apache-2.0
//
// Calls about graphs as a whole, executable graphs and user objects.

#include <utility>

#include "graph_handles.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr unsigned long long kInstantiateFlags = cudaGraphInstantiateFlagAutoFreeOnLaunch |
                                                 cudaGraphInstantiateFlagUpload |
                                                 cudaGraphInstantiateFlagUseNodePriority;

UserObject* find(const Call& call, cudaUserObject_t handle) {
  return call.runtime.user_objects.find(reinterpret_cast<std::uint64_t>(handle));
}

/// A graph that allocates or frees memory can have only one executable graph at a time.
bool may_be_instantiated(const Call& call, const Graph& graph) {
  if (graph.embedded == Embedded::moved) return false;
  if (!graph.orders_memory()) return true;
  bool free = true;
  call.runtime.graph_execs.for_each(
      [&](const GraphExec& exec) { free = free && !exec.is_of(graph); });
  return free;
}

/// Writes the result to `params`.
cudaError_t instantiate(Call& call, cudaGraphExec_t* exec, cudaGraph_t graph_handle,
                        cudaGraphInstantiateParams& params) {
  params.errNode_out = nullptr;
  params.result_out = cudaGraphInstantiateError;
  const Graph* const graph = find(call, graph_handle);
  if (exec == nullptr || graph == nullptr || call.runtime.captures.captures(*graph))
    return cudaErrorInvalidValue;
  if ((params.flags & cudaGraphInstantiateFlagDeviceLaunch) != 0) return cudaErrorNotSupported;
  if ((params.flags & ~kInstantiateFlags) != 0) return cudaErrorInvalidValue;
  if (!may_be_instantiated(call, *graph)) return cudaErrorInvalidValue;
  GraphPlan plan(*graph);
  if (plan.in_cycle != 0) {
    params.errNode_out = reinterpret_cast<cudaGraphNode_t>(plan.in_cycle);
    params.result_out = cudaGraphInstantiateInvalidStructure;
    return cudaErrorInvalidValue;
  }
  *exec = reinterpret_cast<cudaGraphExec_t>(call.runtime.graph_execs.add(
      Ref<GraphExec>(new GraphExec(call.runtime, *graph, std::move(plan), params.flags))));
  params.result_out = cudaGraphInstantiateSuccess;
  return cudaSuccess;
}

cudaError_t instantiate(Call& call, cudaGraphExec_t* exec, cudaGraph_t graph,
                        unsigned long long flags) {
  cudaGraphInstantiateParams params{};
  params.flags = flags;
  return instantiate(call, exec, graph, params);
}

cudaError_t upload(Call& call, cudaStream_t stream_handle) {
  Stream* stream = nullptr;
  cudaError_t status = call.find(stream_handle, &stream);
  if (status == cudaSuccess) status = call.runtime.captures.admit(*stream);
  if (status == cudaSuccess && stream->capture != nullptr)
    return call.runtime.captures.admit_wait(*stream);
  return status == cudaSuccess ? call.submit(*stream, GraphWork{}) : status;
}

cudaError_t launch(Call& call, cudaGraphExec_t exec_handle, cudaStream_t stream_handle) {
  GraphExec* const exec = find(call, exec_handle);
  if (exec == nullptr) return cudaErrorInvalidValue;
  Stream* stream = nullptr;
  cudaError_t status = call.find(stream_handle, &stream);
  // A capture accepts neither a launch nor a wait here, so no child graph is made this way.
  if (status == cudaSuccess) status = call.runtime.captures.admit_wait(*stream);
  return status == cudaSuccess ? exec->launch(*stream, call.name()) : status;
}

cudaError_t create_user_object(Call& call, cudaUserObject_t* handle, void* data,
                               cudaHostFn_t destroy, unsigned references, unsigned flags) {
  if (handle == nullptr || destroy == nullptr || references == 0 ||
      flags != cudaUserObjectNoDestructorSync)
    return cudaErrorInvalidValue;
  const Ref<UserObject> object(new UserObject(data, destroy, references));
  object->handle = call.runtime.user_objects.add(object);
  *handle = reinterpret_cast<cudaUserObject_t>(object->handle);
  return cudaSuccess;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return enter(Function::cudaGraphCreate, [&](Call& call) {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *graph = reinterpret_cast<cudaGraph_t>(call.runtime.create_graph()->handle);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  return enter(Function::cudaGraphDestroy, [&](Call& call) {
    const Graph* const graph = find(call, handle);
    if (graph == nullptr || graph->embedded != Embedded::no ||
        call.runtime.captures.captures(*graph))
      return cudaErrorInvalidValue;
    call.runtime.graphs.remove(graph->handle);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return enter(Function::cudaGraphInstantiate,
               [&](Call& call) { return instantiate(call, exec, graph, flags); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return enter(Function::cudaGraphInstantiateWithFlags,
               [&](Call& call) { return instantiate(call, exec, graph, flags); });
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* params) {
  return enter(Function::cudaGraphInstantiateWithParams, [&](Call& call) {
    if (params == nullptr) return cudaErrorInvalidValue;
    cudaGraphExec_t made = nullptr;
    cudaError_t status = instantiate(call, exec == nullptr ? nullptr : &made, graph, *params);
    if (status == cudaSuccess && (params->flags & cudaGraphInstantiateFlagUpload) != 0)
      status = upload(call, params->uploadStream);
    if (status == cudaSuccess) {
      *exec = made;
    } else if (made != nullptr) {
      call.runtime.graph_execs.remove(reinterpret_cast<std::uint64_t>(made));
      params->result_out = cudaGraphInstantiateError;
    }
    return status;
  });
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t handle, unsigned long long* flags) {
  return enter(Function::cudaGraphExecGetFlags, [&](Call& call) {
    const GraphExec* const exec = find(call, handle);
    if (exec == nullptr || flags == nullptr) return cudaErrorInvalidValue;
    *flags = exec->flags();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  return enter(Function::cudaGraphExecDestroy, [&](Call& call) {
    return call.runtime.graph_execs.remove(reinterpret_cast<std::uint64_t>(handle))
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec_handle, cudaGraph_t graph_handle,
                                cudaGraphExecUpdateResultInfo* info) {
  return enter(Function::cudaGraphExecUpdate, [&](Call& call) {
    GraphExec* const exec = find(call, exec_handle);
    const Graph* const graph = find(call, graph_handle);
    if (exec == nullptr || graph == nullptr || info == nullptr ||
        graph->embedded == Embedded::moved)
      return cudaErrorInvalidValue;
    exec->update(*graph, *info);
    return info->result == cudaGraphExecUpdateSuccess ? cudaSuccess
                                                      : cudaErrorGraphExecUpdateFailure;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec_handle, cudaStream_t stream) {
  return enter(Function::cudaGraphUpload, [&](Call& call) {
    return find(call, exec_handle) == nullptr ? cudaErrorInvalidValue : upload(call, stream);
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return enter(Function::cudaGraphLaunch, [&](Call& call) { return launch(call, exec, stream); });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy,
                                 unsigned references, unsigned flags) {
  return enter(Function::cudaUserObjectCreate, [&](Call& call) {
    return create_user_object(call, object, data, destroy, references, flags);
  });
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t handle, unsigned count) {
  return enter(Function::cudaUserObjectRetain, [&](Call& call) {
    UserObject* const object = find(call, handle);
    if (object == nullptr || count == 0) return cudaErrorInvalidValue;
    object->retain(count);
    return cudaSuccess;
  });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned count) {
  return enter(Function::cudaUserObjectRelease, [&](Call& call) {
    UserObject* const object = find(call, handle);
    if (object == nullptr || count == 0) return cudaErrorInvalidValue;
    return call.runtime.release_user_object(*object, count);
  });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph_handle, cudaUserObject_t handle,
                                      unsigned count, unsigned flags) {
  return enter(Function::cudaGraphRetainUserObject, [&](Call& call) {
    Graph* const graph = find(call, graph_handle);
    UserObject* const object = find(call, handle);
    if (graph == nullptr || object == nullptr || count == 0 || flags > cudaGraphUserObjectMove)
      return cudaErrorInvalidValue;
    if (flags != cudaGraphUserObjectMove) object->retain(count);
    graph->objects.add(*object, count);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph_handle, cudaUserObject_t handle,
                                       unsigned count) {
  return enter(Function::cudaGraphReleaseUserObject, [&](Call& call) {
    Graph* const graph = find(call, graph_handle);
    UserObject* const object = find(call, handle);
    if (graph == nullptr || object == nullptr || count == 0 ||
        !graph->objects.remove(*object, count))
      return cudaErrorInvalidValue;
    return call.runtime.release_user_object(*object, count);
  });
}

}  // extern "C"
