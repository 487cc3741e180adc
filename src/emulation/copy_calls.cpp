// SPDX-License-Identifier: Apache-2.0
#include "copy_calls.hpp"

#include <cstring>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

// CUDA stages copies up to this size without waiting for the stream.
constexpr std::size_t kStagedAtOnce = std::size_t{64} << 10;

Place place_of(const Allocation* allocation) {
  if (allocation == nullptr) return {};
  if (allocation->page_locked()) return {cudaMemoryTypeHost, cudaInvalidDeviceId};
  return {allocation->managed ? cudaMemoryTypeManaged : cudaMemoryTypeDevice, allocation->device};
}

bool pageable(const Place& place) {
  return place.type == cudaMemoryTypeUnregistered;
}
bool on_device(const Place& place) {
  return place.type == cudaMemoryTypeDevice || place.type == cudaMemoryTypeManaged;
}
bool on_host(const Place& place) {
  return place.type != cudaMemoryTypeDevice;
}

bool describe(const Memory& memory, const void* data, std::size_t bytes, Place& place) {
  const Range range = memory.classify(data, bytes);
  place = place_of(range.allocation);
  return range.valid;
}

/// Whether this kind of copy is valid between the two places; managed memory is valid on both
/// sides. Replaces cudaMemcpyDefault by the actual kind.
bool fits(const Place& destination, const Place& source, cudaMemcpyKind& kind) {
  if (kind == cudaMemcpyDefault) {
    const bool to_device = on_device(destination), from_device = on_device(source);
    kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                     : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
    return true;
  }
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to_device ? on_device(destination) : on_host(destination)) &&
         (from_device ? on_device(source) : on_host(source));
}

/// Computes the distance from the first byte to the end of the last. Returns false if it overflows.
template <class Request>
bool extent(const Request& request, std::size_t pitch, std::size_t slice, std::size_t& bytes) {
  std::size_t rows = 0;
  return !__builtin_mul_overflow(request.depth - 1, slice, &bytes) &&
         !__builtin_mul_overflow(request.height - 1, pitch, &rows) &&
         !__builtin_add_overflow(bytes, rows, &bytes) &&
         !__builtin_add_overflow(bytes, request.width, &bytes);
}

/// Finds where a box of bytes starts inside pitched memory, and its slices. Returns false if the
/// box does not lie inside.
bool locate(const cudaPitchedPtr& memory, const cudaPos& at, const cudaExtent& box, void** begin,
            std::size_t* slice) {
  std::size_t right = 0, bottom = 0, offset = 0, above = 0;
  if (__builtin_add_overflow(at.x, box.width, &right) ||
      __builtin_add_overflow(at.y, box.height, &bottom) ||
      __builtin_mul_overflow(memory.pitch, memory.ysize, slice) ||
      __builtin_mul_overflow(at.z, *slice, &offset) ||
      __builtin_mul_overflow(at.y, memory.pitch, &above) ||
      __builtin_add_overflow(offset, above, &offset) ||
      __builtin_add_overflow(offset, at.x, &offset))
    return false;
  const bool several_rows = box.height > 1 || box.depth > 1;
  if ((several_rows && right > memory.pitch) || (box.depth > 1 && bottom > memory.ysize))
    return false;
  *begin = static_cast<std::byte*>(memory.ptr) + offset;
  return true;
}

bool from_pageable(const CopyWork& work) {
  return work.direction == cudaMemcpyHostToDevice && work.pageable;
}

/// Reads the source on this thread now; the task copies from the result.
std::unique_ptr<std::byte[]> stage(const CopyWork& copy) {
  auto staging = std::make_unique<std::byte[]>(copy.bytes());
  const auto* const source = static_cast<const std::byte*>(copy.source);
  std::byte* row = staging.get();
  const Visible visible;
  for (std::size_t z = 0; z < copy.depth; ++z)
    for (std::size_t y = 0; y < copy.height; ++y, row += copy.width)
      std::memcpy(row, source + z * copy.source_slice + y * copy.source_pitch, copy.width);
  return staging;
}

/// Queues the copy, or captures it. A pageable source is read before this returns.
cudaError_t queue(Call& call, Stream& stream, const CopyWork& work, Mark& end) {
  if (stream.capture != nullptr || !from_pageable(work)) return call.submit(stream, work, &end);
  std::unique_ptr<std::byte[]> staging = stage(work);
  CopyWork staged = work;
  staged.source = staging.get();
  staged.source_pitch = work.width;
  staged.source_slice = work.width * work.height;
  Task* const task = call.runtime.scheduler.task(call.name(), staged);
  task->staging = std::move(staging);
  end = call.runtime.scheduler.submit(stream, task);
  return cudaSuccess;
}

cudaError_t prepare(Call& call, cudaStream_t handle, const CopyRequest& request, Stream** stream,
                    CopyWork& work) {
  cudaError_t status = call.find(handle, stream);
  if (status == cudaSuccess) status = make_work(call.runtime.memory, request, work);
  if (status == cudaSuccess) status = call.runtime.captures.admit(**stream);
  return status;
}

}  // namespace

cudaError_t make_work(const Memory& memory, const CopyRequest& request, CopyWork& work) {
  if (request.kind < cudaMemcpyHostToHost || request.kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  work = {
      request.destination, request.source, request.destination_pitch, request.source_pitch, 0, 0,
      request.kind,        false};
  if (request.width == 0 || request.height == 0 || request.depth == 0) return cudaSuccess;
  if (request.width > request.destination_pitch || request.width > request.source_pitch)
    return cudaErrorInvalidPitchValue;
  std::size_t written = 0, read = 0;
  if (!extent(request, request.destination_pitch, request.destination_slice, written) ||
      !extent(request, request.source_pitch, request.source_slice, read) ||
      !describe(memory, request.destination, written, work.to) ||
      !describe(memory, request.source, read, work.from) ||
      !fits(work.to, work.from, work.direction))
    return cudaErrorInvalidValue;
  work.width = request.width;
  work.height = request.height;
  work.depth = request.depth;
  work.destination_slice = request.destination_slice;
  work.source_slice = request.source_slice;
  work.pageable = pageable(work.to) || pageable(work.from);
  return cudaSuccess;
}

cudaError_t make_work(const Memory& memory, const FillRequest& request, FillWork& work) {
  work = {request.data,  request.value, 0, request.height, request.depth,
          request.pitch, request.slice};
  work.element = request.element;
  if (request.width == 0 || request.height == 0 || request.depth == 0) return cudaSuccess;
  std::size_t bytes = 0;
  if ((request.height > 1 && request.width > request.pitch) ||
      !extent(request, request.pitch, request.slice, bytes) ||
      !describe(memory, request.data, bytes, work.place) || pageable(work.place))
    return cudaErrorInvalidValue;
  work.width = request.width;
  return cudaSuccess;
}

cudaError_t copy_and_wait(Call& call, cudaStream_t handle, const CopyRequest& request) {
  Stream* stream = nullptr;
  CopyWork work;
  cudaError_t status = prepare(call, handle, request, &stream, work);
  if (status == cudaSuccess) status = call.runtime.captures.admit_wait(*stream);
  if (status != cudaSuccess || work.width == 0) return status;
  work.synchronous = true;
  if (from_pageable(work)) status = call.await_all(*stream);
  if (status != cudaSuccess) return status;
  Mark end;
  status = queue(call, *stream, work, end);
  if (status != cudaSuccess) return status;
  if (from_pageable(work))
    return work.bytes() > kStagedAtOnce ? call.await_unordered(end) : cudaSuccess;
  return work.direction == cudaMemcpyDeviceToDevice ? cudaSuccess : call.await(end);
}

cudaError_t copy_async(Call& call, cudaStream_t handle, const CopyRequest& request) {
  Stream* stream = nullptr;
  CopyWork work;
  cudaError_t status = prepare(call, handle, request, &stream, work);
  if (status != cudaSuccess || work.width == 0) return status;
  if (work.pageable) ++call.runtime.counters.pageable;
  work.synchronous = request.synchronous;
  Mark end;
  status = queue(call, *stream, work, end);
  if (status != cudaSuccess || stream->capture != nullptr) return status;
  if (work.direction == cudaMemcpyHostToHost) return call.await(end);
  const bool blocks =
      work.pageable && (work.direction == cudaMemcpyDeviceToHost || work.bytes() > kStagedAtOnce);
  return blocks ? call.await_unordered(end) : cudaSuccess;
}

cudaError_t copy_between_devices(Call& call, cudaStream_t handle, const CopyRequest& request,
                                 int destination_device, int source_device) {
  const int devices = static_cast<int>(call.runtime.devices.size());
  if (destination_device < 0 || destination_device >= devices || source_device < 0 ||
      source_device >= devices)
    return cudaErrorInvalidDevice;
  Place destination, source;
  const Memory& memory = call.runtime.memory;
  if (request.width != 0 &&
      (!describe(memory, request.destination, request.width, destination) ||
       !describe(memory, request.source, request.width, source) ||
       destination.device != destination_device || source.device != source_device))
    return cudaErrorInvalidValue;
  return copy_async(call, handle, request);
}

cudaError_t box_copy(const cudaMemcpy3DParms* params, CopyRequest& request) {
  // Arrays are not emulated, so such a handle is invalid.
  if (params == nullptr || params->srcArray != nullptr || params->dstArray != nullptr)
    return cudaErrorInvalidValue;
  const cudaExtent& box = params->extent;
  const cudaPitchedPtr &to = params->dstPtr, &from = params->srcPtr;
  void* source = nullptr;
  if (!locate(to, params->dstPos, box, &request.destination, &request.destination_slice) ||
      !locate(from, params->srcPos, box, &source, &request.source_slice))
    return cudaErrorInvalidValue;
  request.source = source;
  request.destination_pitch = to.pitch;
  request.source_pitch = from.pitch;
  request.width = box.width;
  request.height = box.height;
  request.depth = box.depth;
  request.kind = params->kind;
  return cudaSuccess;
}

cudaError_t box_fill(const cudaPitchedPtr& memory, int value, const cudaExtent& extent,
                     FillRequest& request) {
  request = {memory.ptr, value, extent.width, extent.height, extent.depth, memory.pitch};
  return locate(memory, {}, extent, &request.data, &request.slice) ? cudaSuccess
                                                                   : cudaErrorInvalidValue;
}

cudaError_t fill(Call& call, cudaStream_t handle, const FillRequest& request, bool synchronous) {
  Stream* stream = nullptr;
  FillWork work;
  cudaError_t status = call.find(handle, &stream);
  if (status == cudaSuccess) status = call.runtime.captures.admit(*stream);
  if (status == cudaSuccess) status = make_work(call.runtime.memory, request, work);
  if (status != cudaSuccess || work.width == 0) return status;
  work.synchronous = synchronous;
  Mark end;
  const bool waits = synchronous && work.place.type == cudaMemoryTypeHost;
  status = call.submit(*stream, work, &end);
  return status == cudaSuccess && waits ? call.await(end) : status;
}

}  // namespace penstock::emulation::detail
