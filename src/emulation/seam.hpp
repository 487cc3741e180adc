// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one seam that every call of the program goes through: it hides the runtime from race
// detection, takes the lock, counts the call, applies the failures that a test asked for, the
// device's sticky error and the rules of stream capture, runs the call's body, keeps the thread's
// last error, and tells an observer.
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

namespace penstock::emulation::detail {

/// One call of the program's: what its body works with. The lock is held.
class Call {
 public:
  /// `begin`: when the program called, if that is observed.
  Call(Function function, Runtime& running, Lock& held, Time begin = {})
      : runtime(running), lock(held), thread(this_thread()), function_(function), begin_(begin) {}

  Runtime& runtime;
  Lock& lock;
  ThreadState& thread;

  const char* name() const { return facts(function_).name; }
  bool has(unsigned trait) const { return (facts(function_).traits & trait) != 0; }

  /// The current device of this thread.
  Device& device() const { return *runtime.devices[static_cast<std::size_t>(thread.device)]; }

  // ---- Handles. A wrong one gives cudaErrorInvalidResourceHandle; a failed device its error.
  cudaError_t find(cudaStream_t handle, Stream** stream) const;
  cudaError_t find(cudaEvent_t handle, Event** event) const;
  /// Null when it is no pool.
  Pool* find(cudaMemPool_t handle) const {
    return runtime.pools.find(reinterpret_cast<std::uint64_t>(handle));
  }

  // ---- Work
  /// Queues the work on the stream, or adds it to the graph that the stream captures.
  cudaError_t submit(Stream& stream, Work work, Mark* end = nullptr);

  /// Frees an allocation of one of two origins by its first byte, when nothing uses it any more.
  cudaError_t release(void* data, Origin one, Origin other);

  // ---- Waiting. What was done before the mark happens before what the program does next.
  cudaError_t await(const Mark& mark);
  /// The same without that order: the call blocks, but CUDA does not promise that it does.
  cudaError_t await_unordered(const Mark& mark);
  /// Waits for what is in the stream now; in the legacy default stream are its device's blocking
  /// streams as well.
  cudaError_t await_all(Stream& stream);
  /// The same without blocking: cudaErrorNotReady when there is something to wait for.
  cudaError_t query_all(Stream& stream);
  /// The same for a record that another process has made.
  cudaError_t await_elsewhere(const Ref<Event>& event, std::uint64_t record);
  cudaError_t query_elsewhere(Event& event, std::uint64_t record);
  void acquire(const Mark& mark) const {
    if (mark.edges) mark.edges->completed.acquire();
  }

  /// More records of an event are under way than processes can share: says so, and returns the
  /// error.
  cudaError_t tell_full() const;

  /// Blocks while the stream that the call put work on holds more than a queue does.
  void await_room();

  /// Checks before the body: an error to return instead.
  cudaError_t admit();
  /// Checks after it, keeps the last error, and tells the observer.
  cudaError_t conclude(cudaError_t status);

 private:
  template <class Visit>
  void for_each_part(Stream& stream, Visit visit) const;

  cudaError_t await_users(const Allocation& allocation);
  void keep(cudaError_t& status);

  Function function_;
  Time begin_;
  mutable Ref<Stream> target_;  ///< of a call that puts work on a stream
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
