// SPDX-License-Identifier: Apache-2.0
#pragma once

// Moves the streams: decides when the first task of each stream may start, runs the task on the
// stream's thread, and wakes the waiting threads and streams. All of it happens with the runtime's
// lock held, which is released while a task accesses the program's memory or runs its functions.
//
// Some options need neither time nor reordering (eager schedule, no modelled durations, no race
// detection). Then any thread that finds a short task ready runs it, so a record or a wait in an
// idle stream costs no thread switch.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <penstock/emulation.hpp>
#include <vector>

#include "failures.hpp"
#include "host_turn.hpp"
#include "memory.hpp"
#include "observation.hpp"
#include "stream.hpp"
#include "timeline.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

using Lock = std::unique_lock<std::mutex>;

/// Lazy schedule: this many queries for the same work demand it.
inline constexpr unsigned kQueriesThatDemand = 3;

/// The number of operations in a stream above which a call that adds one blocks. CUDA documents no
/// number. On GPUs, users see the launches of a stream block when about a thousand are not done
/// (docs/emulation.md).
inline constexpr std::uint64_t kQueueLength = 1024;

/// How long a thread that has waited for another process for `waited` sleeps before it checks
/// again.
inline Clock::duration look_again_after(Clock::duration waited) {
  using std::chrono::microseconds;
  return std::clamp<Clock::duration>(waited / 8, microseconds(20), microseconds(1000));
}

class Scheduler {
 public:
  Scheduler(std::mutex& mutex, const Options& options, Memory& memory, Failures& failures,
            Timeline& timeline);

  // ---- Streams
  void adopt(Ref<Stream> stream);
  /// The program has destroyed the stream's handle; the stream is removed when it is empty.
  void close(Stream& stream);
  const std::vector<Ref<Stream>>& streams() const { return streams_; }

  // ---- Work
  /// Returns a task for `submit`, checked against the present memory.
  Task* task(const char* name, Work work);
  /// Makes sure that the work will have a thread to run on. Throws OutOfResources if there is none.
  void prepare(Stream& stream, const Work& work);
  /// Prepares for any work, in a configuration where every stream has a thread.
  void prepare(Stream& stream) { prepare(stream, GraphWork{}); }
  /// Appends the task to the stream, after the tasks that the default-stream rules order before it.
  Mark submit(Stream& stream, Task* task);
  /// Runs the tasks that this thread may run. Call it before the lock is released.
  void pump(Lock& lock);

  // ---- The host waits
  /// Blocks until the mark is reached. It states no order for race detection. Returns false if the
  /// process unloads the runtime, so that the mark is never reached.
  bool await(Lock& lock, const Mark& mark);
  /// Blocks until the stream holds no more than kQueueLength operations. `call` names the waiting
  /// call.
  void await_room(Lock& lock, const Ref<Stream>& stream, const char* call);
  /// Lazy schedule: the mark is needed now.
  void demand(const Mark& mark);
  void demand_all();
  /// Lazy schedule: a call has been made.
  void note_call();

  /// Runs a function of the program on a thread outside the streams. It is ordered after the
  /// releases to these edges.
  void defer(HostWork work, std::vector<std::shared_ptr<Edge>> after);
  /// Blocks until no deferred function remains.
  void await_deferred(Lock& lock);

  // ---- Other processes
  /// Moves memory to where other processes can open it, now or as soon as no work accesses memory.
  void move_memory();
  /// Orders the work of this process before its records of shared events before the work after a
  /// wait for another process's record. ThreadSanitizer cannot see that order, because it passes
  /// through the other process.
  void acquire_from_other_processes() const {
    if (detects_races()) through_others_.acquire();
  }
  bool stopping() const { return stopping_; }

  // ---- The end
  /// Drops all work that has not begun, and waits for the threads of streams to end. It waits for
  /// at most `patience`, because a function of the program may never return.
  void stop(Lock& lock, Clock::duration patience);

 private:
  // Decides when the first task of a stream may start.
  enum class Readiness { ready, later, blocked };
  Readiness examine(Stream& stream);
  bool demanded(const Stream& stream) const;
  bool waits_for_another_process(const Stream& stream, const Task& task) const;
  Time earliest_start(const Stream& stream, const Task& task) const;
  void watch(const Mark& mark, Stream& stream);
  void kick(Stream& stream);
  bool await_until(Lock& lock, const Mark& mark, Time deadline);
  void start_thread(Stream& stream);
  bool is_short(const Work& work) const;
  void order_by_default_stream(Stream& stream, Task& task);

  // Runs the first task (execution.cpp), and then what follows it.
  void serve(Stream& stream);
  void run(Stream& stream, Lock& lock);
  cudaError_t carry_out(Stream& stream, Task& task, Lock& lock);
  cudaError_t copy(Stream& stream, Task& task, Lock& lock);
  cudaError_t fill(Stream& stream, Task& task, Lock& lock);
  cudaError_t arrive(Task& task, std::uint64_t record);
  void forget(FreeWork free, Lock& lock);
  bool usable(const Task& task, const void* data, std::size_t bytes) const;
  enum class Touch { bytes, anything };
  template <class Do>
  void without_lock(Lock& lock, Touch touch, Do work);
  void call_host(Task& task, cudaError_t status, Lock& lock) noexcept;
  void finish(Stream& stream, Task& task);
  void notify_watchers(Stream& stream);
  void retire(Stream& stream);

  // The clock of the emulated machine.
  bool keeps_time() const { return models_time_ || timeline_.recording() || observation().on(); }
  Time ready_at(const Stream& stream, const Task& task) const;
  template <class DoWork>
  void occupy(Stream& stream, Task& task, Clock::duration duration, Clock::duration needed,
              DoWork work, Lock& lock);
  void sleep_until(Stream& stream, Time time, Lock& lock);

  // Work outside the streams.
  void start_idle_watcher();
  void watch_idleness();
  void serve_idleness();
  void serve_deferred();

  std::mutex& mutex_;
  const Options& options_;
  Memory& memory_;
  Failures& failures_;
  Timeline& timeline_;
  const bool models_time_;
  const bool helps_;  // Any thread runs short tasks.

  TaskStore store_;
  std::uint64_t submissions_ = 0;
  std::vector<Ref<Stream>> streams_;
  std::vector<Stream*> runnable_;  // their first task is short and may start; see pump
  HostTurn host_turn_;
  std::size_t threads_ = 0;
  std::condition_variable thread_ended_;
  bool stopping_ = false;

  // The work that is in progress without the lock.
  std::size_t moving_bytes_ = 0, in_host_functions_ = 0;
  std::condition_variable touch_ended_;  // a memory access has ended while memory waits to be moved
  alignas(8) Edge through_others_;

  struct Deferred {
    HostWork work;
    std::vector<std::shared_ptr<Edge>> after;  ///< null unless the program detects races
  };
  std::deque<Deferred> deferred_;
  bool deferred_thread_ = false;  // runs while there are deferred functions

  // Lazy schedule.
  std::vector<Mark> needed_;  // marks that demand() has yet to examine
  Time last_call_{};
  std::condition_variable idle_wake_;
  bool idle_watcher_ = false;
  bool undemanded_ = false;  // work was submitted after the last time all work was demanded
};

}  // namespace penstock::emulation::detail
