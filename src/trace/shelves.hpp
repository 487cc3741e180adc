// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shelves: the events of a process's threads, in chunks, within a bound of memory: the first ones
// of a run, or the last ones.

#include <penstock/trace/timeline.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock::trace::detail {

/// Events of one thread, or of a few.
struct Chunk {
  static constexpr std::size_t kEvents = 512;  // 24 KiB, for a thread that has few

  bool full() const { return size == kEvents; }
  void add(const Event& event);

  std::array<Event, kEvents> events;
  std::size_t size = 0;
  Time latest = std::numeric_limits<Time>::min();  ///< end
};

/// The first events of a chunk, which do not change any more; others may be added behind them.
struct Filled {
  std::shared_ptr<const Chunk> chunk;
  std::size_t size = 0;
};
using Chunks = std::vector<Filled>;

/// Any thread.
class Shelves {
 public:
  /// With `last` 0 the first `max_events` are kept. Else those that ended within the time `last`
  /// before clock(), and a sixteenth more; where these are more than `max_events`, the latest of
  /// them, and up to a chunk for each shelf.
  Shelves(std::size_t max_events, Time last, Time (*clock)());

  /// Under a lock that threads do not share unless there are more of them than shelves. Once for
  /// each full chunk the events that are too old are looked for. False: there is no room.
  bool add(const Event& event);

  /// Nothing more will be kept.
  bool is_full() const { return last_ == 0 && added_.load(std::memory_order_relaxed) >= bound_; }

  /// All events so far, which are shared and not copied: a thread waits for microseconds.
  Chunks share();
  /// All events, which are here no longer.
  Chunks take();

  /// No event that ended later than this was forgotten, for its age or for want of room. Read it
  /// after share().
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
  std::atomic<std::size_t> added_{0};  // events; those without room too; not with `last`
  std::array<Shelf, kShelves> shelves_;

  std::atomic<std::size_t> full_{0};  // chunks; changes under the locks of their shelves

  std::mutex room_;  // of what follows; before those of the shelves
  Time next_look_ = 0;
  std::atomic<Time> complete_since_{std::numeric_limits<Time>::min()};
};

}  // namespace penstock::trace::detail
