// SPDX-License-Identifier: Apache-2.0
#pragma once

// Backend: who sees the CUDA calls and the device's work: CUPTI, or the emulated runtime. It puts
// kernels, copies, fills, host functions, graphs and calls into an EventSink, with times of
// CLOCK_MONOTONIC, and correlations that join a call with what it submitted. NVTX is apart
// (nvtx.hpp): it is the same with both.

#include <driver_types.h>

#include <memory>
#include <penstock/trace/session.hpp>
#include <string>

#include "event_sink.hpp"

namespace penstock::trace::detail {

class Backend {
 public:
  virtual ~Backend() = default;
  /// "CUPTI 13.0", "emulated CUDA runtime".
  virtual std::string name() const = 0;
  /// Name of device 0; empty where there is none.
  virtual std::string device_name() const = 0;
  /// Between resume and pause events are put into the sink; both may be called from any thread,
  /// also from within a callback of cudaProfilerStart. Paused at first.
  virtual void resume() = 0;
  virtual void pause() = 0;
  /// Waits for all devices and puts what is still on its way into the sink. Not in a callback.
  virtual void flush() = 0;
  /// Puts what the devices have done so far into the sink, and waits for none. What has begun on
  /// one and has not ended may be lost by it. Not in a callback.
  virtual void hand_over() {}
  /// Gives names their final text where that was not known, or too dear, while recording.
  virtual void complete(Timeline&) const {}
  /// The device and the number that a stream of the program's has in events. False: no such stream.
  virtual bool identify(cudaStream_t stream, int* device, std::uint64_t* id) const = 0;
  /// identify may be asked for a stream that is gone. (The driver would read its memory.)
  virtual bool identifies_gone_streams() const { return false; }
};

/// Called by a backend at cudaProfilerStart (true) and cudaProfilerStop (false), on the caller's
/// thread, before the call returns.
using ProfilerSwitch = void (*)(void* context, bool start);

/// Throws Unavailable: no libcupti, no device, another subscriber.
std::unique_ptr<Backend> make_cupti_backend(EventSink& sink, const SessionOptions& options,
                                            ProfilerSwitch profiler, void* context);
/// Throws Unavailable when this process has no emulated runtime.
std::unique_ptr<Backend> make_emulated_backend(EventSink& sink, const SessionOptions& options,
                                               ProfilerSwitch profiler, void* context);
/// This process links penstock::emulated.
bool emulated_runtime_is_linked();

}  // namespace penstock::trace::detail
