// SPDX-License-Identifier: Apache-2.0
#include "copy_calls.hpp"

#include <cstring>
#include <utility>

namespace penstock::emulation::detail {

namespace {

// What CUDA stages without waiting for the stream.
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

/// Whether the two sides allow this kind of copy; managed memory is on both. Finds the kind for
/// cudaMemcpyDefault.
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

/// From the first byte to behind the last one; false when no memory is that large.
bool extent(std::size_t pitch, const CopyRequest& request, std::size_t& bytes) {
  return !__builtin_mul_overflow(request.height - 1, pitch, &bytes) &&
         !__builtin_add_overflow(bytes, request.width, &bytes);
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
  std::size_t written = 0, read = 0;
  if (!extent(request.destination_pitch, request, written) ||
      !extent(request.source_pitch, request, read) ||
      !describe(memory, request.destination, written, work.to) ||
      !describe(memory, request.source, read, work.from) ||
      !fits(work.to, work.from, work.direction))
    return cudaErrorInvalidValue;
  work.width = request.width;
  work.height = request.height;
  work.pageable = pageable(work.to) || pageable(work.from);
  return cudaSuccess;
}

bool from_pageable(const CopyWork& work) {
  return work.direction == cudaMemcpyHostToDevice && work.pageable;
}

/// Reads the source on this thread, now: the task copies from what was read.
std::unique_ptr<std::byte[]> stage(const CopyWork& copy) {
  auto staging = std::make_unique<std::byte[]>(copy.bytes());
  const auto* row = static_cast<const std::byte*>(copy.source);
  const Visible visible;
  for (std::size_t y = 0; y < copy.height; ++y, row += copy.source_pitch)
    std::memcpy(staging.get() + y * copy.width, row, copy.width);
  return staging;
}

/// Queues the copy, with a pageable source read before the return, or captures it.
cudaError_t queue(Call& call, Stream& stream, const CopyWork& work, Mark& end) {
  if (stream.capture != nullptr || !from_pageable(work)) return call.submit(stream, work, &end);
  std::unique_ptr<std::byte[]> staging = stage(work);
  CopyWork staged = work;
  staged.source = staging.get();
  staged.source_pitch = work.width;
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
  const FillWork work{data, value, bytes, synchronous, place_of(range.allocation)};
  status = call.submit(*stream, work, &end);
  return status == cudaSuccess && waits ? call.await(end) : status;
}

}  // namespace penstock::emulation::detail
