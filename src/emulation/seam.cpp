// SPDX-License-Identifier: Apache-2.0
#include "seam.hpp"

#include <string>
#include <thread>

#include "report.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// The settings of a thread belong to one runtime; a new runtime resets them.
void renew(ThreadState& thread, const Runtime& runtime) {
  if (thread.era == runtime.era) return;
  thread.era = runtime.era;
  thread.device = 0;
  thread.last_error = cudaSuccess;
  thread.capture_mode = cudaStreamCaptureModeGlobal;
}

}  // namespace

cudaError_t Call::admit() {
  renew(thread, runtime);
  thread.call = begin_ == Time{} ? 0 : observation().next_call();
  ++runtime.counters.calls[static_cast<std::size_t>(function_)];
  runtime.scheduler.note_call();
  if (thread.in_host_function && !has(traits::infallible)) return cudaErrorNotPermitted;
  const cudaError_t planned = runtime.failures.next(function_);
  if (planned != cudaSuccess) {
    if (is_sticky(planned) && !runtime.devices.empty()) device().failure = planned;
    return planned;
  }
  if (has(traits::stateless)) return cudaSuccess;
  if (runtime.devices.empty()) return cudaErrorNoDevice;
  if (!has(traits::releasing) && device().failure != cudaSuccess) return device().failure;
  return has(traits::unsafe) ? runtime.captures.admit_unsafe(thread) : cudaSuccess;
}

cudaError_t Call::conclude(cudaError_t status) {
  keep(status);
  if (begin_ != Time{}) {
    const std::vector<std::size_t>& used = runtime.memory.device_used();
    observation().call({name(), thread.call, status, begin_, Clock::now(), used.data(),
                        static_cast<int>(used.size())});
  }
  return status;
}

void Call::keep(cudaError_t& status) {
  if (has(traits::infallible)) return;
  if (status == cudaSuccess && !has(traits::stateless)) status = device().failure;
  // cudaErrorNotReady is an answer, so cudaGetLastError does not report it.
  if (status != cudaSuccess && status != cudaErrorNotReady) thread.last_error = status;
}

cudaError_t Call::find(cudaStream_t handle, Stream** stream) const {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    *stream = device().legacy.get();
  } else if (handle == cudaStreamPerThread) {
    forget_thread_at_its_end();
    *stream = &runtime.per_thread_stream(thread.number, device());
  } else {
    *stream = runtime.streams.find(reinterpret_cast<std::uint64_t>(handle));
  }
  if (*stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (has(traits::launching)) {
    runtime.scheduler.prepare(**stream);
    target_ = Ref<Stream>(*stream);
  }
  return has(traits::releasing) ? cudaSuccess : (*stream)->device.failure;
}

cudaError_t Call::find(cudaEvent_t handle, Event** event) const {
  *event = runtime.events.find(reinterpret_cast<std::uint64_t>(handle));
  if (*event == nullptr || (*event)->gone()) return cudaErrorInvalidResourceHandle;
  const auto index = static_cast<std::size_t>((*event)->device());
  return has(traits::releasing) ? cudaSuccess : runtime.devices[index]->failure;
}

cudaError_t Call::submit(Stream& stream, Work work, Mark* end) {
  const cudaError_t status = runtime.captures.admit(stream);
  if (status != cudaSuccess) return status;
  if (stream.capture != nullptr) {
    runtime.captures.add(stream, {node_type(work), work});
    return cudaSuccess;
  }
  Mark mark = runtime.scheduler.submit(stream, runtime.scheduler.task(name(), work));
  if (end != nullptr) *end = std::move(mark);
  return cudaSuccess;
}

/// Visits the stream and, for the legacy default stream, the blocking streams of its device.
template <class Visit>
void Call::for_each_part(Stream& stream, Visit visit) const {
  visit(stream);
  if (!stream.legacy()) return;
  for (const Ref<Stream>& other : runtime.scheduler.streams())
    if (&other->device == &stream.device && other->blocking()) visit(*other);
}

void Call::await_room() {
  if (target_ && target_->launches > kQueueLength && target_->capture == nullptr)
    runtime.scheduler.await_room(lock, target_, name());
}

cudaError_t Call::await_unordered(const Mark& mark) {
  if (!runtime.scheduler.await(lock, mark)) return cudaErrorCudartUnloading;
  return mark.stream && !has(traits::releasing) ? mark.stream->device.failure : cudaSuccess;
}

cudaError_t Call::await(const Mark& mark) {
  const cudaError_t status = await_unordered(mark);
  if (mark.reached()) runtime.settle(mark);
  return status;
}

cudaError_t Call::query_elsewhere(Event& event, std::uint64_t record) {
  Device& device = *runtime.devices[static_cast<std::size_t>(event.device())];
  switch (event.shared()->progress(record)) {
    case SharedEvent::Progress::pending:
      return device.failure != cudaSuccess ? device.failure : cudaErrorNotReady;
    case SharedEvent::Progress::failed:
      return device.failure = cudaErrorExternalDevice;
    case SharedEvent::Progress::done:
      break;
  }
  runtime.scheduler.acquire_from_other_processes();
  return cudaSuccess;
}

cudaError_t Call::await_elsewhere(const Ref<Event>& event, std::uint64_t record) {
  const Time begin = Clock::now();
  for (;;) {
    const cudaError_t status = query_elsewhere(*event, record);
    if (status != cudaErrorNotReady) return status;
    if (runtime.scheduler.stopping()) return cudaErrorCudartUnloading;
    runtime.scheduler.pump(lock);
    lock.unlock();
    std::this_thread::sleep_for(look_again_after(Clock::now() - begin));
    lock.lock();
  }
}

cudaError_t Call::tell_full() const {
  report(std::string(name()) + ": " + std::to_string(SharedEvent::kRecords) +
         " records of an event that processes share are not done: wait for some of them");
  return cudaErrorMemoryAllocation;
}

cudaError_t Call::await_all(Stream& stream) {
  if (!stream.legacy()) return await(stream.end());
  runtime.settle_ended(stream.device, true);
  std::vector<Mark> ends;
  for_each_part(stream, [&](Stream& part) { ends.push_back(part.end()); });
  for (const Mark& end : ends)
    if (const cudaError_t status = await(end); status != cudaSuccess) return status;
  return cudaSuccess;
}

/// Blocks until no queued work can access the allocation. CUDA does so without promising it, so no
/// order is stated, and race detection reports a free without a wait of its own.
cudaError_t Call::await_users(const Allocation& allocation) {
  const Device* const device =
      allocation.page_locked() || allocation.origin == Origin::managed
          ? nullptr
          : runtime.devices[static_cast<std::size_t>(allocation.device)].get();
  return runtime.await_idle(lock, device, false) ? cudaSuccess : cudaErrorCudartUnloading;
}

cudaError_t Call::release(void* data, Origin one, Origin other) {
  const auto find = [&] {
    const Allocation* allocation = runtime.memory.at(data);
    const bool right =
        allocation != nullptr && (allocation->origin == one || allocation->origin == other);
    return right ? allocation : nullptr;
  };
  if (find() == nullptr) return cudaErrorInvalidValue;
  const cudaError_t status = await_users(*find());
  if (status != cudaSuccess) return status;
  if (find() == nullptr)
    return cudaErrorInvalidValue;  // Another thread has freed it during the wait.
  runtime.memory.release(data);
  return cudaSuccess;
}

cudaError_t Call::query_all(Stream& stream) {
  bool done = true;
  for_each_part(stream, [&](const Stream& part) { done = done && part.drained(); });
  if (done) {
    for_each_part(stream, [&](Stream& part) { acquire(part.end()); });
    if (stream.legacy()) stream.device.ended.acquire_blocking();
    return cudaSuccess;
  }
  if (++stream.unready_queries >= kQueriesThatDemand)
    for_each_part(stream, [&](Stream& part) { runtime.scheduler.demand(part.end()); });
  return cudaErrorNotReady;
}

}  // namespace penstock::emulation::detail
