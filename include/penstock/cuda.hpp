// SPDX-License-Identifier: Apache-2.0
#pragma once

// Stream and Event own handles of the CUDA runtime. DeviceGuard and CaptureModeGuard change a
// setting of this thread and restore it. Handles are move-only; a moved-from handle is empty
// (get() == nullptr). No destructor throws.

#include <cuda_runtime_api.h>

#include <penstock/error.hpp>
#include <penstock/stream_ref.hpp>
#include <utility>

static_assert(CUDART_VERSION >= 12040, "penstock needs CUDA 12.4 or newer");

namespace penstock::inline PENSTOCK_ABI {

namespace detail {

/// Returns the stream that `stream` names in the source file that calls this. 0 is the legacy
/// default stream or, if the file is compiled for per-thread default streams (nvcc --default-stream
/// per-thread, CUDA_API_PER_THREAD_DEFAULT_STREAM), the calling thread's own. penstock is compiled
/// once for both kinds of files, so each function that takes a stream from the user resolves 0 in
/// the user's file. It is always inlined, because a program may have files of both kinds.
[[gnu::always_inline]] inline cudaStream_t named(cudaStream_t stream) noexcept {
  if (stream != nullptr) return stream;
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return cudaStreamPerThread;
#else
  return cudaStreamLegacy;
#endif
}

/// Owns a handle of CUDA and destroys it by `destroy`. It replaces a unique_ptr, because <memory>
/// is a long header.
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

/// Returns the device that is current on this thread. Throws CudaError.
inline int current_device() {
  int device = 0;
  detail::check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// Makes `device` current on this thread during the lifetime of the guard. Makes no call if
/// `device` is current already.
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
  // The result is ignored, because the guarded call fails too and reports what is wrong.
  void exchange() noexcept { cudaThreadExchangeStreamCaptureMode(&mode_); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Owns a stream of the device that was current at construction. The destructor does not wait for
/// queued work: CUDA destroys the stream when that work is done.
class Stream {
 public:
  /// Creates a stream that does not synchronise with the legacy default stream. A lower `priority`
  /// is more urgent; CUDA clamps it to the device's range. Throws CudaError.
  explicit Stream(int priority = 0) {
    cudaStream_t stream = nullptr;
    detail::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
                  "cudaStreamCreateWithPriority", priority);
    stream_ = Owned(stream);
  }

  /// Returns the stream, which this object still owns.
  cudaStream_t get() const noexcept { return stream_.get(); }
  /// Blocks this thread until all work that is queued now is done. Throws CudaError.
  void synchronize() const { detail::check(cudaStreamSynchronize(get()), "cudaStreamSynchronize"); }

 private:
  using Owned = detail::Owned<cudaStream_t, cudaStreamDestroy>;

  Owned stream_;
};

namespace detail {

/// Calls cudaEventQuery. The guard allows the call during stream captures of other threads. "Not
/// ready" does not remain as this thread's last error.
inline cudaError_t query(cudaEvent_t event, const CaptureModeGuard&) noexcept {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) cudaGetLastError();
  return status;
}
/// Does the same, and tries again after an error, because one failed query says nothing about the
/// event.
inline cudaError_t query_twice(cudaEvent_t event, const CaptureModeGuard& guard) noexcept {
  const cudaError_t status = query(event, guard);
  return status == cudaSuccess || status == cudaErrorNotReady ? status : query(event, guard);
}

}  // namespace detail

/// Owns an event of the device that was current at construction. CUDA does not allow it to be
/// recorded on a stream of another device. Each member may throw CudaError, except get().
class Event {
 public:
  /// By default the event has no timing, and so it is cheapest to record. Pass cudaEventDefault to
  /// measure time.
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    cudaEvent_t event = nullptr;
    detail::check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags", flags);
    event_ = Owned(event);
  }

  /// Returns the event, which this object still owns.
  cudaEvent_t get() const noexcept { return event_.get(); }

  /// Records the event after all work that is queued on `stream` now. Does not block.
  [[gnu::always_inline]] void record(StreamRef stream) {
    detail::check(cudaEventRecord(get(), detail::named(stream)), "cudaEventRecord");
  }
  /// Makes work that is queued on `stream` from now on wait for the last record. Does not block.
  [[gnu::always_inline]] void make_wait(StreamRef stream) const {
    detail::check(cudaStreamWaitEvent(detail::named(stream), get(), cudaEventWaitDefault),
                  "cudaStreamWaitEvent");
  }
  /// Returns true if the device has reached the last record, or if there was none. Does not block.
  /// It may be called during a stream capture on another thread.
  bool done() const {
    const cudaError_t status = detail::query(get(), CaptureModeGuard());
    if (status != cudaErrorNotReady) detail::check(status, "cudaEventQuery");
    return status == cudaSuccess;
  }
  /// Blocks this thread until the device has reached the last record.
  void synchronize() const { detail::check(cudaEventSynchronize(get()), "cudaEventSynchronize"); }

 private:
  using Owned = detail::Owned<cudaEvent_t, cudaEventDestroy>;

  Owned event_;
};

}  // namespace penstock
