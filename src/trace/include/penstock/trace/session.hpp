// SPDX-License-Identifier: Apache-2.0
#pragma once

// Session: records what this process does with CUDA, through CUPTI, or, in a program that links
// penstock::emulated, through the emulated runtime. NVTX ranges, names of threads and of streams
// come with it.
//
//   penstock::trace::Session session({.max_events = 1'000'000});
//   run_my_loop();                                    // warmed up before
//   const penstock::trace::Timeline timeline = session.stop();
//   std::cout << penstock::trace::Report(timeline) << '\n';

#include <chrono>
#include <cstddef>
#include <memory>
#include <penstock/version.hpp>
#include <stdexcept>

#include "timeline.hpp"

namespace penstock::inline PENSTOCK_ABI::trace {

namespace detail {
struct Salvage;
}

/// Recording is not possible: no CUPTI, no device, or another tool (nsys, another Session) holds
/// CUPTI's one subscription. what() says which, and what to do.
struct Unavailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a Session records.
struct SessionOptions {
  /// Memory is bounded by 48 bytes for each, allocated as it fills; later events are counted as
  /// dropped. With `last` the latest are kept, and the timeline is shorter than asked, which its
  /// origin says (Origin::excerpt); 1.5 MiB are added then.
  std::size_t max_events = 4'000'000;
  /// Recording starts at cudaProfilerStart and pauses at cudaProfilerStop, in place of at once:
  /// the capture range of nsys's --capture-range=cudaProfilerApi.
  bool capture_range = false;
  bool calls = true;  ///< records calls of the CUDA runtime API
  /// Records NVTX ranges; what is open when recording begins or ends is cut to it.
  bool ranges = true;
  /// Records how much memory is taken on each device (Timeline::memory): on a GPU when recording
  /// begins and ends, and after each call that allocates, frees, instantiates a graph or loads
  /// code; after asynchronous ones at most once in a millisecond.
  bool memory = true;
  /// Records kernels within a graph one by one, else each launch as a whole.
  bool graph_nodes = true;
  /// Keeps what happened in this time until now alone, for a program that runs for weeks; 0: the
  /// whole run. Memory is bounded as said at `max_events`, of which the latest are kept, and by the
  /// names, threads and streams of three times this time.
  std::chrono::nanoseconds last{0};
};

/// Records what this process does with CUDA. At most one in a process records at a time. May begin
/// and stop while other threads use CUDA. On a GPU a stream bears the name that markers::StreamName
/// gave it (as penstock's own have), whenever that was, or that nvtxNameCudaStream gives it while a
/// session is there.
class Session {
 public:
  /// Recording begins, or waits for its capture range. Throws Unavailable.
  explicit Session(SessionOptions options = {});
  /// Ends recording without a wait, if it was not stopped; what was recorded is lost.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// What happened in the time `last` until now; recording goes on. What began before is cut to it,
  /// and what has not ended is left out, but for ranges, which are cut. Waits for no device;
  /// threads that record wait for some microseconds. On a GPU kernels and copies that run at this
  /// moment are lost, for later timelines too. Without `SessionOptions::last`, or after stop(),
  /// throws std::logic_error. Any thread, but not in a callback of CUDA's.
  Timeline recent();

  /// Ends recording, and waits for the devices, so that all work that was submitted until then is
  /// in the timeline (with `last`, what it is of that time); a call that is under way on another
  /// thread is not. Then the next session may begin. Not within a stream capture. Any thread; a
  /// second call throws std::logic_error.
  Timeline stop();

 private:
  friend struct detail::Salvage;
  struct Recorder;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace penstock::trace
