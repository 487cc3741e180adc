// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a worker has done and is doing: written by the worker with plain stores, read by anybody.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace penstock::detail {

/// sum += value, where only one thread writes `sum`: no read-modify-write is needed.
template <class T>
void add_alone(std::atomic<T>& sum, T value) {
  sum.store(sum.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

enum class WorkerState : int {
  idle,    ///< between batches, or without work
  room,    ///< waits until the consumer takes a batch
  memory,  ///< waits for a pinned block
  source,  ///< runs the source
};

inline const char* to_string(WorkerState state) {
  switch (state) {
    case WorkerState::idle:
      return "between batches";
    case WorkerState::room:
      return "waiting for room in the ring";
    case WorkerState::memory:
      return "waiting for a pinned block that no copy reads";
    case WorkerState::source:
      return "inside the source";
  }
  return "unknown";
}

/// What one worker is doing: which number of batch, and since when.
struct WorkerActivity {
  WorkerState state = WorkerState::idle;
  std::uint64_t number = 0;
  std::chrono::steady_clock::time_point since{};
};

/// Workers share no cache line.
class alignas(64) WorkerTrace {
 public:
  using Clock = std::chrono::steady_clock;

  /// The worker is in `state` for batch `number` during this object's life. Reads the clock twice.
  class [[nodiscard]] Stay {
   public:
    Stay(WorkerTrace& trace, WorkerState state, std::uint64_t number)
        : trace_(trace), state_(state), since_(Clock::now()) {
      trace.number_.store(number, std::memory_order_relaxed);
      trace.since_.store(since_.time_since_epoch().count(), std::memory_order_relaxed);
      trace.state_.store(state, std::memory_order_release);
    }
    ~Stay() {
      const auto spent = (Clock::now() - since_).count();
      add_alone(state_ == WorkerState::source ? trace_.busy_ : trace_.waiting_, spent);
      trace_.state_.store(WorkerState::idle, std::memory_order_release);
    }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    WorkerTrace& trace_;
    WorkerState state_;
    Clock::time_point since_;
  };

  void count_batch(std::uint64_t bytes) {
    add_alone(batches_, std::uint64_t{1});
    add_alone(bytes_, bytes);
  }

  std::chrono::nanoseconds busy() const { return std::chrono::nanoseconds(load(busy_)); }
  std::chrono::nanoseconds waiting() const { return std::chrono::nanoseconds(load(waiting_)); }
  std::uint64_t batches() const { return load(batches_); }
  std::uint64_t bytes() const { return load(bytes_); }

  WorkerActivity activity() const {
    const WorkerState state = state_.load(std::memory_order_acquire);
    return {state, load(number_), Clock::time_point(Clock::duration(load(since_)))};
  }

 private:
  template <class T>
  static T load(const std::atomic<T>& value) {
    return value.load(std::memory_order_relaxed);
  }

  std::atomic<WorkerState> state_{WorkerState::idle};
  std::atomic<std::uint64_t> number_{0}, batches_{0}, bytes_{0};
  std::atomic<Clock::rep> since_{0}, busy_{0}, waiting_{0};
};

}  // namespace penstock::detail
