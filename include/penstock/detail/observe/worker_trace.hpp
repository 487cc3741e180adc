// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerTrace: what a worker does at present, and how long it has worked and waited. The worker
// writes it with relaxed or release stores; any thread may read it. Only a wait reads the clock;
// the time of the work comes from the stamps of the batches.

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <penstock/detail/observe/thread_usage.hpp>
#include <penstock/detail/observe/ticks.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Adds `value` to `sum` without an atomic read-modify-write. Only one thread may write `sum`.
template <class T>
void add_alone(std::atomic<T>& sum, T value) {
  sum.store(sum.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

/// Adds up the time between start and stop. One thread starts and stops it; any thread may read it.
/// The result never decreases.
class Stopwatch {
 public:
  void start(Ticks now) { store((now - (load() >> 1)) << 1 | 1); }
  void stop(Ticks now) { store((now - (load() >> 1)) << 1); }
  Ticks elapsed() const {
    const Ticks value = load();
    const bool runs = (value & 1) != 0;
    const Ticks elapsed = runs ? ticks() - (value >> 1) : value >> 1;
    // stop() stores a time that was read earlier, so a reader may already have seen a later one.
    Ticks read = read_.load(std::memory_order_relaxed);
    while (read < elapsed &&
           !read_.compare_exchange_weak(read, elapsed, std::memory_order_relaxed)) {
    }
    return std::max(read, elapsed);
  }

 private:
  Ticks load() const { return value_.load(std::memory_order_relaxed); }
  void store(Ticks value) { value_.store(value, std::memory_order_relaxed); }

  // While stopped: twice the sum. While running: twice the time at which a sum of 0 would have
  // started, plus 1. It is a single word, so that a reader never sees half of a change.
  std::atomic<Ticks> value_{0};
  mutable std::atomic<Ticks> read_{0};  // the largest value that a reader got
};

enum class WorkerState : int {
  idle,    ///< between batches, or without work
  room,    ///< waiting until the consumer takes a batch
  memory,  ///< waiting for a pinned block
  slot,    ///< waiting for a device slot
  source,  ///< running the source
  ahead,   ///< announcing later batches
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

/// Whether a worker in this state works on a batch and does not wait.
inline bool is_work(WorkerState state) {
  return state == WorkerState::source || state == WorkerState::ahead;
}

/// What a worker is doing, for which batch, and since when. While it is idle, `number` and `since`
/// have no meaning.
struct WorkerActivity {
  WorkerState state = WorkerState::idle;
  std::uint64_t number = 0;
  Ticks since = 0;
};

/// It is aligned so that workers share no cache line.
class alignas(64) WorkerTrace {
 public:
  /// Records that the worker works on batch `number` since `now`.
  void work_on(std::uint64_t number, Ticks now) { enter(WorkerState::source, number, now); }
  /// Records that the worker neither works nor waits.
  void rest() { state_.store(WorkerState::idle, std::memory_order_relaxed); }

  /// Covers the lifetime of a worker's thread. It is constructed and destroyed on that thread.
  class [[nodiscard]] Shift {
   public:
    explicit Shift(WorkerTrace& trace) : trace_(trace) {
      trace_.thread_.store(this_thread(), std::memory_order_relaxed);
      trace_.usage_.start();
    }
    ~Shift() {
      trace_.rest();
      trace_.usage_.stop();
      trace_.thread_.store(kNoThread, std::memory_order_relaxed);
    }
    Shift(const Shift&) = delete;
    Shift& operator=(const Shift&) = delete;

   private:
    WorkerTrace& trace_;
  };

  /// Records that the worker waits, in `state` with batch `number`, while this object exists. The
  /// destructor sets `now` to the end of the wait. A worker that waits for other workers is idle
  /// instead.
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

  /// Records that the worker announces later batches during its work on batch `number`, while this
  /// object exists. The time counts as work.
  class [[nodiscard]] Announcing {
   public:
    Announcing(WorkerTrace& trace, std::uint64_t number)
        : trace_(trace), before_(trace.state_.load(std::memory_order_relaxed)) {
      if (before_ != WorkerState::idle)  // `since_` stays: it is the beginning of the work.
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

  /// Counts the work of a batch that this worker has finished: the time of all workers in the
  /// source.
  void count_work(Ticks work) { add_alone(work_, work); }
  void count_batch(std::uint64_t bytes) {
    add_alone(batches_, std::uint64_t{1});
    add_alone(bytes_, bytes);
  }

  /// The time that all workers spent in the source for the batches that this worker has finished.
  std::chrono::nanoseconds busy() const { return std::chrono::nanoseconds(load(work_)); }
  std::chrono::nanoseconds waiting() const { return std::chrono::nanoseconds(waiting_.elapsed()); }
  /// The CPU time of the worker's thread.
  std::chrono::nanoseconds cpu() const { return usage_.cpu(); }
  /// The reads of the worker's thread from files; nullopt: unknown.
  std::optional<ReadCounts> reads() const { return usage_.reads(); }
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

  std::atomic<std::uint64_t> thread_{kNoThread};  // the worker's thread, while it runs
  std::atomic<WorkerState> state_{WorkerState::idle};
  std::atomic<std::uint64_t> number_{0}, batches_{0}, bytes_{0};
  std::atomic<Ticks> since_{0}, work_{0};
  Stopwatch waiting_;
  ThreadUsage usage_;
};

}  // namespace penstock::detail
