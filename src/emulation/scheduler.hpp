// SPDX-License-Identifier: Apache-2.0
#pragma once

// Moves the streams: decides when the first task of each may start, runs it on the stream's thread,
// and wakes who waited for it. All of it under the runtime's lock, which is let go while a task
// touches the program's memory or runs its functions.
//
// Where nothing asks for time or for disorder (eager schedule, no modelled durations, no race
// detection), a short task whose turn has come is run by whichever thread finds it, so that a
// record or a wait of an idle stream costs no thread switch.

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

namespace penstock::emulation::detail {

using Lock = std::unique_lock<std::mutex>;

/// Lazy schedule: whoever asks this often whether work is done needs it.
inline constexpr unsigned kQueriesThatDemand = 3;

/// So many operations a stream holds before a call that adds one blocks. CUDA documents no number.
/// On GPUs users see the launches of a stream block behind about a thousand that are not done
/// (docs/emulation.md).
inline constexpr std::uint64_t kQueueLength = 1024;

/// How long who has waited for another process for so long sleeps before it looks again.
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
  /// The program has no handle of the stream any more: it goes away when it is empty.
  void close(Stream& stream);
  const std::vector<Ref<Stream>>& streams() const { return streams_; }

  // ---- Work
  /// A task for `submit`, checked against the memory as it is now.
  Task* task(const char* name, Work work);
  /// Makes sure that the work will find a thread to run on. Throws OutOfResources: there is none.
  void prepare(Stream& stream, const Work& work);
  /// The same for all work, where every stream has a thread.
  void prepare(Stream& stream) { prepare(stream, GraphWork{}); }
  /// Puts the task at the end of the stream, behind what the default-stream rules order before it.
  Mark submit(Stream& stream, Task* task);
  /// Runs what this thread may run. To be called before the lock is let go.
  void pump(Lock& lock);

  // ---- The host waits
  /// Blocks until the mark is reached; states no order for race detection. False: the process
  /// unloads the runtime, it will never be.
  bool await(Lock& lock, const Mark& mark);
  /// Blocks until the stream holds no more than kQueueLength operations. `call`: who waits.
  void await_room(Lock& lock, const Ref<Stream>& stream, const char* call);
  /// Under the lazy schedule: somebody needs this now.
  void demand(const Mark& mark);
  void demand_all();
  /// Under the lazy schedule: a call came in.
  void note_call();

  /// Runs a function of the program's on a thread beside the streams. What was released to the
  /// edges happens before it.
  void defer(HostWork work, std::vector<std::shared_ptr<Edge>> after);
  /// Blocks until no deferred function is left.
  void await_deferred(Lock& lock);

  // ---- Other processes
  /// Moves memory to where other processes can open it, now or as soon as no work touches memory.
  void move_memory();
  /// What this process did before its records of events that it shares happens before what follows
  /// a wait for another process's record: ThreadSanitizer cannot see that order, which goes through
  /// the other process.
  void acquire_from_other_processes() const {
    if (detects_races()) through_others_.acquire();
  }
  bool stopping() const { return stopping_; }

  // ---- The end
  /// Runs nothing that has not begun, and waits for the threads of streams to end: for `patience`
  /// at most, since a function of the program's may never return.
  void stop(Lock& lock, Clock::duration patience);

 private:
  // When may the first task of a stream start?
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

  // Running it (execution.cpp), and what follows.
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

  // The machine's own time.
  bool keeps_time() const { return models_time_ || timeline_.recording() || observation().on(); }
  Time ready_at(const Stream& stream, const Task& task) const;
  template <class DoWork>
  void occupy(Stream& stream, Task& task, Clock::duration duration, Clock::duration needed,
              DoWork work, Lock& lock);
  void sleep_until(Stream& stream, Time time, Lock& lock);

  // Beside the streams.
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
  const bool helps_;  // Short tasks run on any thread.

  TaskStore store_;
  std::uint64_t submissions_ = 0;
  std::vector<Ref<Stream>> streams_;
  std::vector<Stream*> runnable_;  // their first task is short and may start: for pump
  HostTurn host_turn_;
  std::size_t threads_ = 0;
  std::condition_variable thread_ended_;
  bool stopping_ = false;

  // What is done at this time without the lock.
  std::size_t moving_bytes_ = 0, in_host_functions_ = 0;
  std::condition_variable touch_ended_;  // memory waits to be moved, and something has ended
  alignas(8) Edge through_others_;

  struct Deferred {
    HostWork work;
    std::vector<std::shared_ptr<Edge>> after;  ///< null unless the program detects races
  };
  std::deque<Deferred> deferred_;
  bool deferred_thread_ = false;  // runs while there is something to do

  // Lazy schedule.
  std::vector<Mark> needed_;  // of demand: what it has yet to look at
  Time last_call_{};
  std::condition_variable idle_wake_;
  bool idle_watcher_ = false;
  bool undemanded_ = false;  // work came in since all work was demanded last
};

}  // namespace penstock::emulation::detail
