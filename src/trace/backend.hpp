// SPDX-License-Identifier: Apache-2.0
#pragma once

// Backend: the source of CUDA calls and device work, which is either CUPTI or the emulated runtime.
// It puts kernels, copies, fills, host functions, graphs and calls into an EventSink, with times of
// CLOCK_MONOTONIC, and with correlations that join a call with the work that it submitted. NVTX is
// separate (nvtx.hpp), because it is the same with both.

#include <driver_types.h>

#include <memory>
#include <penstock/trace/session.hpp>
#include <penstock/version.hpp>
#include <string>
#include <vector>

#include "event_sink.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

class Backend {
 public:
  virtual ~Backend() = default;
  /// Returns "CUPTI 13.0" or "emulated CUDA runtime", for example.
  virtual std::string name() const = 0;
  /// Returns the name of device 0, or an empty string if there is none.
  virtual std::string device_name() const = 0;
  /// Between resume and pause, events are put into the sink. Any thread may call both, even within
  /// a callback of cudaProfilerStart. A backend starts paused.
  virtual void resume() = 0;
  virtual void pause() = 0;
  /// Waits for all devices and puts the remaining events into the sink. Do not call it in a
  /// callback.
  virtual void flush() = 0;
  /// Puts the finished work of the devices into the sink without waiting. Work that has begun and
  /// not ended may be lost. Do not call it in a callback.
  virtual void hand_over() {}
  /// Sets the final text of names that were unknown, or too expensive to find, while recording.
  virtual void complete(Timeline&) const {}
  /// How busy the video engines of the timeline's devices were, if the program decodes video.
  virtual std::vector<EngineUse> engine_use(const Timeline&) const { return {}; }
  /// Finds the device and the number of one of the program's streams in events. Returns false if
  /// there is no such stream.
  virtual bool identify(cudaStream_t stream, int* device, std::uint64_t* id) const = 0;
  /// Whether identify accepts a stream that no longer exists. (The driver would read freed memory.)
  virtual bool identifies_gone_streams() const { return false; }
};

/// A backend calls it at cudaProfilerStart (true) and cudaProfilerStop (false), on the caller's
/// thread, before the call returns.
using ProfilerSwitch = void (*)(void* context, bool start);

/// Throws Unavailable if there is no libcupti, no device, or another subscriber.
std::unique_ptr<Backend> make_cupti_backend(EventSink& sink, const SessionOptions& options,
                                            ProfilerSwitch profiler, void* context);
/// Throws Unavailable if this process has no emulated runtime.
std::unique_ptr<Backend> make_emulated_backend(EventSink& sink, const SessionOptions& options,
                                               ProfilerSwitch profiler, void* context);
/// Whether this process links penstock::emulated.
bool emulated_runtime_is_linked();

}  // namespace penstock::trace::detail
