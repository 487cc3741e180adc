// SPDX-License-Identifier: Apache-2.0
#pragma once

// ResolvedStream: a stream of the user, with the device and thread that its handle refers to. The
// call that a stream is passed to resolves it once. Events that are recorded later, on any thread
// and with any current device, are then recorded on the same stream.
//
//   a created stream      is the same everywhere
//   cudaStreamLegacy      belongs to the device that is current
//   cudaStreamPerThread   belongs to the device that is current, and to the calling thread
//
// Nothing is cached by handle, since CUDA reuses the handles of destroyed streams. Resolving costs
// CUDA calls: cudaStreamIsCapturing and, for a created stream, cudaGetDeviceCount and, if there are
// several devices, cudaStreamGetDevice (docs/measured/primitives.md has their times).

#include <cuda_runtime_api.h>

#include <penstock/cuda.hpp>
#include <stdexcept>
#include <string>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Returns the device of a created stream. The stream must not be being captured, since the query
/// would end the capture with an error. The runtime before CUDA 12.8 has no such query: then the
/// result is `assumed`, and if that is wrong, recording an event on the stream fails with
/// CudaError. If the process has one device, the stream belongs to it, and no function newer than
/// CUDA 12.4 is called: Nsight Systems 2023.4, which distributions have, cannot import a report
/// with a call that it does not know.
inline int created_stream_device(cudaStream_t stream, [[maybe_unused]] int assumed) {
#if CUDART_VERSION >= 12080
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  int device = 0;
  if (devices > 1) check(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice");
  return device;
#else
  static_cast<void>(stream);
  return assumed < 0 ? current_device() : assumed;
#endif
}

/// Whether `stream` is being captured, or is the legacy default stream while a blocking stream is
/// being captured. Queueing work on it would end that capture with an error. This query does not.
inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    return true;
  }
  check(error, "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// Waits for all work of the device. It is used for memory that a copy may still use, if the end of
/// that copy cannot be found out.
inline void wait_for_device(int device) noexcept {
  try {
    const DeviceGuard guard(device);
    cudaDeviceSynchronize();
  } catch (const CudaError&) {
  }
}

struct ResolvedStream {
  cudaStream_t handle = nullptr;  // never 0, except in an empty object
  int device = 0;
  unsigned long long id = 0;  // for cudaStreamPerThread: unique to the thread

  bool is_default() const noexcept {
    return handle == cudaStreamLegacy || handle == cudaStreamPerThread;
  }
  friend bool operator==(const ResolvedStream&, const ResolvedStream&) = default;

  /// Returns the id of this thread's cudaStreamPerThread on the current device.
  static unsigned long long per_thread_id() {
    unsigned long long number = 0;
    check(cudaStreamGetId(cudaStreamPerThread, &number), "cudaStreamGetId");
    return number;
  }

  /// Calls `f` with a handle that means this stream on the calling thread. For a default stream,
  /// its device is made current. Another thread's cudaStreamPerThread has no handle on this thread:
  /// `f` gets the legacy default stream, whose work runs after all work of blocking streams.
  template <class F>
  auto with_handle(F f) const {
    if (!is_default()) return f(handle);
    const DeviceGuard guard(device);
    const bool elsewhere = handle == cudaStreamPerThread && per_thread_id() != id;
    return f(elsewhere ? cudaStreamLegacy : handle);
  }

  /// Records `event`, which belongs to this stream's device, after all work of the stream. Returns
  /// false, without any effect, if the stream is being captured.
  bool try_record(Event& event) const {
    return with_handle([&](cudaStream_t here) {
      if (is_captured(here)) return false;
      event.record(here);
      return true;
    });
  }

  /// Blocks this thread until the work of the stream is done. Returns false if CUDA fails or the
  /// stream is being captured.
  bool wait_on_host() const noexcept {
    const CaptureModeGuard guard;
    try {
      return with_handle([](cudaStream_t here) {
        return !is_captured(here) && cudaStreamSynchronize(here) == cudaSuccess;
      });
    } catch (const CudaError&) {
      return false;
    }
  }
};

/// Resolves `stream`, which is not 0, for this thread and its current device. If the device of a
/// created stream cannot be queried, it is assumed to be `assumed_device` (-1: the current one).
inline ResolvedStream resolve(cudaStream_t stream, int assumed_device, bool captured) {
  ResolvedStream resolved{stream};
  if (!captured && !resolved.is_default())
    resolved.device = created_stream_device(stream, assumed_device);
  else
    resolved.device =
        assumed_device < 0 || resolved.is_default() ? current_device() : assumed_device;
  if (stream == cudaStreamPerThread) resolved.id = ResolvedStream::per_thread_id();
  return resolved;
}
inline ResolvedStream resolve(cudaStream_t stream, int assumed_device) {
  return resolve(stream, assumed_device, is_captured(stream));
}

/// Throws std::invalid_argument, which names `call`, unless the stream belongs to `device`, the
/// device of the memory that it uses.
inline void require_device(const ResolvedStream& stream, int device, const char* call) {
  if (stream.device == device) return;
  const bool any = stream.is_default();
  throw std::invalid_argument(std::string(call) + ": the " + (any ? "default " : "") +
                              "stream is of device " + std::to_string(stream.device) +
                              ", the memory of device " + std::to_string(device) +
                              (any ? ": make that device current first (cudaSetDevice), or" : ":") +
                              " pass a stream of device " + std::to_string(device));
}

[[noreturn]] inline void throw_captured(const char* call) {
  throw std::logic_error(
      std::string(call) +
      ": the stream is being captured into a graph, or is the legacy default stream while a "
      "blocking stream of its device is; call it before the capture begins, or after it has ended");
}

/// Resolves a stream that can be used now. Throws std::logic_error if it is being captured, and
/// std::invalid_argument if it does not belong to `device` (-1: any device). The messages name
/// `call`.
inline ResolvedStream resolve_usable(cudaStream_t stream, const char* call, int device = -1) {
  if (is_captured(stream)) throw_captured(call);
  const ResolvedStream resolved = resolve(stream, device, false);
  if (device >= 0) require_device(resolved, device, call);
  return resolved;
}

/// Calls `queue`, which queues copies of a block, then `release`, which releases the block after
/// the copies, and returns the result of `release`. `release` is also called if `queue` throws,
/// since some copies may be queued.
template <class Queue, class Release>
auto release_behind(Queue queue, Release release) {
  try {
    queue();
  } catch (...) {
    try {
      release();
    } catch (const CudaError&) {
      // The block is never reused; the first error is the one to report.
    }
    throw;
  }
  return release();
}

}  // namespace penstock::detail
