// SPDX-License-Identifier: Apache-2.0
#pragma once

// penstock::emulation: control of the emulated CUDA runtime. A program that links
// penstock::emulated in place of penstock::penstock runs its CUDA runtime calls on CPU threads;
// these functions choose the machine that it sees, the schedule of its streams, the calls that
// fail, and read back what happened. They exist in penstock::emulated alone: a program that links
// the real runtime and calls one of them gets a link error. See docs/emulation.md.
//
//   penstock::emulation::reset({.schedule = Schedule::random, .seed = 7});
//   ... run a pipeline ...
//   penstock::emulation::calls("cudaMalloc"), penstock::emulation::live(), timeline()
//
// Every function may be called from any thread, except where it says otherwise.

#include <driver_types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::emulation {

// ---- What is emulated --------------------------------------------------------------------------

/// When an operation whose turn has come in its stream runs.
enum class Schedule {
  eager,   ///< at once
  lazy,    ///< as late as CUDA allows: when somebody waits for it, asks again and again, or idles
  random,  ///< after a delay drawn from the seed: the same seed draws the same delays
};

/// What the emulated machine can do. A rate of 0 means "as fast as this CPU does it", and adds no
/// delay.
struct Machine {
  int devices = 1;  ///< 0: every call that needs one fails with cudaErrorNoDevice
  /// Memory of each device, and page-locked host memory of the whole machine.
  std::size_t device_bytes = std::size_t{16} << 30;
  std::size_t pinned_bytes = std::size_t{4} << 30;
  /// Bytes a second, by direction; device to device is within a device and between two.
  double host_to_device = 0;
  double device_to_host = 0;
  double device_to_device = 0;
  /// Rate of a copy from or to pageable memory, as a part of the page-locked one.
  double pageable_share = 0.5;
  /// Copies of one device that can progress at the same time. Of two, one serves each direction.
  int copy_engines = 2;
  /// From the submission of any work to its earliest start.
  std::chrono::nanoseconds launch_latency{0};
};

struct Options {
  Machine machine{};
  Schedule schedule = Schedule::eager;
  std::uint64_t seed = 1;
};

/// Waits for all queued work, frees everything that is still alive, and starts afresh with
/// `options`: devices, errors, counters, failures and the timeline. No other thread may use the
/// runtime meanwhile, and handles from before are invalid after. Without a call, the first CUDA
/// call starts the runtime with `Options{}`, changed by the environment (docs/emulation.md).
/// Throws std::invalid_argument when there can be no such machine.
void reset(const Options& options = {});

/// The options that are in force.
Options options();

// ---- Counters ----------------------------------------------------------------------------------

struct CallCount {
  std::string function;
  std::uint64_t calls;
};

/// How often `function` (for example "cudaMemcpyAsync") was called since `reset` or
/// `reset_counters`. Throws std::invalid_argument when the runtime has no such function.
std::uint64_t calls(std::string_view function);

/// Every function that was called, by name.
std::vector<CallCount> calls();

/// Calls by what they cost a hot path. One call may be of several classes.
struct CallClasses {
  std::uint64_t all = 0;
  std::uint64_t allocating = 0;  ///< allocate or free memory: host, device, stream-ordered
  std::uint64_t creating = 0;    ///< create or destroy a stream, an event, a graph, a pool
  std::uint64_t blocking = 0;    ///< may block the host until the device caught up: waits, frees,
                                 ///< copies that are synchronous or of pageable memory
  std::uint64_t launching = 0;   ///< put work on a stream
};

CallClasses call_classes();
void reset_counters();

// ---- Failures ----------------------------------------------------------------------------------

/// Makes the `nth` call (1: the next one) of `function` from now on return `error` and do nothing
/// else. `function` "*" counts calls of every function that can fail. A sticky error
/// (cudaErrorLaunchFailure, cudaErrorIllegalAddress, ...) stays: every later call on that device
/// returns it until `reset`. Throws std::invalid_argument when the runtime has no such function, or
/// it cannot fail.
void fail_call(std::string_view function, cudaError_t error, std::uint64_t nth = 1);

/// What a stream can be asked to do.
enum class OperationKind {
  copy,
  fill,
  host_function,
  event_record,
  event_wait,
  allocate,
  free,
  graph,  ///< the begin and the end of a graph's launch
};

/// Makes the `nth` operation of this kind that a stream comes to from now on fail on the device,
/// with a sticky error (any other throws std::invalid_argument): nothing after it is executed on
/// that device, and the error surfaces at a later call.
void fail_operation(OperationKind kind, cudaError_t error, std::uint64_t nth = 1);

/// Forgets failures that have not happened yet; false when there were none, so all asked for
/// happened.
bool clear_failures();

// ---- What is alive -----------------------------------------------------------------------------

/// Objects that the program created and has not destroyed. All zero: nothing leaks.
struct Live {
  std::size_t streams = 0, events = 0, graphs = 0, graph_execs = 0, user_objects = 0,
              memory_pools = 0;
  std::size_t device_allocations = 0, device_bytes = 0;
  std::size_t pinned_allocations = 0, pinned_bytes = 0;  ///< cudaHostAlloc and cudaHostRegister
  bool operator==(const Live&) const = default;
};

Live live();

// ---- The timeline ------------------------------------------------------------------------------

/// One operation of a stream, with the times on std::chrono::steady_clock at which it was
/// submitted, began and ended.
struct Operation {
  OperationKind kind;
  const char* name;  ///< the call that submitted it, for example "cudaMemcpyAsync"
  int device;
  std::uint64_t stream;       ///< in order of creation, from 1; 0: the legacy default stream
  std::uint64_t correlation;  ///< number of the operation, in order of submission
  std::uint64_t call = 0;     ///< number of the call that submitted it, while observed (ApiCall)
  std::size_t bytes = 0;
  cudaMemcpyKind copy = cudaMemcpyDefault;  ///< of a copy: its direction
  bool pageable = false;                    ///< of a copy: one side is pageable host memory
  bool synchronous = false;                 ///< of a copy or a fill: not by an Async call
  void (*function)() = nullptr;             ///< of a host function: its address
  std::chrono::steady_clock::time_point submitted, begin, end;
};

/// Starts or stops recording. Off at `reset`; recording allocates memory.
void record_timeline(bool on);

/// The operations that have ended while recording was on, by their ends.
std::vector<Operation> timeline();

// ---- Observing ---------------------------------------------------------------------------------

/// One call of the program's.
struct ApiCall {
  const char* name;      ///< "cudaMemcpyAsync"; the same pointer each time
  std::uint64_t number;  ///< Operation::call of what it put on streams
  cudaError_t result;
  std::chrono::steady_clock::time_point begin, end;
};

/// Is told of calls, each on the thread that makes it, before it returns; and of operations as they
/// end, on any thread. One at a time, under the runtime's lock: keep it short, and call neither
/// CUDA nor anything of this header. Nothing may be thrown.
struct Observer {
  void* context;
  void (*call)(void* context, const ApiCall& call);
  void (*operation)(void* context, const Operation& operation);
};

/// False when there is an observer. Stays through a reset. While there is one, every call and
/// operation costs a few readings of the clock more. penstock::trace is made of it.
bool observe(const Observer& observer);

/// The observer is told nothing any more once this has returned.
void stop_observing();

}  // namespace penstock::emulation
