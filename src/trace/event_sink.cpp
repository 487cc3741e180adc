// SPDX-License-Identifier: Apache-2.0
#include "event_sink.hpp"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <utility>

#include "memory_levels.hpp"
#include "name_tables.hpp"
#include "shelves.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// An era is long enough that no thread holds a number across two later eras before it adds the
/// event.
constexpr Time kShortestEra = 500'000'000;
constexpr std::size_t kFewestNames = 1024;

Track thread(std::uint64_t id) {
  return {Track::Kind::thread, -1, id, {}};
}

Track stream(int device, std::uint64_t id) {
  return {Track::Kind::stream, device, id, {}};
}

}  // namespace

struct EventSink::State {
  State(std::size_t max_events, Time time, Time (*clock)())
      : bound(max_events),
        last(time),
        shelves(max_events, last, clock),
        tables(last == 0 ? 0 : std::max(last, kShortestEra), std::max(kFewestNames, 2 * max_events),
               clock) {}

  const std::size_t bound;
  const Time last;
  Shelves shelves;
  std::atomic<std::uint64_t> dropped{0};  // events that found no room

  std::mutex mutex;  // guards the following members
  NameTables tables;
  MemoryLevels memory;

  std::uint32_t track(const Track& wanted);
  Timeline arranged(Chunks chunks, const std::vector<EraView>& eras, Time begin, Time end,
                    const RangesUnderWay* open) const;
};

EventSink::EventSink(std::size_t max_events, Time last, Time (*clock)())
    : state_(std::make_unique<State>(max_events, last, clock)) {}

EventSink::~EventSink() = default;

// ---- Names and tracks

std::uint32_t EventSink::era() const {
  return state_->tables.era();
}

std::uint32_t EventSink::name(std::string_view text) {
  std::shared_ptr<const Era> gone;  // destroyed without the lock
  const std::lock_guard lock(state_->mutex);
  if (!state_->tables.knows(text)) {
    gone = state_->tables.age();
    // An event with this name would be dropped, so a program that numbers its ranges does not fill
    // the memory.
    if (state_->shelves.is_full()) return 0;
  }
  return state_->tables.name(text);
}

std::uint32_t EventSink::State::track(const Track& wanted) {
  std::shared_ptr<const Era> gone;
  const std::lock_guard lock(mutex);
  gone = tables.age();
  return tables.track(wanted);
}

std::uint32_t EventSink::thread_track(std::uint64_t id) {
  return state_->track(thread(id));
}

std::uint32_t EventSink::stream_track(int device, std::uint64_t id) {
  return state_->track(stream(device, id));
}

std::uint32_t EventSink::lane_track(std::uint64_t lane) {
  return state_->track({Track::Kind::lane, -1, lane, {}});
}

void EventSink::name_thread(std::uint64_t id, std::string_view name) {
  const std::lock_guard lock(state_->mutex);
  state_->tables.name_track(thread(id), name);
}

void EventSink::name_stream(int device, std::uint64_t id, std::string_view name) {
  const std::lock_guard lock(state_->mutex);
  state_->tables.name_track(stream(device, id), name);
}

// ---- Events

void EventSink::add(const Event& event) {
  if (!state_->shelves.add(event)) state_->dropped.fetch_add(1, std::memory_order_relaxed);
}

void EventSink::hold_memory(int device, Time time, std::uint64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->memory.add({time, bytes, device});
}

void EventSink::drop(std::uint64_t events) {
  const std::lock_guard lock(state_->mutex);
  state_->tables.drop(events);
}

// ---- Timelines

namespace {

/// Merges the names and tracks of all eras into one timeline, each of them once.
class Directory {
 public:
  Directory(const std::vector<EraView>& eras, Timeline& timeline) : timeline_(timeline) {
    timeline_.names.emplace_back();
    for (const EraView& era : eras) {
      Part& part = parts_.emplace_back();
      part.era = &era;
      part.names.assign(era.names.size(), kUnknown);
      for (const Track& track : era.tracks) part.tracks.push_back(add_track(track));
    }
  }

  /// Adds all names in their order, even if no event uses them.
  void add_all_names() {
    for (const Part& part : parts_)
      for (std::uint32_t i = 0; i < part.names.size(); ++i) name(part.era->first_name + i);
  }

  void resolve(Event& event) {
    event.name = name(event.name);
    event.domain = name(event.domain);
    event.track = track(event.track);
  }

 private:
  static constexpr std::uint32_t kUnknown = UINT32_MAX;
  struct Part {
    const EraView* era = nullptr;
    std::vector<std::uint32_t> names, tracks;  // numbers in the timeline
  };

  std::uint32_t add_track(const Track& track) {
    const auto [entry, is_new] =
        track_ids_.try_emplace(key_of(track), static_cast<std::uint32_t>(timeline_.tracks.size()));
    if (is_new) timeline_.tracks.push_back(track);
    if (!track.name.empty()) timeline_.tracks[entry->second].name = track.name;  // the last one
    return entry->second;
  }

  /// Returns 0 for a name that is forgotten.
  std::uint32_t name(std::uint32_t id) {
    for (Part& part : parts_) {
      const std::uint32_t place = id - part.era->first_name;
      if (place >= part.names.size()) continue;
      if (part.names[place] == kUnknown) part.names[place] = add_name(*part.era->names[place]);
      return part.names[place];
    }
    return 0;
  }

  std::uint32_t add_name(const std::string& text) {
    const auto [entry, is_new] =
        name_ids_.try_emplace(text, static_cast<std::uint32_t>(timeline_.names.size()));
    if (is_new) timeline_.names.push_back(text);
    return entry->second;
  }

  std::uint32_t track(std::uint32_t id) const {
    for (const Part& part : parts_)
      if (const std::uint32_t place = id - part.era->first_track; place < part.tracks.size())
        return part.tracks[place];
    return kUnknown;
  }

  Timeline& timeline_;
  std::vector<Part> parts_;
  std::unordered_map<std::string_view, std::uint32_t> name_ids_;
  std::map<TrackKey, std::uint32_t> track_ids_;
};

/// Puts streams before threads and these before lanes, and removes the ones without events. With
/// `keep_named`, tracks with a name stay.
void order_tracks(Timeline& timeline, bool keep_named) {
  std::vector<bool> used(timeline.tracks.size());
  for (std::size_t i = 0; i < used.size(); ++i)
    used[i] = keep_named && !timeline.tracks[i].name.empty();
  for (const Event& event : timeline.events) used[event.track] = true;

  std::vector<std::uint32_t> kept;
  for (std::uint32_t i = 0; i < used.size(); ++i)
    if (used[i]) kept.push_back(i);
  std::sort(kept.begin(), kept.end(), [&](std::uint32_t a, std::uint32_t b) {
    return key_of(timeline.tracks[a]) < key_of(timeline.tracks[b]);
  });

  std::vector<Track> ordered;
  std::vector<std::uint32_t> place(used.size());
  for (const std::uint32_t old : kept) {
    place[old] = static_cast<std::uint32_t>(ordered.size());
    ordered.push_back(std::move(timeline.tracks[old]));
  }
  timeline.tracks = std::move(ordered);
  for (Event& event : timeline.events) event.track = place[event.track];
}

/// Cuts the event to [begin, end]. Returns false if no part of it remains.
bool cut_to(Event& event, Time begin, Time end) {
  if (event.end < begin || event.begin > end) return false;
  if (event.begin < begin) {
    if (event.end == begin) return false;
    event.flags |= cut;
  }
  event.begin = std::max(event.begin, begin);
  event.end = std::clamp(event.end, event.begin, end);
  return true;
}

/// Whether the event is, or will be, among the open ranges, or began after they were examined.
bool is_later(const Event& event, const Track& track, const RangesUnderWay& open) {
  if (event.kind != Kind::range) return false;
  const auto found =
      track.kind == Track::Kind::thread ? open.moments.find(track.id) : open.moments.end();
  return event.end > (found == open.moments.end() ? open.moment : found->second);
}

}  // namespace

Timeline EventSink::State::arranged(Chunks chunks, const std::vector<EraView>& eras, Time begin,
                                    Time end, const RangesUnderWay* open) const {
  Timeline timeline;
  timeline.begin = last == 0 ? begin : std::min(end, std::max(begin, shelves.complete_since()));
  timeline.end = end;
  Directory directory(eras, timeline);
  if (last == 0) directory.add_all_names();
  const auto add = [&](Event event) {
    if (!cut_to(event, timeline.begin, end)) return false;
    directory.resolve(event);
    if (event.track >= timeline.tracks.size()) return false;
    timeline.events.push_back(event);
    return true;
  };
  std::size_t most = 0;
  for (const Filled& filled : chunks) most += filled.size;
  timeline.events.reserve(most);
  for (Filled& filled : chunks) {
    for (std::size_t i = 0; i < filled.size; ++i) {
      const Event& event = filled.chunk->events[i];
      if (!add(event) || open == nullptr) continue;
      if (is_later(event, timeline.track(timeline.events.back()), *open))
        timeline.events.pop_back();
    }
    filled.chunk.reset();  // freed one by one, so that there is no second copy
  }
  if (open != nullptr)
    for (const Event& event : open->events) add(event);
  order_tracks(timeline, last == 0);
  arrange(timeline);
  return timeline;
}

Timeline EventSink::take(Time begin, Time end) {
  Chunks chunks = state_->shelves.take();
  std::unique_lock lock(state_->mutex);
  const std::vector<EraView> eras = state_->tables.views();
  const std::uint64_t dropped = state_->tables.take_dropped() + state_->dropped.exchange(0);
  const MemoryLevels memory = std::exchange(state_->memory, {});
  lock.unlock();
  Timeline timeline = state_->arranged(std::move(chunks), eras, begin, end, nullptr);
  timeline.memory = memory.within(timeline.begin, timeline.end);
  timeline.dropped = dropped;
  return timeline;
}

Timeline EventSink::copy(Time begin, Time end, const RangesUnderWay& open) {
  Chunks chunks = state_->shelves.share();
  // The names follow the events, so that all names of the events are there.
  std::unique_lock lock(state_->mutex);
  const std::vector<EraView> eras = state_->tables.views();
  const MemoryLevels memory = state_->memory;
  lock.unlock();
  Timeline timeline = state_->arranged(std::move(chunks), eras, begin, end, &open);
  timeline.memory = memory.within(timeline.begin, timeline.end);
  for (std::size_t i = 0; i < eras.size(); ++i)
    if (i + 1 == eras.size() || eras[i + 1].begin > timeline.begin)
      timeline.dropped += eras[i].dropped;
  return timeline;
}

Time now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return Time{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace penstock::trace::detail
