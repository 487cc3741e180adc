// SPDX-License-Identifier: Apache-2.0
#include "ranges.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "thread_id.hpp"

namespace penstock::trace::detail {

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

/// A range of start_range, which any thread may end.
struct StartedRange {
  OpenRange range;
  std::uint64_t thread;
};

struct Ranges {
  Window window;
  std::mutex mutex;  // guards the following members; taken before the locks of the threads
  std::vector<ThreadRanges*> threads;
  std::map<std::uint64_t, StartedRange> started;  // in the order of their begins
  std::uint64_t last_started = 0;
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

/// The oldest ranges are discarded, so that a program that never ends its ranges does not fill the
/// memory.
template <class Open>
void forget_oldest(Open& open) {
  constexpr std::size_t kMost = 1 << 14;
  if (open.size() < kMost) return;
  open.erase(open.begin(), std::next(open.begin(), kMost / 2));
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
  return range.registered != nullptr && range.registered->is_stall() &&
         range.domain->text() == "penstock";
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
  range.begin = ranges().window.time();
  const std::lock_guard lock(ranges().mutex);
  forget_oldest(ranges().started);
  const std::uint64_t id = ++ranges().last_started;
  ranges().started.emplace(id, StartedRange{std::move(range), this_thread_id()});
  return id;
}

void end_range(std::uint64_t id) {
  const Window& window = ranges().window;
  const std::lock_guard lock(ranges().mutex);
  const auto found = ranges().started.find(id);
  if (found == ranges().started.end()) return;
  if (const Time time = window.time(); time != 0)
    add(window, found->second.range, window.sink->thread_track(found->second.thread), time);
  ranges().started.erase(found);
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
    add(all.window, started.range, all.window.sink->thread_track(started.thread), end);
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
        event_of(window, started.range, window.sink->thread_track(started.thread), open.moment));
  return open;
}

}  // namespace penstock::trace::detail
