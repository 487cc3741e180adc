// SPDX-License-Identifier: Apache-2.0
#include "event_sink.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ctime>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace penstock::trace::detail {

namespace {

constexpr std::size_t kChunk = 512;  // events: 24 KiB for a thread that has few

struct Chunk {
  std::array<Event, kChunk> events;
  std::size_t size = 0;
};

/// The events of one thread. Another one takes the lock at the end only.
struct Shelf {
  std::mutex mutex;
  std::deque<std::unique_ptr<Chunk>> chunks;
};

/// Which shelf this thread used last: numbers of sinks are never used again, so that a shelf of a
/// sink that is gone is never touched.
struct LastShelf {
  std::uint64_t sink = 0;
  Shelf* shelf = nullptr;
};
thread_local constinit LastShelf last_shelf;

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> number{0};
  return ++number;
}

using TrackKey = std::tuple<Track::Kind, int, std::uint64_t>;  // orders as a Timeline has them

TrackKey key_of(const Track& track) {
  return {track.kind, track.device, track.id};
}

/// Empty for a thread that has ended.
std::string command_of(std::uint64_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

/// What a thread is called that no tool was told a name of: empty where the program did not name it
/// at all, since its name is inherited then.
std::string system_name(std::uint64_t thread) {
  const auto main = static_cast<std::uint64_t>(::getpid());
  if (thread == main) return "main thread";
  std::string name = command_of(thread);
  return name == command_of(main) ? std::string() : name;
}

}  // namespace

struct EventSink::State {
  explicit State(std::size_t max_events) : bound(max_events) {}

  const std::size_t bound;
  const std::uint64_t number = next_number();
  std::atomic<std::size_t> events{0};  // that were added, the dropped ones too
  std::atomic<std::uint64_t> dropped{0};

  std::mutex mutex;               // of what follows
  std::deque<std::string> names;  // in place, so that `name_ids` can point into them
  std::unordered_map<std::string_view, std::uint32_t> name_ids;
  std::deque<Track> tracks;
  std::map<TrackKey, std::uint32_t> track_ids;
  std::map<std::thread::id, Shelf> shelves;

  std::uint32_t track(const Track& wanted);
  Shelf& own_shelf();
};

EventSink::EventSink(std::size_t max_events) : state_(std::make_unique<State>(max_events)) {
  name("");
}

EventSink::~EventSink() = default;

// ---- Names and tracks

std::uint32_t EventSink::name(std::string_view text) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->name_ids.find(text);
  if (found != state_->name_ids.end()) return found->second;
  // What would bear it is dropped: a program that numbers its ranges must not fill the memory.
  if (state_->events.load(std::memory_order_relaxed) >= state_->bound && !state_->names.empty())
    return 0;
  const auto id = static_cast<std::uint32_t>(state_->names.size());
  state_->name_ids.emplace(state_->names.emplace_back(text), id);
  return id;
}

/// The caller holds the lock.
std::uint32_t EventSink::State::track(const Track& wanted) {
  const auto [entry, is_new] =
      track_ids.try_emplace(key_of(wanted), static_cast<std::uint32_t>(tracks.size()));
  if (is_new) {
    tracks.push_back(wanted);
    if (wanted.kind == Track::Kind::thread) tracks.back().name = system_name(wanted.id);
  }
  return entry->second;
}

std::uint32_t EventSink::thread_track(std::uint64_t id) {
  const std::lock_guard lock(state_->mutex);
  return state_->track({Track::Kind::thread, -1, id, {}});
}

std::uint32_t EventSink::stream_track(int device, std::uint64_t id) {
  const std::lock_guard lock(state_->mutex);
  return state_->track({Track::Kind::stream, device, id, {}});
}

void EventSink::name_thread(std::uint64_t id, std::string_view name) {
  const std::lock_guard lock(state_->mutex);
  state_->tracks[state_->track({Track::Kind::thread, -1, id, {}})].name =
      name.empty() ? system_name(id) : std::string(name);
}

void EventSink::name_stream(int device, std::uint64_t id, std::string_view name) {
  const std::lock_guard lock(state_->mutex);
  state_->tracks[state_->track({Track::Kind::stream, device, id, {}})].name = name;
}

// ---- Events

Shelf& EventSink::State::own_shelf() {
  if (last_shelf.sink != number) {
    const std::lock_guard lock(mutex);
    last_shelf = {number, &shelves[std::this_thread::get_id()]};
  }
  return *last_shelf.shelf;
}

void EventSink::add(const Event& event) {
  if (state_->events.fetch_add(1, std::memory_order_relaxed) >= state_->bound) return drop(1);
  Shelf& shelf = state_->own_shelf();
  const std::lock_guard lock(shelf.mutex);
  if (shelf.chunks.empty() || shelf.chunks.back()->size == kChunk)
    shelf.chunks.push_back(std::unique_ptr<Chunk>(new Chunk));  // its events are not set
  Chunk& chunk = *shelf.chunks.back();
  chunk.events[chunk.size++] = event;
}

void EventSink::drop(std::uint64_t events) {
  state_->dropped.fetch_add(events, std::memory_order_relaxed);
}

// ---- The end

namespace {

/// Streams before threads, without those that have neither an event nor a name.
void order_tracks(Timeline& timeline) {
  std::vector<bool> used(timeline.tracks.size());
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = !timeline.tracks[i].name.empty();
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

/// The part of the chunk's events that lies within [begin, end].
void append_within(const Chunk& chunk, Time begin, Time end, std::vector<Event>& events) {
  for (std::size_t i = 0; i < chunk.size; ++i) {
    Event event = chunk.events[i];
    if (event.end < begin || event.begin > end) continue;
    event.begin = std::max(event.begin, begin);
    event.end = std::clamp(event.end, event.begin, end);
    events.push_back(event);
  }
}

}  // namespace

Timeline EventSink::take(Time begin, Time end) {
  Timeline timeline;
  timeline.begin = begin;
  timeline.end = end;
  const std::lock_guard lock(state_->mutex);
  timeline.names.assign(state_->names.begin(), state_->names.end());
  timeline.tracks.assign(state_->tracks.begin(), state_->tracks.end());
  timeline.events.reserve(std::min(state_->events.load(), state_->bound));
  for (auto& [thread, shelf] : state_->shelves) {
    const std::lock_guard shelf_lock(shelf.mutex);
    for (; !shelf.chunks.empty(); shelf.chunks.pop_front())  // freed one by one: no second copy
      append_within(*shelf.chunks.front(), begin, end, timeline.events);
  }
  state_->events = 0;
  timeline.dropped = state_->dropped.exchange(0);
  order_tracks(timeline);
  arrange(timeline);
  return timeline;
}

Time now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return Time{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace penstock::trace::detail
