// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small owning handles over the CUDA runtime: Stream, Event, and guards that put a thread's setting
// back. A moved-from handle is empty (get() == nullptr); destruction never throws.

#include <cuda_runtime_api.h>

#include <penstock/error.hpp>
#include <utility>

namespace penstock {

namespace detail {

/// The stream that `stream` names in the source file that calls this: 0 is the legacy default
/// stream or, where the file is compiled for per-thread default streams (nvcc --default-stream
/// per-thread, CUDA_API_PER_THREAD_DEFAULT_STREAM), the calling thread's own. penstock itself is
/// compiled once for both kinds, so whatever takes a stream from the user passes it on by this
/// name. Always inlined: one program may have files of both kinds.
[[gnu::always_inline]] inline cudaStream_t named(cudaStream_t stream) noexcept {
  if (stream != nullptr) return stream;
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return cudaStreamPerThread;
#else
  return cudaStreamLegacy;
#endif
}

}  // namespace detail

/// The device that is current on this thread.
inline int current_device() {
  int device = 0;
  detail::check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// Makes `device` current on this thread for the guard's life. Calls nothing when it already is.
class [[nodiscard]] DeviceGuard {
 public:
  explicit DeviceGuard(int device) : previous_(current_device()), device_(device) {
    if (device_ != previous_) detail::check(cudaSetDevice(device_), "cudaSetDevice", device_);
  }
  ~DeviceGuard() {
    if (device_ != previous_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_;
  int device_;
};

/// Lets this thread make calls that a stream capture, on this thread or another, would forbid
/// because they might belong to it (allocate, query an event), for the guard's life. Ours never do.
class [[nodiscard]] CaptureModeGuard {
 public:
  CaptureModeGuard() { exchange(); }
  ~CaptureModeGuard() { exchange(); }
  CaptureModeGuard(const CaptureModeGuard&) = delete;
  CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

 private:
  // Best effort: where the exchange fails, the guarded call reports what is wrong.
  void exchange() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// An owned stream of the device that was current at construction.
class Stream {
 public:
  /// A stream that does not wait for the legacy default stream. `priority`: lower is more urgent,
  /// clamped to the device's range by CUDA.
  explicit Stream(int priority = 0) {
    detail::check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority),
                  "cudaStreamCreateWithPriority", priority);
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    Stream taken(std::move(other));
    std::swap(stream_, taken.stream_);
    return *this;
  }
  /// Does not wait for queued work: the stream goes away when that is done.
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  cudaStream_t get() const noexcept { return stream_; }
  /// Blocks this thread until all work queued so far is done.
  void synchronize() const {
    detail::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t stream_ = nullptr;
};

namespace detail {

/// cudaEventQuery, allowed beside stream captures by the guard, and leaving no "not ready" behind
/// for the thread's next cudaGetLastError.
inline cudaError_t query(cudaEvent_t event, const CaptureModeGuard&) noexcept {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) cudaGetLastError();
  return status;
}
inline cudaError_t query(cudaEvent_t event) noexcept {
  const CaptureModeGuard guard;
  return query(event, guard);
}

}  // namespace detail

/// An owned event of the device that was current at construction. Recording it on a stream of
/// another device is an error of CUDA's.
class Event {
 public:
  /// Without timing (cheapest to record); pass cudaEventDefault to measure with it.
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    detail::check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreateWithFlags", flags);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    Event taken(std::move(other));
    std::swap(event_, taken.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }

  cudaEvent_t get() const noexcept { return event_; }

  /// Marks the end of what `stream` holds now. Does not block.
  [[gnu::always_inline]] void record(cudaStream_t stream) {
    detail::check(cudaEventRecord(event_, detail::named(stream)), "cudaEventRecord");
  }
  /// `stream` runs nothing that is queued from now on before the last record is reached. Does not
  /// block.
  [[gnu::always_inline]] void make_wait(cudaStream_t stream) const {
    detail::check(cudaStreamWaitEvent(detail::named(stream), event_, cudaEventWaitDefault),
                  "cudaStreamWaitEvent");
  }
  /// Has the last record been reached? True for an event that was never recorded. Does not block.
  /// Safe beside a stream capture on another thread.
  bool done() const {
    const cudaError_t status = detail::query(event_);
    if (status != cudaErrorNotReady) detail::check(status, "cudaEventQuery");
    return status == cudaSuccess;
  }
  /// Blocks this thread until the last record is reached.
  void synchronize() const { detail::check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace penstock
