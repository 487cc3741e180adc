// SPDX-License-Identifier: Apache-2.0
//
// Executes tasks: the part of the scheduler that accesses the program's memory and calls its
// functions. Race detection sees only these accesses and calls.
//
// A modelled copy uses the clock of the emulated machine. It begins when its engine is free and its
// turn has come, not when a thread wakes up for it, so a queue of copies keeps the modelled rate.
// The bytes move as late as the end of that interval permits, so that a program that reads the
// destination or overwrites the source without waiting gets wrong data.

#include <algorithm>
#include <array>
#include <cstring>

#include "device.hpp"
#include "event.hpp"
#include "scheduler.hpp"
#include "thread_state.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

/// Returns a time in which the CPU surely copies this many bytes.
Clock::duration generous_copy_time(std::size_t bytes) {
  constexpr double kBytesPerSecond = 2e9;
  constexpr auto kWakeUp = std::chrono::microseconds(100);
  return kWakeUp + std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(static_cast<double>(bytes) / kBytesPerSecond));
}

/// Calls `visit(slice, row)` for each row.
template <class Work, class Visit>
void for_each_row(const Work& work, Visit visit) {
  for (std::size_t slice = 0; slice < work.depth; ++slice)
    for (std::size_t row = 0; row < work.height; ++row) visit(slice, row);
}

/// Whether the rows are contiguous.
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

/// Fills with a value of several bytes. Race detection sees the copies that this makes.
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

/// The distance from the first byte to the end of the last.
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

/// Returns when the task's turn came, by the clock of the emulated machine.
Time Scheduler::ready_at(const Stream& stream, const Task& task) const {
  Time ready = std::max(stream.last_end, std::max(task.submitted, task.not_before));
  for (const Mark& mark : task.after)
    if (mark.stream) ready = std::max(ready, mark.stream->last_end);
  return ready;
}

void Scheduler::sleep_until(Stream& stream, Time time, Lock& lock) {
  while (!stopping_ && Clock::now() < time) stream.wake.wait_until(lock, time);
}

/// Executes the task, unless its device has failed already. Returns the new error of the device.
cudaError_t Scheduler::carry_out(Stream& stream, Task& task, Lock& lock) {
  cudaError_t status = stream.device.failure;
  if (std::holds_alternative<JoinWork>(task.work)) return status;
  if (status == cudaSuccess) status = failures_.next(kind_of(task.work));
  if (const auto* host = std::get_if<HostWork>(&task.work)) {
    // A callback receives the failure; a plain host function is no longer called.
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

/// Another process has reached its record.
cudaError_t Scheduler::arrive(Task& task, std::uint64_t record) {
  SharedEvent& event = *task.event->shared();
  if (event.progress(record) == SharedEvent::Progress::failed) return cudaErrorExternalDevice;
  if (task.edges) acquire_from_other_processes();
  if (keeps_time()) task.end = std::max(task.end, event.time(record));
  return cudaSuccess;
}

/// Whether the device may use the memory of all these bytes.
bool Scheduler::usable(const Task& task, const void* data, std::size_t bytes) const {
  return (memory_.unmappings() == task.unmappings || memory_.accessible(data, bytes)) &&
         memory_.usable(data);
}

/// Accesses the program's memory without the lock, while no memory is moved. A move needs a moment
/// without any access, so a copy or a fill that would begin while memory waits to be moved lets the
/// others end first. It does not wait while functions of the program run, because such a function
/// may wait for it.
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
  // Another process may have freed its memory during the copy.
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

/// Runs `work` late in the modelled duration; without one, it runs at once.
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

/// Overwrites freed memory, so that its next owner cannot read the old content.
void Scheduler::forget(FreeWork free, Lock& lock) {
  memory_.end_use(free);
  without_lock(lock, Touch::bytes, [&] { memory_.renew(free); });
  memory_.note_free(free);
}

/// An exception of the function ends the process, because no code could catch it.
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
