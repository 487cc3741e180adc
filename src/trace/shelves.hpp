// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shelves: stores the events of a process's threads in chunks of bounded total memory. It keeps the
// first events of a run, or the last ones.

#include <penstock/trace/timeline.hpp>
#include <penstock/version.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::trace::detail {

/// Events of one thread, or of a few.
struct Chunk {
  static constexpr std::size_t kEvents = 512;  // 24 KiB, because some threads have few events

  bool full() const { return size == kEvents; }
  void add(const Event& event);

  std::array<Event, kEvents> events;
  std::size_t size = 0;
  Time latest = std::numeric_limits<Time>::min();  ///< the latest end
};

/// The first events of a chunk. They no longer change; other events may be added after them.
struct Filled {
  std::shared_ptr<const Chunk> chunk;
  std::size_t size = 0;
};
using Chunks = std::vector<Filled>;

/// Any thread may use it.
class Shelves {
 public:
  /// With `last` 0, the first `max_events` are kept. Otherwise it keeps the events that ended
  /// within the time `last` before clock(), and a sixteenth more. If these are more than
  /// `max_events`, it keeps the latest of them, plus up to a chunk for each shelf.
  Shelves(std::size_t max_events, Time last, Time (*clock)());

  /// Adds an event under a lock that threads do not share, unless there are more threads than
  /// shelves. Each time a chunk is full, it looks for events that are too old. Returns false if
  /// there is no room.
  bool add(const Event& event);

  /// Whether no more events will be kept.
  bool is_full() const { return last_ == 0 && added_.load(std::memory_order_relaxed) >= bound_; }

  /// Returns all events so far, shared and not copied. A thread waits for microseconds.
  Chunks share();
  /// Returns all events and removes them.
  Chunks take();

  /// Every event that ended later than this is kept: none was discarded for its age or for lack of
  /// room. Read it after share().
  Time complete_since() const { return complete_since_.load(); }

 private:
  static constexpr std::size_t kShelves = 64;

  struct alignas(64) Shelf {
    std::mutex mutex;
    std::deque<std::shared_ptr<Chunk>> chunks;  // all but the last one are full
  };

  bool put(Shelf& shelf, const Event& event);
  void make_room();
  void forget_before(Time horizon);
  bool forget_oldest();
  void forget_front(Shelf& shelf, Chunks& removed);
  void remove_front(Shelf& shelf, Chunks& removed);

  const std::size_t bound_;
  const Time last_;
  Time (*const clock_)();
  // The number of events, including those without room. It is unused with `last`.
  std::atomic<std::size_t> added_{0};
  std::array<Shelf, kShelves> shelves_;

  std::atomic<std::size_t> full_{0};  // number of chunks; changes under the locks of their shelves

  std::mutex room_;  // guards the following members; taken before the locks of the shelves
  Time next_look_ = 0;
  std::atomic<Time> complete_since_{std::numeric_limits<Time>::min()};
};

}  // namespace penstock::trace::detail
