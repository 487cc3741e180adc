// SPDX-License-Identifier: Apache-2.0
#pragma once

// SourceWatch: how long the work of an on_device source takes on the device, by timed events at its
// beginning and its end on the stream of its worker. Of the batches of all workers on average at
// most one in kPeriod is timed, and none while all marks are in use. Nothing here blocks.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/detail/observe/device_clock.hpp>
#include <penstock/detail/observe/one_reader.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/stats.hpp>

namespace penstock::detail {

class SourceWatch {
 public:
  using Clock = std::chrono::steady_clock;
  using Nanoseconds = std::chrono::nanoseconds;

  /// A batch that is being timed.
  class Mark {
    friend SourceWatch;
    enum class State { free, begun, ended };

    Event begun_{cudaEventDefault}, ended_{cudaEventDefault};
    std::uint64_t number_ = 0;
    std::atomic<State> state_{State::free};
  };

  /// On the current device; `stream` is any of it.
  explicit SourceWatch(cudaStream_t stream) { origin_.record(stream); }

  // ---- By the workers

  /// Call when `stream` waits for what has to be done before the batch. nullptr: this one is not
  /// timed. Throws CudaError.
  Mark* begin(cudaStream_t stream) {
    // A budget, not a fixed interval: else a slow batch that follows quick ones would never be
    // timed.
    const Clock::rep now = Clock::now().time_since_epoch().count();
    Clock::rep spent = spent_until_.load(std::memory_order_relaxed);
    constexpr Clock::rep kEach = Clock::duration(kPeriod).count(),
                         kMost = Clock::rep{kMarks} * kEach;
    const Clock::rep then = std::max(spent, now - kMost) + kEach;
    if (then > now || !spent_until_.compare_exchange_strong(spent, then, std::memory_order_relaxed))
      return nullptr;
    for (Mark& mark : marks_) {
      auto expected = Mark::State::free;
      if (!mark.state_.compare_exchange_strong(expected, Mark::State::begun,
                                               std::memory_order_acquire))
        continue;
      try {
        mark.begun_.record(stream);
      } catch (...) {
        drop(&mark);
        throw;
      }
      return &mark;
    }
    return nullptr;
  }
  /// Call behind the work on batch `number`. Throws CudaError; the mark is the caller's to drop
  /// then.
  void end(Mark& mark, std::uint64_t number, cudaStream_t stream) {
    mark.number_ = number;
    mark.ended_.record(stream);
    mark.state_.store(Mark::State::ended, std::memory_order_release);
  }
  /// The batch is not to be timed after all. Does nothing for nullptr.
  static void drop(Mark* mark) noexcept {
    if (mark != nullptr) mark->state_.store(Mark::State::free, std::memory_order_release);
  }

  /// The consumer was away, or the numbers of the batches start anew: the span goes on with the
  /// next batch that ends.
  void restart() noexcept {
    collect();
    restarts_.store(true, std::memory_order_relaxed);
  }

  // ---- By any thread

  /// Adds up the batches that are done, and frees their marks. Does nothing while another thread is
  /// in it.
  void collect() noexcept {
    reader_.collect([this] { add_ended(); });
  }
  /// The same, at most once in kPeriod.
  void sample() noexcept {
    reader_.sample(kPeriod, [this] { add_ended(); });
  }

  SourceTimes times() const {
    const auto ns = [](const auto& sum) {
      return Nanoseconds(sum.load(std::memory_order_relaxed));
    };
    return {.timed = timed_.load(std::memory_order_relaxed),
            .busy = ns(busy_),
            .batches = batches_.load(std::memory_order_relaxed),
            .span = ns(span_)};
  }

 private:
  static constexpr std::chrono::microseconds kPeriod{100};
  // Where source and loop only queue their work, the device is any number of batches behind.
  static constexpr std::size_t kMarks = 64;

  void add_ended() noexcept {
    for (Mark& mark : marks_)
      if (mark.state_.load(std::memory_order_acquire) == Mark::State::ended) add(mark);
  }
  void add(Mark& mark) noexcept {
    const auto busy = elapsed(mark.begun_.get(), mark.ended_.get());
    const auto end = elapsed(origin_.get(), mark.ended_.get());
    if (!busy || !end) return;  // not reached yet
    add_alone(busy_, std::max(*busy, Nanoseconds(0)).count());
    // Batches of several workers end in any order.
    if (restarts_.exchange(false, std::memory_order_relaxed))
      first_ = {mark.number_, *end, batches_.load(std::memory_order_relaxed), span()};
    if (mark.number_ > first_.number && *end - first_.end > span() - first_.span) {
      span_.store((first_.span + *end - first_.end).count(), std::memory_order_relaxed);
      batches_.store(first_.batches + mark.number_ - first_.number, std::memory_order_relaxed);
    }
    add_alone(timed_, std::uint64_t{1});
    drop(&mark);
  }
  Nanoseconds span() const { return Nanoseconds(span_.load(std::memory_order_relaxed)); }

  std::array<Mark, kMarks> marks_;
  Event origin_{cudaEventDefault};
  std::atomic<Clock::rep> spent_until_{0};  // the budget
  std::atomic<bool> restarts_{true};
  OneReader reader_;  // of what follows
  struct First {
    std::uint64_t number = 0;
    Nanoseconds end{0};
    std::uint64_t batches = 0;  // before it
    Nanoseconds span{0};
  };
  First first_;  // since the last restart
  std::atomic<std::uint64_t> timed_{0}, batches_{0};
  std::atomic<std::int64_t> busy_{0}, span_{0};
};

}  // namespace penstock::detail
