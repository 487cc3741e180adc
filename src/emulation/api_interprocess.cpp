// SPDX-License-Identifier: Apache-2.0
//
// Calls about memory, events and pools that several processes of one machine share. A handle names
// a file in memory of the process that made it (memory_file.hpp); another process opens the file
// and maps its content.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "report.hpp"
#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr auto kLongestMove = std::chrono::seconds(10);

void tell(const Call& call, const std::string& what) {
  report(std::string(call.name()) + ": " + what);
}

/// Reports why a file in memory, or a page of it, is not available.
cudaError_t tell_missing(const Call& call) {
  tell(call, why_no_file());
  return cudaErrorMemoryAllocation;
}

/// Reports why the object of a handle is not available.
cudaError_t tell_gone(const Call& call, const InterprocessHandle& handle, const char* what) {
  const std::string process = "process " + std::to_string(handle.place.process);
  if (errno == EACCES || errno == EPERM)
    tell(call, "this process may not look into " + process +
                   ", which made the handle: both must be of the same user");
  else if (::access(("/proc/" + std::to_string(handle.place.process)).c_str(), F_OK) != 0)
    tell(call, process + ", which made the handle, has ended, or is in another PID namespace");
  else
    tell(call, process + " has not got the " + what + " of the handle any more");
  return cudaErrorMapBufferObjectFailed;
}

/// Returns this process's number for a device of another process. The numbers are the same on one
/// machine; the current device replaces a device that this process does not have.
int device_here(const Call& call, int device) {
  const bool here = device >= 0 && device < static_cast<int>(call.runtime.devices.size());
  return here ? device : call.thread.device;
}

// ---- Memory

cudaError_t get_handle(Call& call, cudaIpcMemHandle_t* handle, void* data) {
  const Allocation* const allocation = call.runtime.memory.at(data);
  if (handle == nullptr) return cudaErrorInvalidValue;
  if (allocation == nullptr) {
    const Range range = call.runtime.memory.classify(data, 1);
    if (range.allocation != nullptr && range.allocation->origin == Origin::device)
      tell(call,
           "this is not the first byte of an allocation; the other process would get the "
           "first byte");
    return cudaErrorInvalidValue;
  }
  if (allocation->origin != Origin::device) return cudaErrorInvalidValue;
  const SharedBlock* const block = call.runtime.memory.share(*allocation);
  if (block == nullptr) return tell_missing(call);
  call.runtime.scheduler.move_memory();
  block->handle(SharedKind::memory, allocation->bytes).write(*handle);
  return cudaSuccess;
}

/// Blocks until the memory has been moved to where this process can open it. The move waits while
/// the owning process runs a function of the program, which may write the memory.
cudaError_t await_memory(Call& call, const InterprocessHandle& handle, OpenedBlock& block) {
  const Time begin = Clock::now();
  while (!block.begun()) {
    if (block.lost()) return tell_gone(call, handle, "memory");
    const auto waited = Clock::now() - begin;
    if (waited > kLongestMove) {
      tell(call, "process " + std::to_string(handle.place.process) +
                     " has run a function of a stream for 10 s, and its memory can be opened by "
                     "others when none runs: make the handle before such functions");
      return cudaErrorMapBufferObjectFailed;
    }
    call.runtime.scheduler.pump(call.lock);
    call.lock.unlock();
    std::this_thread::sleep_for(look_again_after(waited));
    call.lock.lock();
    if (call.runtime.scheduler.stopping()) return cudaErrorCudartUnloading;
  }
  return cudaSuccess;
}

cudaError_t open(Call& call, void** data, const cudaIpcMemHandle_t& bytes, unsigned flags) {
  if (data == nullptr || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
  const auto handle = InterprocessHandle::read(bytes, SharedKind::memory);
  if (!handle) return cudaErrorInvalidValue;
  if (handle->of_this_process()) return cudaErrorDeviceUninitialized;
  Memory& memory = call.runtime.memory;
  const auto open_again = [&] {
    *data = memory.find_opened(*handle);
    if (*data != nullptr) ++memory.opened(*data)->opened;
    return *data != nullptr;
  };
  if (const void* const opened = memory.find_opened(*handle)) {
    if (memory.opened(opened)->lost()) return tell_gone(call, *handle, "memory");
    open_again();
    return cudaSuccess;
  }
  const auto file = SharedFile::find(SharedKind::memory, handle->place);
  if (!file) return tell_gone(call, *handle, "memory");
  std::unique_ptr<OpenedBlock> block = OpenedBlock::open(*file, *handle);
  if (!block) return tell_gone(call, *handle, "memory");
  const cudaError_t status = await_memory(call, *handle, *block);
  if (status != cudaSuccess) return status;
  if (open_again()) return cudaSuccess;  // Another thread has opened it during the wait.
  Allocation request;
  request.bytes = block->bytes();
  request.origin = Origin::opened;
  request.device = device_here(call, block->device());
  *data = memory.open(request, *file, std::move(block));
  if (*data != nullptr) return cudaSuccess;
  tell(call, "no addresses are left for " + std::to_string(request.bytes) +
                 " bytes of another process (device_bytes of PENSTOCK_EMULATION)");
  return cudaErrorMapBufferObjectFailed;
}

cudaError_t close(Call& call, void* data) {
  const Allocation* const allocation = call.runtime.memory.at(data);
  if (allocation == nullptr || allocation->origin != Origin::opened) return cudaErrorInvalidValue;
  if (unsigned& opened = call.runtime.memory.opened(data)->opened; opened > 1) {
    --opened;
    return cudaSuccess;
  }
  return call.release(data, Origin::opened, Origin::opened);
}

// ---- Events

cudaError_t get_handle(Call& call, cudaIpcEventHandle_t* handle, Event& event) {
  if (!event.interprocess()) return cudaErrorInvalidResourceHandle;
  if (handle == nullptr) return cudaErrorInvalidValue;
  if (!event.share()) return tell_missing(call);
  event.shared()->handle().write(*handle);
  return cudaSuccess;
}

cudaError_t open(Call& call, cudaEvent_t* event, const cudaIpcEventHandle_t& bytes) {
  if (event == nullptr) return cudaErrorInvalidValue;
  const auto handle = InterprocessHandle::read(bytes, SharedKind::event);
  if (!handle) return cudaErrorMapBufferObjectFailed;
  if (handle->of_this_process()) return cudaErrorDeviceUninitialized;
  const auto file = SharedFile::find(SharedKind::event, handle->place);
  std::unique_ptr<SharedEvent> shared = file ? SharedEvent::open(*file) : nullptr;
  if (!shared) return tell_gone(call, *handle, "event");
  const Ref<Event> made(new Event(device_here(call, shared->device()), cudaEventDisableTiming));
  made->become(std::move(shared));
  *event = reinterpret_cast<cudaEvent_t>(call.runtime.events.add(made));
  return cudaSuccess;
}

// ---- Pools

cudaError_t export_pool(Call& call, void* handle, Pool* pool, cudaMemAllocationHandleType type,
                        unsigned flags) {
  if (handle == nullptr || pool == nullptr || flags != 0 || !pool->file() || pool->imported() ||
      type != cudaMemHandleTypePosixFileDescriptor)
    return cudaErrorInvalidValue;
  const int descriptor = ::fcntl(pool->file()->descriptor(), F_DUPFD, STDERR_FILENO + 1);
  if (descriptor < 0) return tell_missing(call);
  *static_cast<int*>(handle) = descriptor;
  pool->exported = true;
  return cudaSuccess;
}

cudaError_t tell_no_pool(const Call& call) {
  tell(call, "the handle is not an open descriptor of an exported pool");
  return cudaErrorUnknown;
}

cudaError_t import_pool(Call& call, cudaMemPool_t* pool, void* handle,
                        cudaMemAllocationHandleType type, unsigned flags) {
  if (pool == nullptr || flags != 0 || type == cudaMemHandleTypeNone) return cudaErrorInvalidValue;
  if (type != cudaMemHandleTypePosixFileDescriptor) return cudaErrorNotSupported;
  const auto number = reinterpret_cast<std::intptr_t>(handle);
  const int descriptor = static_cast<int>(number);
  if (descriptor != number) return tell_no_pool(call);
  std::shared_ptr<SharedFile> file = SharedFile::of_descriptor(SharedKind::pool, descriptor);
  const std::optional<int> device = file ? device_of_pool_file(*file) : std::nullopt;
  if (!device) return tell_no_pool(call);
  const PoolPlace place{false, {cudaMemLocationTypeDevice, device_here(call, *device)}};
  const Ref<Pool> imported = call.runtime.create_pool(place, 0, std::move(file), true);
  *pool = reinterpret_cast<cudaMemPool_t>(imported->handle);
  return cudaSuccess;
}

cudaError_t export_pointer(Call& call, cudaMemPoolPtrExportData* data, void* pointer) {
  const Allocation* const allocation = call.runtime.memory.at(pointer);
  if (data == nullptr || allocation == nullptr || allocation->life == 0)
    return cudaErrorInvalidValue;
  if (!allocation->pool->exported) {
    tell(call, "export the pool first (cudaMemPoolExportToShareableHandle)");
    return cudaErrorInvalidValue;
  }
  call.runtime.memory.shared(pointer)->handle(SharedKind::pool, allocation->bytes).write(*data);
  return cudaSuccess;
}

cudaError_t import_pointer(Call& call, void** pointer, Pool* pool,
                           const cudaMemPoolPtrExportData* data) {
  if (pointer == nullptr || pool == nullptr || data == nullptr || !pool->imported())
    return cudaErrorInvalidValue;
  const auto handle = InterprocessHandle::read(*data, SharedKind::pool);
  if (!handle || handle->place.number != pool->file()->number()) return cudaErrorInvalidValue;
  std::unique_ptr<OpenedBlock> block = OpenedBlock::open(*pool->file(), *handle);
  if (!block) {
    tell(call, "process " + std::to_string(handle->place.process) +
                   " has freed the memory, or has ended");
    return cudaErrorInvalidValue;
  }
  pool->import(handle->bytes, std::move(block), pointer);
  return *pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  return enter(Function::cudaIpcGetMemHandle,
               [&](Call& call) { return get_handle(call, handle, data); });
}

cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned flags) {
  return enter(Function::cudaIpcOpenMemHandle, [&](Call& call) {
    return penstock::emulation::detail::open(call, data, handle, flags);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* data) {
  return enter(Function::cudaIpcCloseMemHandle,
               [&](Call& call) { return penstock::emulation::detail::close(call, data); });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event_handle) {
  return enter(Function::cudaIpcGetEventHandle, [&](Call& call) {
    if (event_handle == nullptr) return cudaErrorInvalidValue;
    Event* event = nullptr;
    const cudaError_t status = call.find(event_handle, &event);
    return status == cudaSuccess ? get_handle(call, handle, *event) : status;
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return enter(Function::cudaIpcOpenEventHandle,
               [&](Call& call) { return penstock::emulation::detail::open(call, event, handle); });
}

cudaError_t cudaMemPoolExportToShareableHandle(void* handle, cudaMemPool_t pool,
                                               cudaMemAllocationHandleType type, unsigned flags) {
  return enter(Function::cudaMemPoolExportToShareableHandle,
               [&](Call& call) { return export_pool(call, handle, call.find(pool), type, flags); });
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* pool, void* handle,
                                                 cudaMemAllocationHandleType type, unsigned flags) {
  return enter(Function::cudaMemPoolImportFromShareableHandle,
               [&](Call& call) { return import_pool(call, pool, handle, type, flags); });
}

cudaError_t cudaMemPoolExportPointer(cudaMemPoolPtrExportData* data, void* pointer) {
  return enter(Function::cudaMemPoolExportPointer,
               [&](Call& call) { return export_pointer(call, data, pointer); });
}

cudaError_t cudaMemPoolImportPointer(void** pointer, cudaMemPool_t pool,
                                     cudaMemPoolPtrExportData* data) {
  return enter(Function::cudaMemPoolImportPointer,
               [&](Call& call) { return import_pointer(call, pointer, call.find(pool), data); });
}

}  // extern "C"
