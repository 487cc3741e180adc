// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventSink: stores what the backends and NVTX see while a Session records. Memory is bounded, and
// any thread may use it. A name costs a look-up; an event costs a few nanoseconds under a lock that
// threads do not share (shelves.hpp).

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Returns the time of CLOCK_MONOTONIC.
Time now();

/// The ranges that had begun and not ended, at one moment for each thread.
struct RangesUnderWay {
  std::vector<Event> events;  ///< the ranges, cut at that moment
  /// That moment, by the thread's system id. A range that ends later on that thread is among
  /// `events`, or began later.
  std::unordered_map<std::uint64_t, Time> moments;
  Time moment = 0;  ///< the moment for all other threads; not before any in `moments`
};

class EventSink {
 public:
  /// With `last` 0, the first `max_events` of the run are kept. Otherwise the sink keeps the latest
  /// `max_events` of the time `last` before `clock()`.
  explicit EventSink(std::size_t max_events, Time last = 0, Time (*clock)() = &now);
  ~EventSink();
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;

  /// Changes when the numbers of names and tracks must be requested again (KeptNumber). With
  /// `last`, they are valid only for a while.
  std::uint32_t era() const;

  /// Any thread may call it. A new text is copied; the result is 0 for a new text when the limit is
  /// reached.
  std::uint32_t name(std::string_view text);
  /// Returns the track of a thread by its system id, of a stream by its device and number, or of a
  /// lane by its number.
  std::uint32_t thread_track(std::uint64_t id);
  std::uint32_t stream_track(int device, std::uint64_t id);
  std::uint32_t lane_track(std::uint64_t lane);
  void name_thread(std::uint64_t id, std::string_view name);
  void name_stream(int device, std::uint64_t id, std::string_view name);

  /// Any thread may call it. The event's name and track must be numbers of this sink. The event
  /// counts as dropped when the limit is reached and the first events are kept.
  void add(const Event& event);
  /// Records that `bytes` are in use on the device from `time` on. Any thread may call it, in any
  /// order of times.
  void hold_memory(int device, Time time, std::uint64_t bytes);
  /// Counts events that a backend itself had to drop.
  void drop(std::uint64_t events);

  /// Returns all events so far in order: streams, threads, lanes. Tracks without events are left
  /// out; with `last`, the named ones among them stay. Events outside of [begin, end] are cut to it
  /// or left out. With `last`, the timeline may begin later than requested, if events were
  /// discarded for their age or for lack of room (complete_since). The sink is empty afterwards.
  Timeline take(Time begin, Time end);
  /// Returns a copy, and the sink keeps its events. Other threads wait for some microseconds.
  Timeline copy(Time begin, Time end, const RangesUnderWay& open);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::trace::detail
