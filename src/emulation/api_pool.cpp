// SPDX-License-Identifier: Apache-2.0
//
// Calls about stream-ordered memory and its pools.

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// Inside a capture, the graph owns the memory.
cudaError_t allocate_in_graph(Call& call, Stream& stream, std::size_t bytes, void** data) {
  GraphNode* node = nullptr;
  const cudaError_t status =
      stream.capture->graph->add_allocation(stream.device, bytes, stream.capture_tail, &node);
  if (status != cudaSuccess) return status;
  call.runtime.captures.advance(stream, *node);
  *data = std::get<AllocateWork>(node->action.work).data;
  return cudaSuccess;
}

cudaError_t allocate(Call& call, void** data, std::size_t bytes, Pool* pool, cudaStream_t handle) {
  Stream* stream = nullptr;
  cudaError_t status = call.find(handle, &stream);
  if (status != cudaSuccess) return status;
  if (data == nullptr) return cudaErrorInvalidValue;
  *data = nullptr;
  status = call.runtime.captures.admit(*stream);
  if (status != cudaSuccess || bytes == 0) return status;
  if (pool == nullptr) pool = stream->device.pools.current.get();
  if (pool->imported()) return cudaErrorInvalidValue;
  if (stream->capture != nullptr)
    return pool->place().managed ? cudaErrorNotSupported
                                 : allocate_in_graph(call, *stream, bytes, data);
  Mark after;
  const Device& device = *call.runtime.devices[static_cast<std::size_t>(pool->device())];
  status = call.runtime.allocate_on(device,
                                    [&] { return pool->allocate(bytes, *stream, data, &after); });
  if (status != cudaSuccess) return status;
  const AllocateWork work{*data, bytes, call.runtime.memory.at(*data)->life};
  Task* const task = call.runtime.scheduler.task(call.name(), work);
  if (after.stream || after.edges) task->after.push_back(std::move(after));
  call.runtime.memory.note_allocation(*data, call.runtime.scheduler.submit(*stream, task));
  return cudaSuccess;
}

/// Frees memory of a graph inside a capture.
cudaError_t free_in_graph(Call& call, Stream& stream, void* data) {
  GraphNode* node = nullptr;
  const cudaError_t status = stream.capture->graph->add_free(data, stream.capture_tail, &node);
  if (status == cudaSuccess) call.runtime.captures.advance(stream, *node);
  return status;
}

cudaError_t free(Call& call, void* data, cudaStream_t handle) {
  Stream* stream = nullptr;
  cudaError_t status = call.find(handle, &stream);
  if (status != cudaSuccess) return status;
  if (data == nullptr) return cudaSuccess;
  status = call.runtime.captures.admit(*stream);
  if (status != cudaSuccess) return status;
  const Allocation* const found = call.runtime.memory.at(data);
  if (found == nullptr) return cudaErrorInvalidValue;
  const Allocation allocation = *found;
  const bool of_graph = allocation.origin == Origin::graph;
  if (stream->capture != nullptr) return free_in_graph(call, *stream, data);
  if (!of_graph && allocation.origin != Origin::pool) return cudaErrorInvalidValue;
  if (of_graph) {
    status = call.runtime.free_graph_memory(data);
    if (status != cudaSuccess) return status;
  }
  Task* const task = call.runtime.scheduler.task(call.name(), allocation.free());
  task->kept_alive = of_graph ? Ref<Counted>(call.runtime.graph_memory[data])
                              : Ref<Counted>(allocation.pool.get());
  Mark freed = call.runtime.scheduler.submit(*stream, task);
  if (!of_graph) allocation.pool->free(allocation, std::move(freed));
  return cudaSuccess;
}

cudaError_t get_pool(Call& call, cudaMemPool_t* handle, int device, bool own) {
  if (handle == nullptr) return cudaErrorInvalidValue;
  if (device < 0 || device >= static_cast<int>(call.runtime.devices.size()))
    return cudaErrorInvalidDevice;
  const PoolChoice& choice = call.runtime.devices[static_cast<std::size_t>(device)]->pools;
  *handle = reinterpret_cast<cudaMemPool_t>((own ? choice.own : choice.current)->handle);
  return cudaSuccess;
}

/// Finds the memory place of a pool of this type.
cudaError_t find_place(const Call& call, const cudaMemLocation& location,
                       cudaMemAllocationType type, PoolPlace& place) {
  place.managed = type == cudaMemAllocationTypeManaged;
  if (!place.managed && type != cudaMemAllocationTypePinned) return cudaErrorInvalidValue;
  if (location.type == cudaMemLocationTypeHostNumaCurrent) return cudaErrorInvalidValue;
  // cudaMemLocationTypeNone has the same value: managed memory need not prefer a location.
  if (place.managed && location.type == cudaMemLocationTypeInvalid) return cudaSuccess;
  const cudaError_t status = call.runtime.find_location(location, place.location);
  if (status != cudaSuccess) return status;
  return place.managed || location.type == cudaMemLocationTypeDevice ? cudaSuccess
                                                                     : cudaErrorNotSupported;
}

cudaError_t get_pool(Call& call, cudaMemPool_t* handle, const cudaMemLocation* location,
                     cudaMemAllocationType type, bool own) {
  if (handle == nullptr || location == nullptr) return cudaErrorInvalidValue;
  PoolPlace place;
  const cudaError_t status = find_place(call, *location, type, place);
  if (status != cudaSuccess) return status;
  const PoolChoice& choice = call.runtime.pools_of(place);
  *handle = reinterpret_cast<cudaMemPool_t>((own ? choice.own : choice.current)->handle);
  return cudaSuccess;
}

cudaError_t create(Call& call, cudaMemPool_t* handle, const cudaMemPoolProps* props) {
  if (handle == nullptr || props == nullptr) return cudaErrorInvalidValue;
  if (props->location.type == cudaMemLocationTypeHost &&
      props->handleTypes != cudaMemHandleTypeNone)
    return cudaErrorInvalidValue;
  PoolPlace place;
  const cudaError_t status = find_place(call, props->location, props->allocType, place);
  if (status != cudaSuccess) return status;
  std::shared_ptr<SharedFile> file;
  if (props->handleTypes != cudaMemHandleTypeNone) {
    constexpr unsigned kFabric = 8;  // CUDA before 12.3 has no name for it.
    const auto types = static_cast<unsigned>(props->handleTypes);
    if (place.managed || (types & ~(cudaMemHandleTypePosixFileDescriptor | kFabric)) != 0)
      return cudaErrorInvalidValue;
    if ((types & kFabric) != 0) return cudaErrorNotSupported;
    file = make_pool_file(place.device());
    if (!file) return cudaErrorMemoryAllocation;
  }
  const Ref<Pool> pool = call.runtime.create_pool(place, props->maxSize, file);
  *handle = reinterpret_cast<cudaMemPool_t>(pool->handle);
  return cudaSuccess;
}

bool is_device(const Call& call, const cudaMemLocation& location) {
  return location.type == cudaMemLocationTypeDevice && location.id >= 0 &&
         location.id < static_cast<int>(call.runtime.devices.size());
}

/// Sets all entries, or none if one is invalid. The pool's own device keeps its access.
cudaError_t set_access(const Call& call, Pool& pool, const cudaMemAccessDesc* list,
                       std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const cudaMemAccessFlags flags = list[i].flags;
    const bool known = flags == cudaMemAccessFlagsProtNone || flags == cudaMemAccessFlagsProtRead ||
                       flags == cudaMemAccessFlagsProtReadWrite;
    if (!known || !is_device(call, list[i].location) ||
        (list[i].location.id == pool.device() && flags != cudaMemAccessFlagsProtReadWrite))
      return cudaErrorInvalidValue;
  }
  for (std::size_t i = 0; i < count; ++i) pool.set_access(list[i].location.id, list[i].flags);
  return cudaSuccess;
}

/// Returns the pool, or null if the handle is invalid or the pool is imported.
Pool* find_own(const Call& call, cudaMemPool_t handle) {
  Pool* const pool = call.find(handle);
  return pool == nullptr || pool->imported() ? nullptr : pool;
}

cudaError_t destroy(Call& call, Pool& pool) {
  PoolChoice& choice = call.runtime.pools_of(pool.place());
  if (choice.own.get() == &pool) return cudaErrorInvalidValue;
  if (choice.current.get() == &pool) choice.current = choice.own;
  call.runtime.pools.remove(pool.handle);
  return cudaSuccess;
}

}  // namespace

cudaError_t default_pool(cudaMemPool_t* pool, const cudaMemLocation* location,
                         cudaMemAllocationType type) {
  return enter(Function::cudaMemGetDefaultMemPool,
               [&](Call& call) { return get_pool(call, pool, location, type, true); });
}

cudaError_t current_pool(cudaMemPool_t* pool, const cudaMemLocation* location,
                         cudaMemAllocationType type) {
  return enter(Function::cudaMemGetMemPool,
               [&](Call& call) { return get_pool(call, pool, location, type, false); });
}

cudaError_t set_current_pool(const cudaMemLocation* location, cudaMemAllocationType type,
                             cudaMemPool_t handle) {
  return enter(Function::cudaMemSetMemPool, [&](Call& call) {
    Pool* const pool = call.find(handle);
    if (pool == nullptr || location == nullptr) return cudaErrorInvalidValue;
    PoolPlace place;
    const cudaError_t status = find_place(call, *location, type, place);
    if (status != cudaSuccess) return status;
    if (pool->place() != place || pool->imported()) return cudaErrorInvalidValue;
    call.runtime.pools_of(place).current = Ref<Pool>(pool);
    return cudaSuccess;
  });
}

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  return enter(Function::cudaMallocAsync,
               [&](Call& call) { return allocate(call, data, bytes, nullptr, stream); });
}

cudaError_t cudaMallocFromPoolAsync(void** data, std::size_t bytes, cudaMemPool_t handle,
                                    cudaStream_t stream) {
  return enter(Function::cudaMallocFromPoolAsync, [&](Call& call) {
    Pool* const pool = call.find(handle);
    return pool == nullptr ? cudaErrorInvalidValue : allocate(call, data, bytes, pool, stream);
  });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  return enter(Function::cudaFreeAsync,
               [&](Call& call) { return penstock::emulation::detail::free(call, data, stream); });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return enter(Function::cudaDeviceGetDefaultMemPool,
               [&](Call& call) { return get_pool(call, pool, device, true); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return enter(Function::cudaDeviceGetMemPool,
               [&](Call& call) { return get_pool(call, pool, device, false); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t handle) {
  return enter(Function::cudaDeviceSetMemPool, [&](Call& call) {
    Pool* const pool = call.find(handle);
    if (pool == nullptr || pool->imported() || pool->place().managed || pool->device() != device)
      return cudaErrorInvalidValue;
    call.runtime.pools_of(pool->place()).current = Ref<Pool>(pool);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* props) {
  return enter(Function::cudaMemPoolCreate, [&](Call& call) { return create(call, pool, props); });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t handle) {
  return enter(Function::cudaMemPoolDestroy, [&](Call& call) {
    Pool* const pool = call.find(handle);
    return pool == nullptr ? cudaErrorInvalidValue : destroy(call, *pool);
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return enter(Function::cudaMemPoolSetAttribute, [&](Call& call) {
    Pool* const pool = find_own(call, handle);
    return pool == nullptr || value == nullptr ? cudaErrorInvalidValue
                                               : pool->set(attribute, value);
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t handle, cudaMemPoolAttr attribute, void* value) {
  return enter(Function::cudaMemPoolGetAttribute, [&](Call& call) {
    const Pool* const pool = find_own(call, handle);
    return pool == nullptr || value == nullptr ? cudaErrorInvalidValue
                                               : pool->get(attribute, value);
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t handle, const cudaMemAccessDesc* list,
                                 std::size_t count) {
  return enter(Function::cudaMemPoolSetAccess, [&](Call& call) {
    Pool* const pool = call.find(handle);
    return pool == nullptr || list == nullptr || count == 0 ? cudaErrorInvalidValue
                                                            : set_access(call, *pool, list, count);
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t handle,
                                 cudaMemLocation* location) {
  return enter(Function::cudaMemPoolGetAccess, [&](Call& call) {
    const Pool* const pool = call.find(handle);
    if (flags == nullptr || pool == nullptr || location == nullptr || !is_device(call, *location))
      return cudaErrorInvalidValue;
    *flags = pool->access(location->id);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t handle, std::size_t keep) {
  return enter(Function::cudaMemPoolTrimTo, [&](Call& call) {
    Pool* const pool = find_own(call, handle);
    if (pool == nullptr) return cudaErrorInvalidValue;
    pool->trim(keep);
    return cudaSuccess;
  });
}

}  // extern "C"
