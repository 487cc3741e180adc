// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <cstdlib>
#include <stdexcept>

#include "thread_state.hpp"

namespace penstock::emulation::detail {

namespace {

// Streams may be inside a function of the program's that never returns.
constexpr auto kPatienceAtExit = std::chrono::seconds(1);

struct Process {
  std::mutex mutex;
  Runtime* runtime = nullptr;
  std::uint64_t eras = 0;
  bool exiting = false;
};

// On the heap for good: threads of streams may outlive the static objects.
Process& process() {
  static Process* const the_process = new Process;
  return *the_process;
}

void unload() {
  const Hidden hidden;
  Lock lock(process().mutex);
  process().exiting = true;
  if (process().runtime == nullptr) return;
  // A host function that calls exit() would wait for itself.
  const bool on_stream_thread = this_thread().in_host_function;
  process().runtime->scheduler.stop(lock, on_stream_thread ? Clock::duration{} : kPatienceAtExit);
}

void start(const Options& options) {
  static const bool registered = std::atexit(unload) == 0;
  (void)registered;
  Process& now = process();
  now.runtime = new Runtime(now.mutex, options, ++now.eras);
}

struct AtThreadEnd {
  ~AtThreadEnd() {
    const Hidden hidden;
    const Lock lock(process().mutex);
    if (process().runtime != nullptr && !process().exiting)
      process().runtime->forget_thread(this_thread().number);
  }
};

}  // namespace

std::mutex& runtime_mutex() {
  return process().mutex;
}

Runtime* running_runtime() {
  if (process().exiting) return nullptr;
  if (process().runtime == nullptr) start(options_from_environment());
  return process().runtime;
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
