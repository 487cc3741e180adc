// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerTrace: what a worker does, and how long it has worked and waited. The worker writes it with
// plain stores; any thread reads it. Only a wait reads the clock: the work is that of the stamps.

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/observe/thread_watch.hpp>
#include <penstock/detail/observe/ticks.hpp>

namespace penstock::detail {

/// sum += value, without a read-modify-write: only one thread may write `sum`.
template <class T>
void add_alone(std::atomic<T>& sum, T value) {
  sum.store(sum.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

/// Adds up the time between start and stop. One thread starts and stops it. Any thread reads it;
/// the result never decreases.
class Stopwatch {
 public:
  void start(Ticks now) { store((now - (load() >> 1)) << 1 | 1); }
  void stop(Ticks now) { store((now - (load() >> 1)) << 1); }
  Ticks elapsed() const {
    const Ticks value = load();
    const bool runs = (value & 1) != 0;
    const Ticks elapsed = runs ? ticks() - (value >> 1) : value >> 1;
    // A reader may be ahead of a stop, whose time was taken before it is stored.
    Ticks read = read_.load(std::memory_order_relaxed);
    while (read < elapsed &&
           !read_.compare_exchange_weak(read, elapsed, std::memory_order_relaxed)) {
    }
    return std::max(read, elapsed);
  }

 private:
  Ticks load() const { return value_.load(std::memory_order_relaxed); }
  void store(Ticks value) { value_.store(value, std::memory_order_relaxed); }

  // While stopped, twice the sum. While running, twice the time at which a sum of 0 would have
  // started, plus 1. One word, so that a reader never sees half of a change.
  std::atomic<Ticks> value_{0};
  mutable std::atomic<Ticks> read_{0};  // the most that a reader got
};

enum class WorkerState : int {
  idle,    ///< between batches, or without work
  room,    ///< waiting until the consumer takes a batch
  memory,  ///< waiting for a pinned block
  slot,    ///< waiting for a device slot
  source,  ///< running the source
  ahead,   ///< announcing batches that come later
};

inline const char* to_string(WorkerState state) {
  constexpr std::array names{"between batches",
                             "waiting for room in the ring",
                             "waiting for a pinned block that no copy reads",
                             "waiting for a device slot: a lease has to end",
                             "inside the source",
                             "inside ReadAhead::will_need, or in the sampler for it"};
  return names.at(static_cast<std::size_t>(state));
}

/// Whether a worker has a batch, and does not wait.
inline bool is_work(WorkerState state) {
  return state == WorkerState::source || state == WorkerState::ahead;
}

/// What a worker is doing, for which batch, and since when. `number` and `since` say nothing of one
/// that is idle.
struct WorkerActivity {
  WorkerState state = WorkerState::idle;
  std::uint64_t number = 0;
  Ticks since = 0;
};

/// Aligned so that workers share no cache line.
class alignas(64) WorkerTrace {
 public:
  /// The worker works on batch `number`, since `now`, until it waits or rests.
  void work_on(std::uint64_t number, Ticks now) { enter(WorkerState::source, number, now); }
  /// The worker neither works nor waits.
  void rest() { state_.store(WorkerState::idle, std::memory_order_relaxed); }

  /// The life of a worker's thread, on that thread: in the end it rests.
  class [[nodiscard]] Shift {
   public:
    explicit Shift(WorkerTrace& trace) : trace_(trace) {
      trace_.thread_.store(this_thread(), std::memory_order_relaxed);
      trace_.watch_.start();
    }
    ~Shift() {
      trace_.rest();
      trace_.watch_.stop();
      trace_.thread_.store(kNoThread, std::memory_order_relaxed);
    }
    Shift(const Shift&) = delete;
    Shift& operator=(const Shift&) = delete;

   private:
    WorkerTrace& trace_;
  };

  /// The worker waits, in `state` with batch `number`, while this object lives. Its end is `now`
  /// then. A worker that waits for other workers is idle.
  class [[nodiscard]] Wait {
   public:
    Wait(WorkerTrace& trace, Ticks& now, WorkerState state, std::uint64_t number)
        : trace_(trace), now_(now) {
      now_ = ticks();
      trace_.waiting_.start(now_);
      trace_.enter(state, number, now_);
    }
    ~Wait() {
      now_ = ticks();
      trace_.waiting_.stop(now_);
      trace_.rest();
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    WorkerTrace& trace_;
    Ticks& now_;
  };

  /// The worker, in its work on batch `number`, announces others while this object lives. The time
  /// counts as work.
  class [[nodiscard]] Announcing {
   public:
    Announcing(WorkerTrace& trace, std::uint64_t number)
        : trace_(trace), before_(trace.state_.load(std::memory_order_relaxed)) {
      if (before_ != WorkerState::idle)  // Then `since` tells when the work began.
        trace.state_.store(WorkerState::ahead, std::memory_order_release);
      else
        trace.enter(WorkerState::ahead, number, ticks());
    }
    ~Announcing() { trace_.state_.store(before_, std::memory_order_release); }
    Announcing(const Announcing&) = delete;
    Announcing& operator=(const Announcing&) = delete;

   private:
    WorkerTrace& trace_;
    const WorkerState before_;
  };

  /// This worker has finished a batch, for which all workers were in the source so long.
  void count_work(Ticks work) { add_alone(work_, work); }
  void count_batch(std::uint64_t bytes) {
    add_alone(batches_, std::uint64_t{1});
    add_alone(bytes_, bytes);
  }

  /// The time inside the source for the batches that this worker has finished.
  std::chrono::nanoseconds busy() const { return std::chrono::nanoseconds(load(work_)); }
  std::chrono::nanoseconds waiting() const { return std::chrono::nanoseconds(waiting_.elapsed()); }
  /// CPU time of the worker's thread.
  std::chrono::nanoseconds cpu() const { return watch_.cpu(); }
  /// What the worker's thread reads from files; nullopt: unknown.
  std::optional<ReadCounts> reads() const { return watch_.reads(); }
  std::uint64_t batches() const { return load(batches_); }
  std::uint64_t bytes() const { return load(bytes_); }

  /// Whether the worker runs on the calling thread.
  bool is_of_this_thread() const {
    return thread_.load(std::memory_order_relaxed) == this_thread();
  }

  WorkerActivity activity() const {
    const WorkerState state = state_.load(std::memory_order_acquire);
    return {state, load(number_), load(since_)};
  }

 private:
  static constexpr std::uint64_t kNoThread = ~std::uint64_t{0};
  static std::uint64_t this_thread() { return static_cast<std::uint64_t>(pthread_self()); }

  template <class T>
  static T load(const std::atomic<T>& value) {
    return value.load(std::memory_order_relaxed);
  }

  void enter(WorkerState state, std::uint64_t number, Ticks now) {
    number_.store(number, std::memory_order_relaxed);
    since_.store(now, std::memory_order_relaxed);
    state_.store(state, std::memory_order_release);
  }

  std::atomic<std::uint64_t> thread_{kNoThread};  // while it runs
  std::atomic<WorkerState> state_{WorkerState::idle};
  std::atomic<std::uint64_t> number_{0}, batches_{0}, bytes_{0};
  std::atomic<Ticks> since_{0}, work_{0};
  Stopwatch waiting_;
  ThreadWatch watch_;
};

}  // namespace penstock::detail
