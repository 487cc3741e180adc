// SPDX-License-Identifier: Apache-2.0
#include "ranges.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "thread_id.hpp"

namespace penstock::inline PENSTOCK_ABI::trace::detail {

namespace {

/// The recording window, between start_ranges and stop_ranges. Its members are written only while
/// it is closed and no thread is within add().
struct Window {
  std::atomic<bool> open{false};
  EventSink* sink = nullptr;
  Time begin = 0;

  Time time() const { return open.load(std::memory_order_acquire) ? now() : 0; }
};

/// The open ranges of one thread. Only the end of a window takes the lock of another thread.
struct ThreadRanges {
  std::mutex mutex;
  std::vector<OpenRange> stack;  ///< of all domains; the ranges of each domain nest
  const std::uint64_t thread = this_thread_id();
  KeptNumber track;
};

/// Lanes of ranges that overlap: each has one open range at a time.
class Lanes {
 public:
  std::size_t take() {
    const auto free = std::find(taken_.begin(), taken_.end(), false);
    const auto lane = static_cast<std::size_t>(free - taken_.begin());
    if (free == taken_.end()) taken_.push_back(true);
    taken_[lane] = true;
    return lane;
  }
  void give_back(std::size_t lane) { taken_[lane] = false; }

 private:
  std::vector<bool> taken_;
};

/// A range of start_range, which any thread may end.
struct StartedRange {
  OpenRange range;
  std::uint64_t thread;
  std::optional<std::size_t> lane;  ///< where it is shown; none: on the thread
};

struct Ranges {
  Window window;
  std::mutex mutex;  // guards the following members; taken before the locks of the threads
  std::vector<ThreadRanges*> threads;
  std::map<std::uint64_t, StartedRange> started;  // in the order of their begins
  std::uint64_t last_started = 0;
  Lanes lanes;
};

/// A forked child has only this thread. The locks of other threads would stay locked there, and the
/// sink belongs to its parent.
void watch_forks_for_ranges();

Ranges& ranges() {
  static Ranges& all = []() -> Ranges& {
    watch_forks_for_ranges();
    return *new Ranges;
  }();
  return all;
}

// It is made before a second thread exists; see nvtx.cpp.
[[maybe_unused]] const Ranges& made_early = ranges();

Event event_of(const Window& window, const OpenRange& range, std::uint32_t track, Time end) {
  Event event;
  event.kind = Kind::range;
  event.begin = std::max(range.begin, window.begin);
  event.end = std::max(end, event.begin);
  event.value = range.payload;
  event.color = range.color;
  event.name = range.registered != nullptr ? range.registered->id(*window.sink)
                                           : window.sink->name(range.text);
  event.domain = range.domain->id(*window.sink);
  event.track = track;
  return event;
}

void add(const Window& window, const OpenRange& range, std::uint32_t track, Time end) {
  window.sink->add(event_of(window, range, track, end));
}

/// The thread's lock is held.
std::uint32_t track_of(ThreadRanges& thread, const Window& window) {
  return thread.track.get(*window.sink, [&] { return window.sink->thread_track(thread.thread); });
}

std::uint32_t track_of(const StartedRange& started, EventSink& sink) {
  return started.lane ? sink.lane_track(*started.lane) : sink.thread_track(started.thread);
}

/// The oldest ranges are discarded, so that a program that never ends its ranges does not fill the
/// memory.
constexpr std::size_t kMostOpen = 1 << 14;
void forget_oldest(std::vector<OpenRange>& open) {
  if (open.size() >= kMostOpen) open.erase(open.begin(), open.begin() + kMostOpen / 2);
}
void forget_oldest(Ranges& all) {
  if (all.started.size() < kMostOpen) return;
  for (std::size_t i = 0; i < kMostOpen / 2; ++i) {
    const auto oldest = all.started.begin();
    if (oldest->second.lane) all.lanes.give_back(*oldest->second.lane);
    all.started.erase(oldest);
  }
}

/// Removes the thread's ranges from the registry when the thread ends. Its open ranges end with it.
class AtThreadEnd {
 public:
  ~AtThreadEnd();
};

thread_local constinit ThreadRanges* own_ranges = nullptr;
thread_local constinit bool thread_ends = false;

/// Returns null when the thread is running its last destructors.
ThreadRanges* this_thread_ranges() {
  if (own_ranges == nullptr && !thread_ends) {
    thread_local const AtThreadEnd at_end;
    static_cast<void>(at_end);
    own_ranges = new ThreadRanges;
    const std::lock_guard lock(ranges().mutex);
    ranges().threads.push_back(own_ranges);
  }
  return own_ranges;
}

AtThreadEnd::~AtThreadEnd() {
  thread_ends = true;
  const std::unique_ptr<ThreadRanges> mine(std::exchange(own_ranges, nullptr));
  if (mine == nullptr) return;
  const std::lock_guard lock(ranges().mutex);
  std::vector<ThreadRanges*>& all = ranges().threads;
  all.erase(std::find(all.begin(), all.end(), mine.get()));
  const Window& window = ranges().window;
  if (!window.open.load(std::memory_order_acquire)) return;
  const Time end = now();
  for (const OpenRange& open : mine->stack) add(window, open, track_of(*mine, window), end);
}

void watch_forks_for_ranges() {
  const auto lock = [] { ranges().mutex.lock(); };
  const auto unlock = [] { ranges().mutex.unlock(); };
  const auto forget_parent = [] {
    Ranges& all = ranges();
    all.window.open = false;
    std::erase_if(all.threads, [](const ThreadRanges* thread) { return thread != own_ranges; });
    all.mutex.unlock();
  };
  ::pthread_atfork(lock, unlock, forget_parent);
}

std::atomic<void (*)()> at_stalls{nullptr};

bool is_stall(const OpenRange& range) {
  return range.registered != nullptr && range.registered->is_stall() && range.domain->is_penstock();
}

void tell_of_stall() {
  if (const auto callback = at_stalls.load()) callback();
}

}  // namespace

void call_at_stalls(void (*callback)()) {
  at_stalls = callback;
}

int push_range(OpenRange range) {
  ThreadRanges* const thread = this_thread_ranges();
  if (thread == nullptr) return 0;
  const bool stalls = is_stall(range);
  range.begin = ranges().window.time();
  int depth;
  {
    const std::lock_guard lock(thread->mutex);
    forget_oldest(thread->stack);
    thread->stack.push_back(std::move(range));
    depth = static_cast<int>(thread->stack.size()) - 1;
  }
  if (stalls) tell_of_stall();  // after the push, so that the dump has the range
  return depth;
}

int pop_range(Text& domain) {
  ThreadRanges* const thread = this_thread_ranges();
  if (thread == nullptr) return -1;
  const Window& window = ranges().window;
  const std::lock_guard lock(thread->mutex);
  std::vector<OpenRange>& stack = thread->stack;
  const auto found = std::find_if(stack.rbegin(), stack.rend(),
                                  [&](const OpenRange& open) { return open.domain == &domain; });
  if (found == stack.rend()) return -1;
  if (const Time end = window.time(); end != 0) add(window, *found, track_of(*thread, window), end);
  stack.erase(std::next(found).base());
  return static_cast<int>(stack.size());
}

std::uint64_t start_range(OpenRange range) {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  range.begin = all.window.time();  // The lane's last range has ended.
  forget_oldest(all);
  StartedRange started{std::move(range), this_thread_id(), {}};
  if (started.range.domain->is_penstock()) started.lane = all.lanes.take();
  const std::uint64_t id = ++all.last_started;
  all.started.emplace(id, std::move(started));
  return id;
}

void end_range(std::uint64_t id) {
  Ranges& all = ranges();
  const Window& window = all.window;
  const std::lock_guard lock(all.mutex);
  const auto found = all.started.find(id);
  if (found == all.started.end()) return;
  const StartedRange& started = found->second;
  if (const Time time = window.time(); time != 0)
    add(window, started.range, track_of(started, *window.sink), time);
  if (started.lane) all.lanes.give_back(*started.lane);
  all.started.erase(found);
}

void start_ranges(EventSink& sink, Time begin) {
  const std::lock_guard lock(ranges().mutex);
  Window& window = ranges().window;
  window.sink = &sink;
  window.begin = begin;
  window.open.store(true, std::memory_order_release);
}

void stop_ranges(Time end) {
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  if (!all.window.open.exchange(false)) return;
  for (ThreadRanges* const thread : all.threads) {
    // With this lock, no thread that saw the window open is still in add().
    const std::lock_guard thread_lock(thread->mutex);
    for (const OpenRange& range : thread->stack)
      add(all.window, range, track_of(*thread, all.window), end);
  }
  for (const auto& [id, started] : all.started)
    add(all.window, started.range, track_of(started, *all.window.sink), end);
}

RangesUnderWay open_ranges() {
  RangesUnderWay open;
  Ranges& all = ranges();
  const std::lock_guard lock(all.mutex);
  const Window& window = all.window;
  if (!window.open.load(std::memory_order_acquire)) {
    open.moment = now();
    return open;
  }
  for (ThreadRanges* const thread : all.threads) {
    const std::lock_guard thread_lock(thread->mutex);
    // Each range of the thread ends before this moment or later.
    const Time moment = open.moments[thread->thread] = now();
    for (const OpenRange& range : thread->stack)
      open.events.push_back(event_of(window, range, track_of(*thread, window), moment));
  }
  open.moment = now();
  for (const auto& [id, started] : all.started)
    open.events.push_back(
        event_of(window, started.range, track_of(started, *window.sink), open.moment));
  return open;
}

}  // namespace penstock::trace::detail
