// SPDX-License-Identifier: Apache-2.0
#pragma once

// WaitWatch: how long the consumer's stream has no work until the next batch is on the device, by
// two timed events, for some batches: as many as have a free mark, on average at most one in
// kPeriod. What is left of the time from batch to batch is the consumer's own. Nothing here blocks.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/detail/observe/one_reader.hpp>
#include <penstock/detail/observe/span_sums.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/stats.hpp>
#include <utility>

namespace penstock::detail {

class WaitWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // ---- By the thread that takes a batch. If one of them throws CudaError, it is not timed.

  /// `turns`: of the stream, see StreamTurns. `left`: when the thread left with the batch before.
  /// The first batch, which fills the pipeline, is not timed.
  void record_request(cudaStream_t consumer, std::uint64_t turns, Clock::time_point left) {
    is_pending_ = false;
    if (turns == 0) return;
    // A budget, not a fixed interval: after a long wait the next batches come quickly, and if only
    // the slow one were timed, it would stand for all of them.
    const auto now = Clock::now();
    budget_ = std::min<Clock::duration>(budget_ + (now - seen_at_), kPeriod * kMarks);
    seen_at_ = now;
    if (budget_ < kPeriod) return;
    Mark& mark = marks_[next_ % marks_.size()];
    if (mark.is_recorded.load(std::memory_order_acquire)) {
      collect();
      if (mark.is_recorded.load(std::memory_order_acquire)) return;
    }
    budget_ -= kPeriod;
    mark.turns = static_cast<std::int64_t>(turns);
    mark.requested.record(consumer);
    mark.left = left;
    is_pending_ = true;
  }
  void record_take(cudaStream_t consumer) {
    if (!std::exchange(is_pending_, false)) return;
    Mark& mark = marks_[next_ % marks_.size()];
    mark.taken.record(consumer);
    mark.period = Clock::now() - mark.left;
    mark.is_recorded.store(true, std::memory_order_release);
    ++next_;
  }

  // ---- By any thread

  /// Adds up the waits that are over. Does nothing while another thread is in it.
  void collect() noexcept {
    reader_.collect([this] {
      for (Mark& mark : marks_)
        if (mark.is_recorded.load(std::memory_order_acquire)) add(mark);
    });
  }

  SampledWaits times() {
    collect();
    return {.batches = batches_.load(std::memory_order_relaxed),
            .waiting = std::chrono::nanoseconds(waiting_.load(std::memory_order_relaxed)),
            .longest = std::chrono::nanoseconds(longest_.load(std::memory_order_relaxed))};
  }
  /// The consumer's own time for these batches: from one to the next, without the waits.
  std::chrono::nanoseconds consuming() const {
    return std::chrono::nanoseconds(consuming_.load(std::memory_order_relaxed));
  }

 private:
  // Batches that take longer are all timed.
  static constexpr std::chrono::milliseconds kPeriod{1};
  static constexpr int kMarks = 16;

  struct Mark {
    Event requested{cudaEventDefault}, taken{cudaEventDefault};
    std::int64_t turns = 1;
    Clock::time_point left{};              // when the thread left with the batch before
    Clock::duration period{0};             // until it had this one
    std::atomic<bool> is_recorded{false};  // both are, and were not added
  };

  void add(Mark& mark) noexcept {
    const auto wait = elapsed(mark.requested.get(), mark.taken.get());
    if (!wait) return;  // not reached yet
    const auto part = std::max(*wait, std::chrono::nanoseconds(0)) / mark.turns;
    add_alone(waiting_, part.count());
    add_alone(consuming_, (std::chrono::nanoseconds(mark.period) - part).count());
    longest_.store(std::max(part.count(), longest_.load(std::memory_order_relaxed)),
                   std::memory_order_relaxed);
    add_alone(batches_, std::uint64_t{1});
    mark.is_recorded.store(false, std::memory_order_release);
  }

  std::array<Mark, std::size_t{kMarks}> marks_;
  // By the thread that takes:
  Clock::time_point seen_at_{};
  Clock::duration budget_{0};
  bool is_pending_ = false;  // the next mark's request is recorded
  std::uint64_t next_ = 0;
  OneReader reader_;  // of what follows
  std::atomic<std::int64_t> waiting_{0}, longest_{0}, consuming_{0};
  std::atomic<std::uint64_t> batches_{0};
};

}  // namespace penstock::detail
