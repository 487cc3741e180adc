// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every call of the program passes through this seam. It hides the runtime from race detection,
// takes the lock, counts the call, applies the failures that a test asked for, the device's sticky
// error and the rules of stream capture, runs the body of the call, stores the thread's last error,
// and tells an observer.
//
//   cudaError_t cudaStreamQuery(cudaStream_t handle) {
//     return enter(Function::cudaStreamQuery, [&](Call& call) { ... return cudaSuccess; });
//   }

#include <cuda_runtime_api.h>

#include <new>

#include "annotations.hpp"
#include "cuda_version.hpp"
#include "observation.hpp"
#include "process.hpp"
#include "thread_state.hpp"

namespace penstock::inline PENSTOCK_ABI::emulation::detail {

/// A call of the program, as its body sees it. The lock is held.
class Call {
 public:
  /// `begin` is the time of the call, if it is observed.
  Call(Function function, Runtime& running, Lock& held, Time begin = {})
      : runtime(running), lock(held), thread(this_thread()), function_(function), begin_(begin) {}

  Runtime& runtime;
  Lock& lock;
  ThreadState& thread;

  const char* name() const { return facts(function_).name; }
  bool has(unsigned trait) const { return (facts(function_).traits & trait) != 0; }

  /// The current device of this thread.
  Device& device() const { return *runtime.devices[static_cast<std::size_t>(thread.device)]; }

  // ---- Handles. Errors: cudaErrorInvalidResourceHandle, or that of a failed device.
  cudaError_t find(cudaStream_t handle, Stream** stream) const;
  cudaError_t find(cudaEvent_t handle, Event** event) const;
  /// Returns null for an invalid handle.
  Pool* find(cudaMemPool_t handle) const {
    return runtime.pools.find(reinterpret_cast<std::uint64_t>(handle));
  }

  // ---- Work
  /// Queues the work on the stream, or adds it to the graph that the stream captures.
  cudaError_t submit(Stream& stream, Work work, Mark* end = nullptr);

  /// Frees the allocation of one of two origins that starts at `data`, after its last use has
  /// ended.
  cudaError_t release(void* data, Origin one, Origin other);

  // ---- Waiting. The work before the mark is ordered before the program's next actions.
  cudaError_t await(const Mark& mark);
  /// Waits without that order: the call blocks, but CUDA does not promise that it does.
  cudaError_t await_unordered(const Mark& mark);
  /// Waits for the present work of the stream. For the legacy default stream, this includes the
  /// blocking streams of its device.
  cudaError_t await_all(Stream& stream);
  /// Checks the same without blocking; returns cudaErrorNotReady if there is work to wait for.
  cudaError_t query_all(Stream& stream);
  /// Waits for a record that another process has made.
  cudaError_t await_elsewhere(const Ref<Event>& event, std::uint64_t record);
  cudaError_t query_elsewhere(Event& event, std::uint64_t record);
  void acquire(const Mark& mark) const {
    if (mark.edges) mark.edges->completed.acquire();
  }

  /// Reports that an event has more records in progress than processes can share, and returns the
  /// error.
  cudaError_t tell_full() const;

  /// Blocks while the stream that received work holds more than a queue's length.
  void await_room();

  /// Checks before the body. Returns an error that replaces the body.
  cudaError_t admit();
  /// Checks after the body, stores the last error, and tells the observer.
  cudaError_t conclude(cudaError_t status);

 private:
  template <class Visit>
  void for_each_part(Stream& stream, Visit visit) const;

  cudaError_t await_users(const Allocation& allocation);
  void keep(cudaError_t& status);

  Function function_;
  Time begin_;
  mutable Ref<Stream> target_;  ///< the stream that receives work
};

template <class Body>
cudaError_t enter(Function function, Body body) noexcept {
  settle_injection();
  const Hidden hidden;
  const Time begin = observation().on() ? Clock::now() : Time{};
  Lock lock(runtime_mutex());
  try {
    Runtime* const runtime = running_runtime(function);
    if (runtime == nullptr) return this_thread().last_error = why_not_running();
    Call call(function, *runtime, lock, begin);
    cudaError_t status = call.admit();
    if (status == cudaSuccess) status = body(call);
    runtime->scheduler.pump(lock);
    if (status == cudaSuccess) call.await_room();
    return call.conclude(status);
  } catch (const std::bad_alloc&) {
    return this_thread().last_error = cudaErrorMemoryAllocation;
  }
}

}  // namespace penstock::emulation::detail
