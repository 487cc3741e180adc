// SPDX-License-Identifier: Apache-2.0
#include "scheduler.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "device.hpp"
#include "event.hpp"
#include "random.hpp"
#include "report.hpp"
#include "thread_state.hpp"
#include "threads.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

constexpr std::size_t kShortBytes = std::size_t{64} << 10;  // such a copy is faster than a wake-up

}  // namespace

Scheduler::Scheduler(std::mutex& mutex, const Options& options, Memory& memory, Failures& failures,
                     Timeline& timeline)
    : mutex_(mutex),
      options_(options),
      memory_(memory),
      failures_(failures),
      timeline_(timeline),
      models_time_(models_time(options.machine)),
      helps_(options.schedule == Schedule::eager && !models_time_ && !detects_races()),
      host_turn_(options) {}

// ---- Streams

void Scheduler::adopt(Ref<Stream> stream) {
  streams_.push_back(std::move(stream));
}

void Scheduler::close(Stream& stream) {
  stream.closed = true;
  retire(stream);
}

/// Removes a closed stream that has no work left. Its thread, if it has one, ends first.
void Scheduler::retire(Stream& stream) {
  if (!stream.closed || !stream.drained()) return;
  if (stream.has_thread) {
    stream.wake.notify_one();
    return;
  }
  const auto is_it = [&](const Ref<Stream>& other) { return other.get() == &stream; };
  const auto found = std::find_if(streams_.begin(), streams_.end(), is_it);
  if (found != streams_.end()) streams_.erase(found);
}

// ---- Submission

Task* Scheduler::task(const char* name, Work work) {
  Task* const task = store_.take();
  task->name = name;
  task->work = work;
  task->unmappings = memory_.unmappings();
  return task;
}

void Scheduler::prepare(Stream& stream, const Work& work) {
  if (options_.schedule == Schedule::lazy) start_idle_watcher();
  if (!stream.has_thread && !(helps_ && is_short(work))) start_thread(stream);
}

void Scheduler::start_thread(Stream& stream) {
  start_thread_of(describe(stream), [this, &stream] { serve(stream); });
  stream.has_thread = true;
  ++threads_;
}

Mark Scheduler::submit(Stream& stream, Task* task) {
  try {
    prepare(stream, task->work);
  } catch (...) {
    store_.give_back(task);
    throw;
  }
  order_by_default_stream(stream, *task);
  task->sequence = ++stream.submitted;
  task->correlation = ++submissions_;
  task->call = this_thread().call;
  if (keeps_time()) task->submitted = Clock::now();
  task->edges = make_task_edges();
  if (task->edges) task->edges->submitted.release();
  stream.last_edges = task->edges;
  stream.unready_queries = 0;
  if (task->counts) ++stream.launches;
  const bool first = stream.drained();
  (first ? stream.head : stream.tail->next) = task;
  stream.tail = task;
  if (options_.schedule == Schedule::lazy) watch_idleness();
  if (first) kick(stream);
  return stream.end();
}

/// The legacy default stream and the blocking streams of its device wait for each other.
void Scheduler::order_by_default_stream(Stream& stream, Task& task) {
  if (stream.legacy()) {
    for (const Ref<Stream>& other : streams_) {
      if (&other->device != &stream.device || !other->blocking()) continue;
      if (other->awaited_by_legacy == other->submitted) continue;
      other->awaited_by_legacy = other->submitted;
      task.after.push_back(other->end());
    }
  } else if (stream.blocking()) {
    Stream& legacy = *stream.device.legacy;
    if (stream.legacy_awaited == legacy.submitted) return;
    stream.legacy_awaited = legacy.submitted;
    task.after.push_back(legacy.end());
  }
}

// ---- When a task may start

/// Decides whether the stream's first task may start now. If it is blocked, the event that unblocks
/// it kicks the stream.
Scheduler::Readiness Scheduler::examine(Stream& stream) {
  Task& task = *stream.head;
  if (stopping_ || !demanded(stream)) return Readiness::blocked;
  for (; task.reached < task.after.size(); ++task.reached) {
    const Mark& mark = task.after[task.reached];
    if (mark.reached()) continue;
    watch(mark, stream);
    return Readiness::blocked;
  }
  if (waits_for_another_process(stream, task)) {
    // Nothing wakes the stream. The longer it has waited, the less often it checks.
    const Time now = Clock::now();
    if (task.looks_since == Time{}) task.looks_since = now;
    stream.look_again = now + look_again_after(now - task.looks_since);
    return Readiness::later;
  }
  if (!task.scheduled) {
    task.scheduled = true;
    task.not_before = earliest_start(stream, task);
  }
  if (task.not_before != Time{} && Clock::now() < task.not_before) {
    stream.look_again = task.not_before;
    return Readiness::later;
  }
  if (std::holds_alternative<HostWork>(task.work) && !host_turn_.take(stream))
    return Readiness::later;
  const auto* copy = std::get_if<CopyWork>(&task.work);
  const bool on_engine = copy != nullptr && copy->direction != cudaMemcpyHostToHost;
  if (on_engine && !stream.device.engines.take(stream, copy->direction)) return Readiness::blocked;
  return Readiness::ready;
}

Time Scheduler::earliest_start(const Stream& stream, const Task& task) const {
  const auto latency = options_.machine.launch_latency;
  Time earliest = latency.count() > 0 ? task.submitted + latency : Time{};
  if (options_.schedule == Schedule::random)
    earliest = std::max(earliest, Clock::now() + random_delay(random_bits(
                                                     options_.seed, stream.number, task.sequence)));
  return earliest;
}

void Scheduler::watch(const Mark& mark, Stream& stream) {
  if (std::exchange(stream.watching, true)) return;
  mark.stream->watchers.push_back({&stream, mark.sequence});
}

bool Scheduler::is_short(const Work& work) const {
  if (const auto* copy = std::get_if<CopyWork>(&work)) return copy->bytes() <= kShortBytes;
  if (const auto* fill = std::get_if<FillWork>(&work)) return fill->bytes() <= kShortBytes;
  if (const auto* free = std::get_if<FreeWork>(&work)) return free->bytes <= kShortBytes;
  if (const auto* wait = std::get_if<WaitWork>(&work)) return wait->record == 0;
  return !std::holds_alternative<HostWork>(work);
}

/// Whether the task waits for a record that another process has not reached. A failed device does
/// not wait.
bool Scheduler::waits_for_another_process(const Stream& stream, const Task& task) const {
  const auto* const wait = std::get_if<WaitWork>(&task.work);
  return wait != nullptr && wait->record != 0 && stream.device.failure == cudaSuccess &&
         task.event->shared()->progress(wait->record) == SharedEvent::Progress::pending;
}

// ---- Moving a stream

/// Examines the stream again, because something may have unblocked it.
void Scheduler::kick(Stream& stream) {
  if (stream.drained() || stream.running) return;
  const Readiness readiness = examine(stream);
  if (readiness == Readiness::blocked) return;
  if (helps_ && readiness == Readiness::ready && is_short(stream.head->work)) {
    if (!std::exchange(stream.runnable, true)) runnable_.push_back(&stream);
  } else {
    stream.wake.notify_one();  // `prepare` has started its thread.
  }
}

void Scheduler::pump(Lock& lock) {
  while (!runnable_.empty()) {
    Stream& stream = *runnable_.back();
    runnable_.pop_back();
    stream.runnable = false;
    if (stream.drained() || stream.running) continue;
    if (examine(stream) == Readiness::ready) run(stream, lock);
  }
}

/// The body of a stream's thread.
void Scheduler::serve(Stream& stream) {
  const Hidden hidden;
  pthread_setname_np(pthread_self(), "penstock stream");
  prctl(PR_SET_TIMERSLACK, 1UL);  // Without it, sleeps of modelled copies would end 50 us late.
  Lock lock(mutex_);
  while (!stopping_) {
    if (stream.drained() && stream.closed) break;
    const bool idle = stream.drained() || stream.running;
    const Readiness readiness = idle ? Readiness::blocked : examine(stream);
    if (readiness == Readiness::ready) {
      run(stream, lock);
      pump(lock);
    } else if (readiness == Readiness::later) {
      stream.wake.wait_until(lock, stream.look_again);
    } else {
      stream.wake.wait(lock);
    }
  }
  stream.has_thread = false;
  stream.device.ended.add(stream);
  retire(stream);
  --threads_;
  thread_ended_.notify_all();
}

/// Removes the stream's first task, which is done, and unblocks what waited for it.
void Scheduler::finish(Stream& stream, Task& task) {
  const bool told = !std::holds_alternative<JoinWork>(task.work);
  if (told && (timeline_.recording() || observation().on())) {
    const Operation operation = describe(task, stream);
    if (timeline_.recording()) timeline_.add(operation);
    observation().operation(operation);
  }
  if (task.counts) --stream.launches;
  stream.head = task.next;
  if (stream.drained()) stream.tail = nullptr;
  stream.completed = task.sequence;
  stream.last_end = task.end;
  stream.running = false;
  for (const HostWait& wait : stream.host_waits)
    if (wait.sequence <= stream.completed) wait.wake->notify_one();
  const std::uint64_t draw = random_bits(options_.seed, stream.number, ~task.sequence);
  Stream* const next_host = host_turn_.give_back(stream, draw);
  Stream* next_on_engine = nullptr;
  if (stream.engine >= 0) {
    next_on_engine = stream.device.engines.give_back(
        stream, task.end, options_.schedule == Schedule::random ? &draw : nullptr);
  }
  store_.give_back(&task);

  if (next_host != nullptr) kick(*next_host);
  if (next_on_engine != nullptr) kick(*next_on_engine);
  notify_watchers(stream);
  kick(stream);
  retire(stream);
}

void Scheduler::notify_watchers(Stream& stream) {
  for (std::size_t i = 0; i < stream.watchers.size();) {
    const Watcher watcher = stream.watchers[i];
    if (watcher.sequence > stream.completed) {
      ++i;
      continue;
    }
    stream.watchers[i] = stream.watchers.back();
    stream.watchers.pop_back();
    watcher.stream->watching = false;
    kick(*watcher.stream);
  }
}

// ---- The host waits

bool Scheduler::await(Lock& lock, const Mark& mark) {
  return await_until(lock, mark, Time::max());
}

bool Scheduler::await_until(Lock& lock, const Mark& mark, Time deadline) {
  demand(mark);
  pump(lock);
  if (mark.reached()) return true;
  std::condition_variable wake;
  auto& waits = mark.stream->host_waits;
  waits.push_back({mark.sequence, &wake});
  const auto over = [&] { return mark.reached() || stopping_; };
  if (deadline == Time::max())
    wake.wait(lock, over);
  else
    wake.wait_until(lock, deadline, over);
  const auto is_mine = [&](const HostWait& wait) { return wait.wake == &wake; };
  waits.erase(std::find_if(waits.begin(), waits.end(), is_mine));
  return mark.reached();
}

void Scheduler::await_room(Lock& lock, const Ref<Stream>& stream, const char* call) {
  bool reports = options_.report_after.count() > 0;
  while (!stopping_ && stream->launches > kQueueLength) {
    const Mark first{stream, stream->completed + 1, {}};
    const Time deadline = reports ? Clock::now() + options_.report_after : Time::max();
    if (await_until(lock, first, deadline) || stopping_) continue;
    reports = false;
    report(std::string(call) + " has waited for " + std::to_string(options_.report_after.count()) +
           " ms for room in the queue of " + describe(*stream) + ", which holds " +
           std::to_string(kQueueLength) + " operations. The first of them, by " +
           stream->head->name +
           ", does not end: if it waits for the thread of this call, it waits for ever.");
  }
}

// ---- Deferred functions

void Scheduler::defer(HostWork work, std::vector<std::shared_ptr<Edge>> after) {
  deferred_.push_back({work, std::move(after)});
  if (std::exchange(deferred_thread_, true)) return;
  ++threads_;
  try {
    start_thread_of("functions that destroy user objects", [this] { serve_deferred(); });
  } catch (const OutOfResources& problem) {
    give_up(problem.what());  // Destructors call this, so it must not throw.
  }
}

void Scheduler::serve_deferred() {
  const Hidden hidden;
  pthread_setname_np(pthread_self(), "penstock defer");
  Lock lock(mutex_);
  while (!stopping_ && !deferred_.empty()) {
    const Deferred next = std::move(deferred_.front());
    deferred_.pop_front();
    lock.unlock();
    for (const std::shared_ptr<Edge>& edge : next.after)
      if (edge) edge->acquire();
    {
      const HostFunctionScope scope;
      const Visible visible;
      next.work.function(next.work.data);
    }
    lock.lock();
  }
  deferred_thread_ = false;
  --threads_;
  thread_ended_.notify_all();
}

void Scheduler::await_deferred(Lock& lock) {
  thread_ended_.wait(lock, [&] { return !deferred_thread_; });
}

// ---- The end

void Scheduler::stop(Lock& lock, Clock::duration patience) {
  stopping_ = true;
  idle_wake_.notify_all();
  for (const Ref<Stream>& stream : streams_) {
    stream->wake.notify_all();
    for (const HostWait& wait : stream->host_waits) wait.wake->notify_one();
  }
  thread_ended_.wait_for(lock, patience, [&] { return threads_ == 0; });
}

}  // namespace penstock::emulation::detail
