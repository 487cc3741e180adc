// SPDX-License-Identifier: Apache-2.0
#include "copy_calls.hpp"

#include <cstring>

namespace penstock::emulation::detail {

namespace {

// What CUDA stages without waiting for the stream.
constexpr std::size_t kStagedAtOnce = std::size_t{64} << 10;

/// One side of a copy.
struct Side {
  bool device = false, host = false, pageable = false;
  int index = -1;  ///< of its device, when it is only there
};

bool describe(const Memory& memory, const void* data, std::size_t bytes, Side& side) {
  const Range range = memory.classify(data, bytes);
  if (!range.valid) return false;
  side.pageable = range.allocation == nullptr;
  const bool managed = !side.pageable && range.allocation->origin == Origin::managed;
  side.host = side.pageable || managed || range.allocation->page_locked();
  side.device = !side.host || managed;
  if (side.device) side.index = range.allocation->device;
  return true;
}

/// Whether the two sides allow this kind of copy; managed memory is on both. Finds the kind for
/// cudaMemcpyDefault.
bool fits(const Side& destination, const Side& source, cudaMemcpyKind& kind) {
  if (kind == cudaMemcpyDefault) {
    const bool to_device = destination.device, from_device = source.device;
    kind = to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                     : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
    return true;
  }
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (to_device ? destination.device : destination.host) &&
         (from_device ? source.device : source.host);
}

std::size_t extent(std::size_t pitch, const CopyRequest& request) {
  return (request.height - 1) * pitch + request.width;
}

/// Checks the request against the memory; an empty one is left with a width of 0.
cudaError_t make_work(const Memory& memory, const CopyRequest& request, CopyWork& work) {
  if (request.kind < cudaMemcpyHostToHost || request.kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  work = {
      request.destination, request.source, request.destination_pitch, request.source_pitch, 0, 0,
      request.kind,        false};
  if (request.width == 0 || request.height == 0) return cudaSuccess;
  if (request.width > request.destination_pitch || request.width > request.source_pitch)
    return cudaErrorInvalidPitchValue;
  Side destination, source;
  if (!describe(memory, request.destination, extent(request.destination_pitch, request),
                destination) ||
      !describe(memory, request.source, extent(request.source_pitch, request), source) ||
      !fits(destination, source, work.direction))
    return cudaErrorInvalidValue;
  work.width = request.width;
  work.height = request.height;
  work.pageable = destination.pageable || source.pageable;
  return cudaSuccess;
}

bool from_pageable(const CopyWork& work) {
  return work.direction == cudaMemcpyHostToDevice && work.pageable;
}

/// Reads the source on this thread, now: the task copies from what was read.
void stage(Task& task) {
  CopyWork& copy = std::get<CopyWork>(task.work);
  task.staging = std::make_unique<std::byte[]>(copy.bytes());
  const auto* row = static_cast<const std::byte*>(copy.source);
  {
    const Visible visible;
    for (std::size_t y = 0; y < copy.height; ++y, row += copy.source_pitch)
      std::memcpy(task.staging.get() + y * copy.width, row, copy.width);
  }
  copy.source = task.staging.get();
  copy.source_pitch = copy.width;
}

/// Queues the copy, with a pageable source read before the return, or captures it.
cudaError_t queue(Call& call, Stream& stream, const CopyWork& work, Mark& end) {
  if (stream.capture != nullptr || !from_pageable(work)) return call.submit(stream, work, &end);
  Task* const task = call.runtime.scheduler.task(call.name(), work);
  stage(*task);
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
  Side destination, source;
  const Memory& memory = call.runtime.memory;
  if (request.width != 0 &&
      (!describe(memory, request.destination, request.width, destination) ||
       !describe(memory, request.source, request.width, source) ||
       destination.index != destination_device || source.index != source_device))
    return cudaErrorInvalidValue;
  return copy_async(call, handle, request);
}

cudaError_t fill(Call& call, cudaStream_t handle, void* data, int value, std::size_t bytes,
                 bool synchronous) {
  Stream* stream = nullptr;
  cudaError_t status = call.find(handle, &stream);
  if (status == cudaSuccess) status = call.runtime.captures.admit(*stream);
  if (status != cudaSuccess || bytes == 0) return status;
  const Range range = call.runtime.memory.classify(data, bytes);
  if (!range.valid || range.allocation == nullptr) return cudaErrorInvalidValue;
  Mark end;
  const bool waits = synchronous && range.allocation->page_locked();
  status = call.submit(*stream, FillWork{data, value, bytes, synchronous}, &end);
  return status == cudaSuccess && waits ? call.await(end) : status;
}

}  // namespace penstock::emulation::detail
