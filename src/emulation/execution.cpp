// SPDX-License-Identifier: Apache-2.0
//
// How a task is executed: the part of the scheduler that touches the program's memory and calls its
// functions. Only these are visible to race detection.
//
// A modelled copy runs in the machine's own time: it begins when its engine was free and its turn
// had come, not when a thread woke up to it, so a queue of copies keeps the model's rate. The bytes
// move late in that interval, as late as keeps the end: a program that reads the destination, or
// overwrites the source, without waiting is then caught at it.

#include <algorithm>
#include <array>
#include <cstring>

#include "device.hpp"
#include "event.hpp"
#include "scheduler.hpp"
#include "thread_state.hpp"

namespace penstock::emulation::detail {

namespace {

/// More than the CPU takes to copy this much.
Clock::duration generous_copy_time(std::size_t bytes) {
  constexpr double kBytesPerSecond = 2e9;
  constexpr auto kWakeUp = std::chrono::microseconds(100);
  return kWakeUp + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(static_cast<double>(bytes) / kBytesPerSecond));
}

/// `visit(slice, row)` for each row.
template <class Work, class Visit>
void for_each_row(const Work& work, Visit visit) {
  for (std::size_t slice = 0; slice < work.depth; ++slice)
    for (std::size_t row = 0; row < work.height; ++row) visit(slice, row);
}

/// Whether the rows follow each other without a gap.
template <class Work>
bool dense(const Work& work, std::size_t pitch, std::size_t slice) {
  return (work.height == 1 || pitch == work.width) &&
         (work.depth == 1 || slice == work.width * work.height);
}

void copy_bytes(const CopyWork& copy) {
  const Visible visible;
  if (dense(copy, copy.destination_pitch, copy.destination_slice) &&
      dense(copy, copy.source_pitch, copy.source_slice)) {
    std::memcpy(copy.destination, copy.source, copy.bytes());
    return;
  }
  auto* const destination = static_cast<std::byte*>(copy.destination);
  const auto* const source = static_cast<const std::byte*>(copy.source);
  for_each_row(copy, [&](std::size_t slice, std::size_t row) {
    std::memcpy(destination + slice * copy.destination_slice + row * copy.destination_pitch,
                source + slice * copy.source_slice + row * copy.source_pitch, copy.width);
  });
}

/// Fills with a value of several bytes. Race detection sees the copies of it.
void fill_with_pattern(const FillWork& fill) {
  std::array<std::byte, 4096> pattern;
  for (std::size_t i = 0; i < pattern.size(); i += fill.element)
    std::memcpy(&pattern[i], &fill.value, fill.element);
  auto* const destination = static_cast<std::byte*>(fill.destination);
  const Visible visible;
  for_each_row(fill, [&](std::size_t slice, std::size_t row) {
    std::byte* const begin = destination + slice * fill.slice + row * fill.pitch;
    for (std::size_t done = 0; done < fill.width; done += pattern.size())
      std::memcpy(begin + done, pattern.data(), std::min(pattern.size(), fill.width - done));
  });
}

void fill_bytes(const FillWork& fill) {
  if (fill.element > 1) return fill_with_pattern(fill);
  const Visible visible;
  if (dense(fill, fill.pitch, fill.slice)) {
    std::memset(fill.destination, fill.value, fill.bytes());
    return;
  }
  auto* const destination = static_cast<std::byte*>(fill.destination);
  for_each_row(fill, [&](std::size_t slice, std::size_t row) {
    std::memset(destination + slice * fill.slice + row * fill.pitch, fill.value, fill.width);
  });
}

/// From the first byte to behind the last one.
template <class Work>
std::size_t extent(const Work& work, std::size_t pitch, std::size_t slice) {
  return (work.depth - 1) * slice + (work.height - 1) * pitch + work.width;
}

}  // namespace

void Scheduler::run(Stream& stream, Lock& lock) {
  Task& task = *stream.head;
  stream.running = true;
  if (keeps_time()) task.begin = task.end = ready_at(stream, task);
  if (task.edges) {
    task.edges->submitted.acquire();
    for (const Mark& mark : task.after)
      if (mark.edges) mark.edges->completed.acquire();
    if (stream.legacy()) stream.device.ended.acquire_blocking();
  }
  const cudaError_t status = carry_out(stream, task, lock);
  if (status != cudaSuccess) stream.device.failure = status;
  if (task.edges) {
    task.edges->completed.release();
    if (task.event && task.event->shared() != nullptr &&
        std::holds_alternative<RecordWork>(task.work))
      through_others_.release();
  }
  finish(stream, task);
}

/// When the task's turn came, in the machine's own time.
Time Scheduler::ready_at(const Stream& stream, const Task& task) const {
  Time ready = std::max(stream.last_end, std::max(task.submitted, task.not_before));
  for (const Mark& mark : task.after)
    if (mark.stream) ready = std::max(ready, mark.stream->last_end);
  return ready;
}

void Scheduler::sleep_until(Stream& stream, Time time, Lock& lock) {
  while (!stopping_ && Clock::now() < time) stream.wake.wait_until(lock, time);
}

/// Executes the task, unless its device has failed before. Returns how the device fails now.
cudaError_t Scheduler::carry_out(Stream& stream, Task& task, Lock& lock) {
  cudaError_t status = stream.device.failure;
  if (std::holds_alternative<JoinWork>(task.work)) return status;
  if (status == cudaSuccess) status = failures_.next(kind_of(task.work));
  if (const auto* host = std::get_if<HostWork>(&task.work)) {
    // A callback is told of the failure; a plain host function is not called any more.
    if (status == cudaSuccess || host->callback != nullptr) call_host(task, status, lock);
    return status;
  }
  if (const auto* record = std::get_if<RecordWork>(&task.work)) {
    const bool needs_clock =
        (task.event->timed() || task.event->shared() != nullptr) && !keeps_time();
    task.event->reach(record->record, needs_clock ? Clock::now() : task.end, status != cudaSuccess);
  }
  if (status != cudaSuccess) return status;
  if (const auto* wait = std::get_if<WaitWork>(&task.work))
    return wait->record == 0 ? cudaSuccess : arrive(task, wait->record);
  if (std::holds_alternative<CopyWork>(task.work)) return copy(stream, task, lock);
  if (std::holds_alternative<FillWork>(task.work)) return fill(stream, task, lock);
  if (const auto* allocate = std::get_if<AllocateWork>(&task.work)) memory_.begin_use(*allocate);
  if (std::holds_alternative<FreeWork>(task.work)) forget(std::get<FreeWork>(task.work), lock);
  return cudaSuccess;
}

/// Another process has come to its record.
cudaError_t Scheduler::arrive(Task& task, std::uint64_t record) {
  SharedEvent& event = *task.event->shared();
  if (event.progress(record) == SharedEvent::Progress::failed) return cudaErrorExternalDevice;
  if (task.edges) acquire_from_other_processes();
  if (keeps_time()) task.end = std::max(task.end, event.time(record));
  return cudaSuccess;
}

/// Whether there is memory that the device may use behind all of the bytes.
bool Scheduler::usable(const Task& task, const void* data, std::size_t bytes) const {
  return (memory_.unmappings() == task.unmappings || memory_.accessible(data, bytes)) &&
         memory_.usable(data);
}

/// Does what touches the program's memory, while memory that waits to be moved does not move. It
/// moves when nothing touches memory: a copy or a fill that would begin meanwhile waits for the
/// others to end. It does not wait for functions of the program's, of which one may wait for it.
template <class Do>
void Scheduler::without_lock(Lock& lock, Touch touch, Do work) {
  touch_ended_.wait(lock, [this] {
    return !memory_.waits_to_move() || in_host_functions_ != 0 || moving_bytes_ == 0;
  });
  std::size_t& count = touch == Touch::bytes ? moving_bytes_ : in_host_functions_;
  ++count;
  lock.unlock();
  work();
  lock.lock();
  --count;
  if (memory_.waits_to_move()) move_memory();
}

void Scheduler::move_memory() {
  if (moving_bytes_ == 0 && in_host_functions_ == 0) memory_.move_to_blocks();
  touch_ended_.notify_all();
}

cudaError_t Scheduler::copy(Stream& stream, Task& task, Lock& lock) {
  const CopyWork& copy = std::get<CopyWork>(task.work);
  const auto both_usable = [&] {
    return usable(task, copy.destination,
                  extent(copy, copy.destination_pitch, copy.destination_slice)) &&
           usable(task, copy.source, extent(copy, copy.source_pitch, copy.source_slice));
  };
  if (!both_usable()) return cudaErrorIllegalAddress;
  memory_.note_use(copy.destination);
  memory_.note_use(copy.source);
  const auto duration = modelled_duration(options_.machine, copy);
  if (keeps_time() && stream.engine >= 0)
    task.begin = std::max(task.begin, stream.device.engines.free_at(stream));
  const auto move_bytes = [&] { without_lock(lock, Touch::bytes, [&] { copy_bytes(copy); }); };
  occupy(stream, task, duration, generous_copy_time(copy.bytes()), move_bytes, lock);
  // Another process may have freed its memory meanwhile.
  return memory_.usable(copy.destination) && memory_.usable(copy.source) ? cudaSuccess
                                                                         : cudaErrorIllegalAddress;
}

cudaError_t Scheduler::fill(Stream& stream, Task& task, Lock& lock) {
  const FillWork& fill = std::get<FillWork>(task.work);
  if (!usable(task, fill.destination, extent(fill, fill.pitch, fill.slice)))
    return cudaErrorIllegalAddress;
  memory_.note_use(fill.destination);
  const auto duration = modelled_duration(options_.machine, fill);
  const auto move_bytes = [&] { without_lock(lock, Touch::bytes, [&] { fill_bytes(fill); }); };
  occupy(stream, task, duration, generous_copy_time(fill.bytes()), move_bytes, lock);
  return memory_.usable(fill.destination) ? cudaSuccess : cudaErrorIllegalAddress;
}

/// Does `work` within the modelled duration, late in it; without one, at once.
template <class DoWork>
void Scheduler::occupy(Stream& stream, Task& task, Clock::duration duration, Clock::duration needed,
                       DoWork work, Lock& lock) {
  if (duration.count() == 0) {
    if (keeps_time()) task.begin = std::max(task.begin, Clock::now());
    work();
    if (keeps_time()) task.end = Clock::now();
    return;
  }
  task.end = task.begin + duration;
  sleep_until(stream, std::max(task.begin, task.end - needed), lock);
  if (!stopping_) work();
  sleep_until(stream, task.end, lock);
}

/// Whoever gets the memory next finds nothing of what it held.
void Scheduler::forget(FreeWork free, Lock& lock) {
  memory_.end_use(free);
  without_lock(lock, Touch::bytes, [&] { memory_.renew(free); });
  memory_.note_free(free);
}

/// What the function throws ends the process: nobody is there to catch it.
void Scheduler::call_host(Task& task, cudaError_t status, Lock& lock) noexcept {
  const HostWork host = std::get<HostWork>(task.work);
  if (keeps_time()) task.begin = std::max(task.begin, Clock::now());
  without_lock(lock, Touch::anything, [&] {
    const HostFunctionScope scope;
    const Visible visible;
    if (host.callback != nullptr)
      host.callback(host.stream, status, host.data);
    else
      host.function(host.data);
  });
  if (keeps_time()) task.end = Clock::now();
}

}  // namespace penstock::emulation::detail
