// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <pthread.h>

#include <cstdlib>
#include <stdexcept>

#include "report.hpp"
#include "thread_state.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

namespace {

// A stream may be inside a function of the program that never returns.
constexpr auto kPatienceAtExit = std::chrono::seconds(1);

struct Process {
  std::mutex mutex;
  Runtime* runtime = nullptr;
  std::uint64_t eras = 0;
  bool exiting = false;
  bool forked = false;  // This process is a child without the threads of the runtime.
};

// It is never destroyed, because threads of streams may outlive static objects.
Process& process() {
  static Process* const the_process = new Process;
  return *the_process;
}

void unload() {
  const Hidden hidden;
  Lock lock(process().mutex);
  process().exiting = true;
  if (process().runtime == nullptr || process().forked) return;
  process().runtime->memory.end_sharing();
  // A host function that calls exit() would wait for itself.
  const bool on_stream_thread = this_thread().in_host_function;
  process().runtime->scheduler.stop(lock, on_stream_thread ? Clock::duration{} : kPatienceAtExit);
}

// A fork waits for running calls, so that the child's copy of the runtime is consistent.
void before_fork() {
  const Hidden hidden;
  process().mutex.lock();
}
void after_fork_in_parent() {
  const Hidden hidden;
  process().mutex.unlock();
}
void after_fork_in_child() {
  const Hidden hidden;
  process().forked = true;
  process().mutex.unlock();
}

void start(const Options& options) {
  static const bool registered =
      std::atexit(unload) == 0 &&
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
  (void)registered;
  Process& now = process();
  try {
    now.runtime = new Runtime(now.mutex, options, ++now.eras);
  } catch (const OutOfResources& problem) {
    // Every call tries again, but the message is printed once.
    static const bool told = (report(problem.what()), true);
    (void)told;
    throw;
  }
}

struct AtThreadEnd {
  ~AtThreadEnd() {
    const Hidden hidden;
    const Lock lock(process().mutex);
    if (process().runtime != nullptr && !process().exiting && !process().forked)
      process().runtime->forget_thread(this_thread().number);
  }
};

}  // namespace

std::mutex& runtime_mutex() {
  return process().mutex;
}

Runtime* running_runtime(Function function) {
  const bool inherited = (facts(function).traits & traits::inherited) != 0;
  if (process().exiting || (process().forked && !inherited)) return nullptr;
  if (process().runtime == nullptr) start(options_from_environment());
  return process().runtime;
}

cudaError_t why_not_running() {
  return process().forked ? cudaErrorInitializationError : cudaErrorCudartUnloading;
}

Runtime& last_runtime() {
  if (process().runtime == nullptr) start(options_from_environment());
  return *process().runtime;
}

void forget_thread_at_its_end() {
  thread_local const AtThreadEnd at_end;
  (void)at_end;
}

void restart(Lock& lock, const Options& options) {
  validate(options);
  if (process().exiting) throw std::logic_error("the process is exiting");
  if (process().forked) throw std::logic_error("this process was forked from one that used CUDA");
  if (Runtime* const old = process().runtime) {
    old->await_idle(lock, nullptr, true);
    old->destroy_graphs();
    old->scheduler.await_deferred(lock);
    old->scheduler.stop(lock, std::chrono::hours(24 * 365));
    process().runtime = nullptr;
    delete old;
  }
  start(options);
}

}  // namespace penstock::emulation::detail
