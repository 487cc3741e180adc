// SPDX-License-Identifier: Apache-2.0
#pragma once

// Owning handles of the CUDA runtime: Stream and Event. Guards that change a setting of this thread
// and restore it: DeviceGuard and CaptureModeGuard. Handles are move-only; a moved-from one is
// empty (get() == nullptr). No destructor throws.

#include <cuda_runtime_api.h>

#include <penstock/error.hpp>
#include <penstock/stream_ref.hpp>
#include <utility>

static_assert(CUDART_VERSION >= 12040, "penstock needs CUDA 12.4 or newer");

namespace penstock {

namespace detail {

/// The stream that `stream` names in the source file that calls this: 0 is the legacy default
/// stream or, if the file is compiled for per-thread default streams (nvcc --default-stream
/// per-thread, CUDA_API_PER_THREAD_DEFAULT_STREAM), the calling thread's own. penstock is compiled
/// once for both kinds of files, so each function that takes a stream from the user resolves 0 in
/// the user's file. Always inlined: a program may have files of both kinds.
[[gnu::always_inline]] inline cudaStream_t named(cudaStream_t stream) noexcept {
  if (stream != nullptr) return stream;
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return cudaStreamPerThread;
#else
  return cudaStreamLegacy;
#endif
}

/// A handle of CUDA's, which `destroy` ends. (A unique_ptr would do, but <memory> is long.)
template <class Handle, cudaError_t (*destroy)(Handle)>
class Owned {
 public:
  explicit Owned(Handle handle = nullptr) noexcept : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    Owned taken(std::move(other));
    std::swap(handle_, taken.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) destroy(handle_);
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_;
};

}  // namespace detail

/// The device that is current on this thread.
inline int current_device() {
  int device = 0;
  detail::check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// Makes `device` current on this thread during the lifetime of the guard. If it is current
/// already, no device is set.
class [[nodiscard]] DeviceGuard {
 public:
  /// Throws CudaError if the device cannot be set.
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

/// During the lifetime of the guard, this thread may make calls that a stream capture, on any
/// thread, would otherwise forbid because they might belong to it, such as allocating memory or
/// querying an event. Use it around calls that belong to no capture.
class [[nodiscard]] CaptureModeGuard {
 public:
  /// Sets the relaxed capture mode for this thread.
  CaptureModeGuard() { exchange(); }
  ~CaptureModeGuard() { exchange(); }
  CaptureModeGuard(const CaptureModeGuard&) = delete;
  CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

 private:
  // The result is ignored: if the exchange fails, the guarded call reports what is wrong.
  void exchange() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// An owned stream of the device that was current at construction. The destructor does not wait for
/// queued work: CUDA destroys the stream when that is done.
class Stream {
 public:
  /// A stream that does not synchronise with the legacy default stream. A lower `priority` is more
  /// urgent; CUDA clamps it to the device's range.
  explicit Stream(int priority = 0) {
    cudaStream_t stream = nullptr;
    detail::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
                  "cudaStreamCreateWithPriority", priority);
    stream_ = Owned(stream);
  }

  /// The stream, which this object still owns.
  cudaStream_t get() const noexcept { return stream_.get(); }
  /// Blocks this thread until all work queued so far is done.
  void synchronize() const { detail::check(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }

 private:
  using Owned = detail::Owned<cudaStream_t, cudaStreamDestroy>;

  Owned stream_;
};

namespace detail {

/// cudaEventQuery, which the guard allows beside stream captures. "Not ready" does not remain as
/// this thread's last error.
inline cudaError_t query(cudaEvent_t event, const CaptureModeGuard&) noexcept {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) cudaGetLastError();
  return status;
}
/// The same, and again after an error: one failed query says nothing about the event.
inline cudaError_t query_twice(cudaEvent_t event, const CaptureModeGuard& guard) noexcept {
  const cudaError_t status = query(event, guard);
  return status == cudaSuccess || status == cudaErrorNotReady ? status : query(event, guard);
}

}  // namespace detail

/// An owned event of the device that was current at construction. Recording it on a stream of
/// another device is an error in CUDA.
class Event {
 public:
  /// By default without timing, which is cheapest to record. Pass cudaEventDefault to measure time.
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    cudaEvent_t event = nullptr;
    detail::check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags", flags);
    event_ = Owned(event);
  }

  /// The event, which this object still owns.
  cudaEvent_t get() const noexcept { return event_.get(); }

  /// Records the event behind all work that `stream` holds now. Does not block.
  [[gnu::always_inline]] void record(StreamRef stream) {
    detail::check(cudaEventRecord(get(), detail::named(stream)), "cudaEventRecord");
  }
  /// Work that is queued on `stream` from now on waits for the last record. Does not block.
  [[gnu::always_inline]] void make_wait(StreamRef stream) const {
    detail::check(cudaStreamWaitEvent(detail::named(stream), get(), cudaEventWaitDefault),
                  "cudaStreamWaitEvent");
  }
  /// Whether the last record has been reached; true if there was none. Does not block. Safe beside
  /// a stream capture on another thread.
  bool done() const {
    const cudaError_t status = detail::query(get(), CaptureModeGuard());
    if (status != cudaErrorNotReady) detail::check(status, "cudaEventQuery");
    return status == cudaSuccess;
  }
  /// Blocks this thread until the last record is reached.
  void synchronize() const { detail::check(cudaEventSynchronize(get()), "cudaEventSynchronize"); }

 private:
  using Owned = detail::Owned<cudaEvent_t, cudaEventDestroy>;

  Owned event_;
};

}  // namespace penstock
