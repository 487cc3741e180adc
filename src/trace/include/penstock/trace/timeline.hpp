// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timeline: what happened in a process between two moments, on the host's threads and on the
// device's streams: API calls, named ranges, kernels, copies, fills. A Session records one;
// reports, findings and views are made of it, and it is all that they see.
//
//   const Timeline timeline = session.stop();
//   for (const Event& event : timeline.events)
//     if (event.kind == Kind::kernel)
//       std::cout << timeline.name(event) << ' ' << event.duration() << '\n';
//
// Plain data: no thread of its own, nothing is synchronised.

#include <cstddef>
#include <cstdint>
#include <penstock/version.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace {

/// Nanoseconds of CLOCK_MONOTONIC (std::chrono::steady_clock), of the host and of the device alike.
using Time = std::int64_t;

/// What an event is.
enum class Kind : std::uint8_t {
  kernel,         ///< a kernel, on a stream
  copy,           ///< a copy, on a stream
  fill,           ///< a memset, on a stream
  host_function,  ///< cudaLaunchHostFunc's, on a stream
  graph,          ///< a whole graph's launch on a stream, where its nodes are not recorded
  call,           ///< a call of the CUDA runtime API, on a thread
  range,          ///< a range that NVTX names, on a thread or in a lane
};

/// Happens on a stream of a device; else on a thread or in a lane.
constexpr bool on_device(Kind kind) {
  return kind < Kind::call;
}

/// From where to where a copy goes.
enum class Direction : std::uint8_t {
  none,              ///< no copy, or not known
  host_to_device,    ///< from host memory to a device
  device_to_host,    ///< from a device to host memory
  device_to_device,  ///< within a device
  peer_to_peer,      ///< from one device to another
  host_to_host,      ///< within host memory
};

/// What is true of an event. Of copies and fills: pageable (one side is host memory that is not
/// page-locked), synchronous (the host waited for it). Of calls: failed. Of all: cut.
enum Flag : std::uint16_t {
  pageable = 1,     ///< a side of the copy is pageable host memory
  synchronous = 2,  ///< the host waited for it
  failed = 4,       ///< the call returned an error
  cut = 8,          ///< it began before the timeline does; `begin` is the timeline's
};

/// What happened on a thread or a stream. 48 bytes, so that a million are 48 MB. Ends are never
/// before begins.
struct Event {
  Time begin = 0;                 ///< when it began
  Time end = 0;                   ///< when it was done
  std::uint64_t value = 0;        ///< copies, fills: bytes; ranges: payload; calls: their result
  std::uint32_t correlation = 0;  ///< the same for a call and what it put on a stream; 0: none
  std::uint32_t name = 0;         ///< index into Timeline::names
  std::uint32_t track = 0;        ///< index into Timeline::tracks
  std::uint32_t domain = 0;  ///< of a range: index into Timeline::names; 0, "", is NVTX's default
  Kind kind = Kind::call;    ///< what it is
  Direction direction = Direction::none;  ///< of a copy: from where to where
  std::uint16_t flags = 0;                ///< Flag values, added
  /// Of a range: alpha, red, green and blue, as the program gave it to NVTX; 0: it gave none.
  std::uint32_t color = 0;

  /// From begin to end, in nanoseconds.
  Time duration() const { return end - begin; }
  /// Whether `flag` is set.
  bool has(Flag flag) const { return (flags & flag) != 0; }
};
static_assert(sizeof(Event) <= 48 && std::is_trivially_copyable_v<Event>);

/// A thread of the process, a stream of a device, or a lane. Streams come first, then threads.
struct Track {
  /// What a track is of.
  enum class Kind : std::uint8_t {
    stream,  ///< a stream of a device
    thread,  ///< a thread of the process
    lane,    ///< requests of penstock::remote, of which one at a time is in each lane
  };
  Kind kind = Kind::thread;  ///< what the track is of
  int device = -1;           ///< device of a stream
  /// A thread's system id; a stream's number, 0 or 7 the default one; a lane's number, from 0 on.
  std::uint64_t id = 0;
  std::string name;  ///< as the program named it (NVTX); else empty
  int rank = -1;     ///< rank that it is of, in a timeline of several; -1 in that of one process
};

/// The machine and the process, for people.
struct Origin {
  std::string program;       ///< the command line
  std::string host;          ///< name of the machine
  std::int64_t process = 0;  ///< its number on that machine
  int rank = -1;             ///< rank, as the launcher says (penstock/ranks.hpp); -1: none does
  int world_size = 0;        ///< ranks of the job; 0: not known
  std::string device;        ///< name of device 0
  std::string recorder;      ///< "CUPTI 13.0", "emulated CUDA runtime"
  bool emulated = false;     ///< recorded over the emulated CUDA runtime
  std::int64_t started = 0;  ///< seconds since 1970 at `begin`
  /// What to add to a Time for nanoseconds since 1970, when it was recorded.
  std::int64_t wall_clock = 0;
  /// Which part of the run this is, and why, in words; empty: all of what was recorded.
  std::string excerpt = {};
};

/// How much memory is taken on a device from a moment on, until the next level of the device: by
/// CUDA's account (cudaMemGetInfo), so with pools, graphs, code, the context, and on a GPU what
/// other processes have taken.
struct MemoryLevel {
  Time begin = 0;           ///< from when on
  std::uint64_t bytes = 0;  ///< that are taken
  int device = 0;           ///< number of the device
};

/// How busy the video engines of a device (NVDEC) were, as a sample of the driver's NVML says: the
/// mean of all engines, for all processes, in a fraction of a second that ends at `time`.
struct EngineUse {
  Time time = 0;              ///< end of the sampling period
  std::uint32_t percent = 0;  ///< 0 to 100
  int device = 0;             ///< number of the device
};

/// What happened in a process between two moments. Plain data.
struct Timeline {
  Origin origin;                   ///< machine and process
  Time begin = 0, end = 0;         ///< of the recording; every event lies within
  std::vector<std::string> names;  ///< what events refer to; names[0] is ""
  std::vector<Track> tracks;       ///< streams and threads
  std::vector<Event> events;       ///< sorted by begin; of the same begin the longer one first
  std::uint64_t dropped = 0;       ///< events that the memory bound left no room for
  /// Levels of all devices, sorted by begin. Of a device that is not among them nothing is known.
  std::vector<MemoryLevel> memory = {};
  /// Samples of all devices, sorted by time, if the process decoded video. The driver keeps those
  /// of the last seconds only.
  std::vector<EngineUse> engine_use = {};

  /// The event's name: of a kernel, a call or a range.
  const std::string& name(const Event& event) const { return names[event.name]; }
  /// The NVTX domain of a range; empty: the default one.
  const std::string& domain(const Event& event) const { return names[event.domain]; }
  /// Where it happened.
  const Track& track(const Event& event) const { return tracks[event.track]; }
};

/// Brings the events into their order, and begin and end around them where they lie outside.
/// Everything that makes a Timeline calls it last. O(n log n).
void arrange(Timeline& timeline);

/// What a track is called where people read: its name, or "thread 4711", "device 0, stream 13",
/// "requests 2"; with its rank, "rank 3: thread 4711".
std::string title(const Track& track);

}  // namespace penstock::trace
