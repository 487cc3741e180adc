// SPDX-License-Identifier: Apache-2.0
#pragma once

// EventSink: where the backends and NVTX put what they see while a Session records: bounded memory,
// any thread. A name costs a look-up; an event a few nanoseconds under a lock that threads do not
// share (chunks by thread).

#include <penstock/trace/timeline.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace penstock::trace::detail {

class EventSink {
 public:
  explicit EventSink(std::size_t max_events);
  ~EventSink();
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;

  /// Any thread. The text is copied when it is new; 0 for a new one when the bound is reached.
  std::uint32_t name(std::string_view text);
  /// The track of a thread by its system id, of a stream by its device and number.
  std::uint32_t thread_track(std::uint64_t id);
  std::uint32_t stream_track(int device, std::uint64_t id);
  void name_thread(std::uint64_t id, std::string_view name);
  void name_stream(int device, std::uint64_t id, std::string_view name);

  /// Any thread; the event's name and track are of this sink. Counts as dropped when the bound is
  /// reached.
  void add(const Event& event);
  /// What a backend itself had to drop.
  void drop(std::uint64_t events);

  /// Everything so far, arranged: streams before threads, tracks without events and without a name
  /// left out. Events outside of [begin, end] are cut to it or left out. The sink is empty after.
  Timeline take(Time begin, Time end);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// CLOCK_MONOTONIC.
Time now();

}  // namespace penstock::trace::detail
