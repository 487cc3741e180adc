// SPDX-License-Identifier: Apache-2.0
#pragma once

// penstock::emulation: control of the emulated CUDA runtime. A program that links
// penstock::emulated instead of penstock::penstock runs its CUDA runtime calls on CPU threads.
// These functions set the emulated machine, the schedule of its streams and the calls that fail,
// and report what happened. Only penstock::emulated has them: a program that links the real runtime
// and calls one gets a link error. See docs/emulation.md.
//
//   namespace emulation = penstock::emulation;
//   emulation::reset({.schedule = emulation::Schedule::random, .seed = 7});
//   run_my_loop();
//   if (emulation::calls("cudaMalloc") > 1) std::cerr << "the loop allocates\n";
//
// Any thread may call any function, unless it says otherwise.

#include <driver_types.h>
#include <penstock/version.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::emulation {

// ---- What is emulated --------------------------------------------------------------------------

/// When an operation runs that is first in its stream.
enum class Schedule {
  eager,   ///< immediately
  lazy,    ///< as late as CUDA allows: when a thread waits or polls for it, or the program idles
  random,  ///< after a delay drawn from the seed: the same seed draws the same delays
};

/// The emulated machine. A rate of 0 adds no delay: the speed is that of this CPU.
struct Machine {
  int devices = 1;  ///< at most 64; 0: every call that needs one fails with cudaErrorNoDevice
  /// Memory of each device, and page-locked host memory of the whole machine:
  /// at most 16 TiB each.
  std::size_t device_bytes = std::size_t{16} << 30;
  std::size_t pinned_bytes = std::size_t{4} << 30;  ///< page-locked host memory of the machine
  double host_to_device = 0;                        ///< bytes per second, at least 1
  double device_to_host = 0;                        ///< bytes per second
  double device_to_device = 0;  ///< bytes per second, within one device or between two
  /// Rate of a copy from or to pageable memory, as a fraction of that for page-locked memory.
  double pageable_share = 0.5;
  /// Copies of one device that can run at the same time, 1 to 64. With two, one per direction.
  int copy_engines = 2;
  /// Shortest time from the submission of an operation to its start, at most a minute.
  std::chrono::nanoseconds launch_latency{0};
};

/// What reset() sets.
struct Options {
  Machine machine{};                    ///< devices, memory, rates
  Schedule schedule = Schedule::eager;  ///< when operations run
  std::uint64_t seed = 1;               ///< seed of Schedule::random
  /// How long a stream may wait for another stream's host function, and a call for room in a queue,
  /// until standard error says which ones these are; 0: never.
  std::chrono::milliseconds report_after{10'000};
};

/// Waits for all queued work, frees all objects, and restarts the runtime with `options`: devices,
/// errors, counters, failures and the timeline. No other thread may use the runtime meanwhile;
/// earlier handles become invalid. Without this call, the first CUDA call starts the runtime with
/// `Options{}` and the settings of the environment (docs/emulation.md). Throws
/// std::invalid_argument for a machine that is not possible, and an exception derived from
/// std::bad_alloc if the process has not enough addresses for its memory (`ulimit -v`).
void reset(const Options& options = {});

/// The options in effect.
Options options();

// ---- Counters ----------------------------------------------------------------------------------

/// How often a function of the CUDA runtime was called.
struct CallCount {
  std::string function;  ///< such as "cudaMemcpyAsync"
  std::uint64_t calls;   ///< calls since reset() or reset_counters()
};

/// How often `function` (for example "cudaMemcpyAsync") was called since `reset` or
/// `reset_counters`. Throws std::invalid_argument if the runtime has no such function.
std::uint64_t calls(std::string_view function);

/// Every function that was called, by name.
std::vector<CallCount> calls();

/// Numbers of calls by class: what they cost on a hot path. One call may be in several classes.
struct CallClasses {
  std::uint64_t all = 0;         ///< all calls, of any class or none
  std::uint64_t allocating = 0;  ///< allocate or free memory: host, device, stream-ordered
  std::uint64_t creating = 0;    ///< create or destroy a stream, an event, a graph, a pool
  std::uint64_t blocking = 0;    ///< may block the host until the device caught up: waits, frees,
                                 ///< copies that are synchronous or of pageable memory
  std::uint64_t launching = 0;   ///< put work on a stream
};

/// The calls since `reset` or `reset_counters`, by class.
CallClasses call_classes();
/// Sets all counters of calls to 0.
void reset_counters();

// ---- Failures ----------------------------------------------------------------------------------

/// Makes the `nth` call of `function` from now on (1: the next) return `error` and do nothing else.
/// `function` "*" counts the calls of all functions that can fail. A sticky error
/// (cudaErrorLaunchFailure, cudaErrorIllegalAddress, ...) persists: every later call on that device
/// returns it until `reset`. Throws std::invalid_argument if the runtime has no such function, or
/// it cannot fail.
void fail_call(std::string_view function, cudaError_t error, std::uint64_t nth = 1);

/// The operations of a stream.
enum class OperationKind {
  copy,           ///< cudaMemcpyAsync and the like
  fill,           ///< cudaMemsetAsync and the like
  host_function,  ///< cudaLaunchHostFunc
  event_record,   ///< cudaEventRecord
  event_wait,     ///< cudaStreamWaitEvent
  allocate,       ///< cudaMallocAsync
  free,           ///< cudaFreeAsync
  graph,          ///< the beginning and the end of a graph launch
};

/// Makes the `nth` operation of this kind that runs from now on fail on the device, with a sticky
/// error (any other throws std::invalid_argument). The device executes nothing after it, and later
/// calls return the error.
void fail_operation(OperationKind kind, cudaError_t error, std::uint64_t nth = 1);

/// Discards the failures that have not happened yet. False if there were none: all have happened.
bool clear_failures();

// ---- What is alive -----------------------------------------------------------------------------

/// Objects that the program created and has not destroyed. All zero: nothing has leaked.
struct Live {
  std::size_t streams = 0, events = 0, graphs = 0, graph_execs = 0;  ///< objects of these kinds
  /// User objects of graphs, memory pools that the program made.
  std::size_t user_objects = 0, memory_pools = 0;
  std::size_t device_allocations = 0, device_bytes = 0;  ///< cudaMalloc and the like
  std::size_t pinned_allocations = 0, pinned_bytes = 0;  ///< cudaHostAlloc and cudaHostRegister
  bool operator==(const Live&) const = default;
};

/// Counts the objects that are alive now.
Live live();

// ---- The timeline ------------------------------------------------------------------------------

/// One operation of a stream. Its times of submission, beginning and end are those of
/// std::chrono::steady_clock.
struct Operation {
  OperationKind kind;         ///< copy, fill, host function, ...
  const char* name;           ///< the call that submitted it, for example "cudaMemcpyAsync"
  int device;                 ///< number of the stream's device
  std::uint64_t stream;       ///< in order of creation, from 1; 0: the legacy default stream
  std::uint64_t correlation;  ///< number of the operation, in order of submission
  std::uint64_t call = 0;     ///< number of the call that submitted it, while observed (ApiCall)
  std::size_t bytes = 0;      ///< size of a copy, a fill or an allocation
  cudaMemcpyKind copy = cudaMemcpyDefault;  ///< of a copy: its direction
  bool pageable = false;                    ///< of a copy: one side is pageable host memory
  bool synchronous = false;                 ///< of a copy or a fill: not by an Async call
  void (*function)() = nullptr;             ///< of a host function: its address
  /// When it was put on the stream, when it began, and when it was done.
  std::chrono::steady_clock::time_point submitted, begin, end;
};

/// Starts or stops recording; `reset` stops it. Recording allocates memory.
void record_timeline(bool on);

/// The operations that ended while recording was on, ordered by their ends.
std::vector<Operation> timeline();

// ---- Observing ---------------------------------------------------------------------------------

/// One call of the program.
struct ApiCall {
  const char* name;      ///< "cudaMemcpyAsync"; the same pointer each time
  std::uint64_t number;  ///< Operation::call of what it put on streams
  cudaError_t result;    ///< what the call returned
  std::chrono::steady_clock::time_point begin, end;  ///< times on the host
  /// Bytes that are taken on each device when the call returns. Valid while the observer is told.
  const std::size_t* device_bytes;
  int devices;  ///< number of entries of `device_bytes`
};

/// Gets each call, on the thread that makes it, before it returns; and each operation when it ends,
/// on any thread. The two functions are called one at a time, under the runtime's lock: they must
/// be short, call neither CUDA nor this header, and not throw.
struct Observer {
  void* context;                                                 ///< passed to both functions
  void (*call)(void* context, const ApiCall& call);              ///< gets each call
  void (*operation)(void* context, const Operation& operation);  ///< gets each operation
};

/// False if there is an observer already. `reset` keeps it. With an observer, every call and
/// operation reads the clock a few times more. penstock::trace uses it.
bool observe(const Observer& observer);

/// After this returns, the observer is not called any more.
void stop_observing();

}  // namespace penstock::emulation
