// SPDX-License-Identifier: Apache-2.0
//
// The lazy schedule: the part of the scheduler that knows which work is needed. A task runs when
// the host waits for it or for later work, or queries it repeatedly. Some programs need work
// without a call that says so: they wait for a condition variable that a host function signals, or
// poll a flag. So all work is also demanded after a while without calls, and when it is old.

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "scheduler.hpp"
#include "threads.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {
constexpr auto kIdle = std::chrono::milliseconds(2);  // time without a call
constexpr auto kOld = std::chrono::milliseconds(20);  // time since the work was first found waiting
}  // namespace

bool Scheduler::demanded(const Stream& stream) const {
  return options_.schedule != Schedule::lazy || stream.head->sequence <= stream.demanded;
}

void Scheduler::demand(const Mark& mark) {
  if (options_.schedule != Schedule::lazy || mark.reached()) return;
  std::vector<Mark>& needed = needed_;  // It is a member, so that a query allocates nothing.
  needed.assign(1, mark);
  while (!needed.empty()) {
    const Mark next = needed.back();
    needed.pop_back();
    if (!next.stream || next.sequence <= next.stream->demanded) continue;
    const std::uint64_t before = std::exchange(next.stream->demanded, next.sequence);
    for (const Task* task = next.stream->head; task != nullptr; task = task->next)
      if (task->sequence > before && task->sequence <= next.sequence)
        needed.insert(needed.end(), task->after.begin(), task->after.end());
    kick(*next.stream);
  }
}

void Scheduler::demand_all() {
  for (std::size_t i = 0; i < streams_.size(); ++i) demand(streams_[i]->end());
}

void Scheduler::note_call() {
  if (options_.schedule == Schedule::lazy) last_call_ = Clock::now();
}

/// Called after work was submitted that is not demanded.
void Scheduler::watch_idleness() {
  if (!std::exchange(undemanded_, true)) idle_wake_.notify_one();
}

/// Makes sure that a thread watches for idleness.
void Scheduler::start_idle_watcher() {
  if (idle_watcher_) return;
  start_thread_of("what waits to be needed", [this] { serve_idleness(); });
  idle_watcher_ = true;
  ++threads_;
}

/// The body of the thread that watches for idleness.
void Scheduler::serve_idleness() {
  const Hidden hidden;
  pthread_setname_np(pthread_self(), "penstock idle");
  Lock lock(mutex_);
  while (!stopping_) {
    if (!undemanded_) {
      idle_wake_.wait(lock);
      continue;
    }
    const Time seen = Clock::now();
    for (Time due = std::max(last_call_, seen) + kIdle; !stopping_ && Clock::now() < due;
         due = std::min(last_call_ + kIdle, seen + kOld))
      idle_wake_.wait_until(lock, due);
    undemanded_ = false;
    demand_all();
  }
  --threads_;
  thread_ended_.notify_all();
}

}  // namespace penstock::emulation::detail
