// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventSink: where the backends and NVTX put what they see while a Session records: bounded memory,
// any thread. A name costs a look-up; an event a few nanoseconds under a lock that threads do not
// share (shelves.hpp).

#include <penstock/trace/timeline.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace penstock::trace::detail {

/// CLOCK_MONOTONIC.
Time now();

/// The ranges that have begun and not ended, at one moment of each thread.
struct RangesUnderWay {
  std::vector<Event> events;  ///< until that moment
  /// That moment, by the thread's system id. What ends later on that thread is among `events`, or
  /// began later.
  std::unordered_map<std::uint64_t, Time> moments;
  Time moment = 0;  ///< of all other threads; not before any in `moments`
};

class EventSink {
 public:
  /// With `last` 0 the first `max_events` of the run are kept, else those of the time `last` before
  /// `clock()`, the latest `max_events` of them.
  explicit EventSink(std::size_t max_events, Time last = 0, Time (*clock)() = &now);
  ~EventSink();
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;

  /// Changes where numbers of names and tracks have to be asked for again (KeptNumber): with `last`
  /// they are good for a while only.
  std::uint32_t era() const;

  /// Any thread. The text is copied when it is new; 0 for a new one when the bound is reached.
  std::uint32_t name(std::string_view text);
  /// The track of a thread by its system id, of a stream by its device and number.
  std::uint32_t thread_track(std::uint64_t id);
  std::uint32_t stream_track(int device, std::uint64_t id);
  void name_thread(std::uint64_t id, std::string_view name);
  void name_stream(int device, std::uint64_t id, std::string_view name);

  /// Any thread; the event's name and track are of this sink. Counts as dropped when the bound is
  /// reached and the first events are kept.
  void add(const Event& event);
  /// From `time` on so many bytes are taken on the device. Any thread, in any order of times.
  void hold_memory(int device, Time time, std::uint64_t bytes);
  /// What a backend itself had to drop.
  void drop(std::uint64_t events);

  /// Everything so far, arranged: streams before threads, tracks without events and, but with
  /// `last`, without a name left out. Events outside of [begin, end] are cut to it or left out;
  /// with `last`, the timeline may begin later than asked, where events were forgotten for their
  /// age or for want of room (complete_since). The sink is empty after.
  Timeline take(Time begin, Time end);
  /// The same, and the sink stays as it is. Other threads wait for some microseconds.
  Timeline copy(Time begin, Time end, const RangesUnderWay& open);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::trace::detail
