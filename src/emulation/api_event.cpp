// SPDX-License-Identifier: Apache-2.0
//
// Calls about events.

#include "seam.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr unsigned kEventFlags =
    cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;

cudaError_t create(Call& call, cudaEvent_t* event, unsigned flags) {
  if (event == nullptr || (flags & ~kEventFlags) != 0) return cudaErrorInvalidValue;
  const bool interprocess = (flags & cudaEventInterprocess) != 0;
  if (interprocess && (flags & cudaEventDisableTiming) == 0) return cudaErrorInvalidValue;
  const Ref<Event> made(new Event(call.thread.device, flags));
  made->handle = call.runtime.events.add(made);
  *event = reinterpret_cast<cudaEvent_t>(made->handle);
  return cudaSuccess;
}

cudaError_t record(Call& call, cudaEvent_t event_handle, cudaStream_t stream_handle,
                   unsigned flags) {
  Event* event = nullptr;
  Stream* stream = nullptr;
  cudaError_t status = call.find(event_handle, &event);
  if (status == cudaSuccess) status = call.find(stream_handle, &stream);
  if (status != cudaSuccess) return status;
  if (flags > cudaEventRecordExternal) return cudaErrorInvalidValue;
  if (event->device() != stream->device.index) return cudaErrorInvalidResourceHandle;
  status = call.runtime.captures.admit(*stream);
  if (status != cudaSuccess) return status;
  if (stream->capture != nullptr) {
    if (flags == cudaEventRecordExternal)
      call.runtime.captures.add(*stream,
                                {cudaGraphNodeTypeEventRecord, JoinWork{}, Ref<Event>(event)});
    else if (event->opened())
      return cudaErrorStreamCaptureUnsupported;  // Another process cannot take part in the capture.
    else
      call.runtime.captures.record(*stream, *event);
    return cudaSuccess;
  }
  if (flags == cudaEventRecordExternal) return cudaErrorInvalidValue;
  // A record that has begun must be completed, so a thread for it is prepared first.
  call.runtime.scheduler.prepare(*stream, RecordWork{});
  const std::uint64_t number = event->begin_record();
  if (number == 0) return call.tell_full();
  Task* const task = call.runtime.scheduler.task(call.name(), RecordWork{number});
  task->event = Ref<Event>(event);
  event->record(call.runtime.scheduler.submit(*stream, task));
  return cudaSuccess;
}

cudaError_t wait(Call& call, Stream& stream, Event& event, unsigned flags) {
  if (flags > cudaEventWaitExternal) return cudaErrorInvalidValue;
  Captures& captures = call.runtime.captures;
  const cudaError_t status = captures.admit(stream);
  if (status != cudaSuccess) return status;
  if (flags == cudaEventWaitExternal) {
    if (stream.capture == nullptr) return cudaErrorInvalidValue;
    captures.add(stream, {cudaGraphNodeTypeWaitEvent, WaitWork{}, Ref<Event>(&event)});
    return cudaSuccess;
  }
  if (captures.concerns(stream, event)) return captures.wait(stream, event);
  if (!event.recorded()) return cudaSuccess;
  Task* const task = call.runtime.scheduler.task(call.name(), WaitWork{});
  event.hold(*task);
  call.runtime.scheduler.submit(stream, task);
  return cudaSuccess;
}

cudaError_t query(Call& call, Event& event) {
  if (event.capture() != 0) return cudaErrorCapturedEvent;
  if (const std::uint64_t record = event.last_elsewhere(); record != 0)
    return call.query_elsewhere(event, record);
  if (!event.last().reached()) {
    if (event.count_unready_query() >= kQueriesThatDemand)
      call.runtime.scheduler.demand(event.last());
    return cudaErrorNotReady;
  }
  call.acquire(event.last());
  return cudaSuccess;
}

cudaError_t elapsed(const Event& start, const Event& end, float* milliseconds) {
  if (start.capture() != 0 || end.capture() != 0) return cudaErrorCapturedEvent;
  if (!start.timed() || !end.timed() || !start.recorded() || !end.recorded() ||
      start.device() != end.device())
    return cudaErrorInvalidResourceHandle;
  if (!start.last().reached() || !end.last().reached()) return cudaErrorNotReady;
  const std::chrono::duration<float, std::milli> time = end.time() - start.time();
  *milliseconds = time.count();
  return cudaSuccess;
}

}  // namespace

}  // namespace penstock::emulation::detail

using namespace penstock::emulation::detail;  // NOLINT: this file defines the functions of CUDA.

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return enter(Function::cudaEventCreate,
               [&](Call& call) { return create(call, event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return enter(Function::cudaEventCreateWithFlags,
               [&](Call& call) { return create(call, event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return enter(Function::cudaEventDestroy, [&](Call& call) {
    return call.runtime.events.remove(reinterpret_cast<std::uint64_t>(handle))
               ? cudaSuccess
               : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return enter(Function::cudaEventRecord,
               [&](Call& call) { return record(call, event, stream, cudaEventRecordDefault); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return enter(Function::cudaEventRecordWithFlags,
               [&](Call& call) { return record(call, event, stream, flags); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle,
                                unsigned flags) {
  return enter(Function::cudaStreamWaitEvent, [&](Call& call) {
    Stream* stream = nullptr;
    Event* event = nullptr;
    cudaError_t status = call.find(stream_handle, &stream);
    if (status == cudaSuccess) status = call.find(event_handle, &event);
    return status == cudaSuccess ? wait(call, *stream, *event, flags) : status;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return enter(Function::cudaEventQuery, [&](Call& call) {
    Event* event = nullptr;
    const cudaError_t status = call.find(handle, &event);
    return status == cudaSuccess ? query(call, *event) : status;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return enter(Function::cudaEventSynchronize, [&](Call& call) {
    Event* event = nullptr;
    const cudaError_t status = call.find(handle, &event);
    if (status != cudaSuccess) return status;
    if (event->capture() != 0) return cudaErrorCapturedEvent;
    const Mark last = event->last();  // The event may be destroyed while the host waits.
    const std::uint64_t elsewhere = event->last_elsewhere();
    const cudaError_t waited =
        elsewhere == 0 ? call.await(last) : call.await_elsewhere(Ref<Event>(event), elsewhere);
    if (waited == cudaSuccess) call.runtime.trim_pools();
    return waited;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle,
                                 cudaEvent_t end_handle) {
  return enter(Function::cudaEventElapsedTime, [&](Call& call) {
    Event *start = nullptr, *end = nullptr;
    cudaError_t status = call.find(start_handle, &start);
    if (status == cudaSuccess) status = call.find(end_handle, &end);
    if (status != cudaSuccess) return status;
    return milliseconds == nullptr ? cudaErrorInvalidValue : elapsed(*start, *end, milliseconds);
  });
}

}  // extern "C"
