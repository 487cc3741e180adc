// SPDX-License-Identifier: Apache-2.0
#pragma once

// TakeWatch: measures, by three timed events for each batch, how long the consumer's stream works,
// is idle until the copy of the next batch is issued, and is idle until that copy is done.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <penstock/cuda.hpp>
#include <penstock/detail/observe/one_reader.hpp>
#include <penstock/detail/observe/span_sums.hpp>
#include <penstock/detail/observe/stream_turns.hpp>
#include <penstock/stats.hpp>

namespace penstock::detail {

/// The thread that takes a batch calls `record_request`, `record_issue` and `record_take`, in this
/// order. If one of them throws CudaError, the batch is not counted. Any thread may call the other
/// members. A TakeWatch for 0 batches does nothing.
class TakeWatch {
 public:
  /// The device is at most `batches` batches behind the host.
  explicit TakeWatch(std::size_t batches) {
    // At the request of a batch, its copy is not issued yet: the device may be one more behind.
    if (batches > 0)
      for (std::size_t i = 0; i < std::max(batches + 1, kFewest) + kBeside; ++i)
        marks_.emplace_back();
  }

  /// `pauses`: the consumer comes back from a pause. `turns`: of the stream, see StreamTurns.
  void record_request(cudaStream_t consumer, std::uint64_t turns, bool pauses) {
    if (marks_.empty()) return;
    collect();
    next().turns.store(turns, std::memory_order_relaxed);
    next().ends_pause.store(pauses, std::memory_order_relaxed);
    next().requested.record(consumer);
  }
  void record_issue(cudaStream_t consumer) {
    if (!marks_.empty()) next().issued.record(consumer);
  }
  void record_take(cudaStream_t consumer) {
    if (marks_.empty()) return;
    next().taken.record(consumer);
    taken_.fetch_add(1, std::memory_order_release);
  }

  /// Adds the times of the batches that the device has reached. Does not block; does nothing while
  /// another thread is in this function.
  void collect() noexcept {
    if (!marks_.empty()) reader_.collect([this] { add_reached(); });
  }

  /// The part of DeviceTimes::consuming in pauses.
  std::chrono::nanoseconds paused() const {
    return std::chrono::nanoseconds(paused_.load(std::memory_order_relaxed));
  }
  DeviceTimes times(std::uint64_t copies) {
    collect();
    return {.copies = copies,
            .batches = sums_.count(),
            .consuming = sums_.gaps(),
            .awaiting_batch = sums_.middles(),
            .awaiting_copy = sums_.lasts(),
            .longest_wait = sums_.longest()};
  }

 private:
  // One mark is being recorded, and these are the beginnings of the next spans.
  static constexpr std::size_t kBeside = 1 + StreamTurns::kMost;
  // Where an on_device source and the loop only queue their work, the device is any number of
  // batches behind.
  static constexpr std::size_t kFewest = 64;

  struct Mark {
    Event requested{cudaEventDefault}, issued{cudaEventDefault}, taken{cudaEventDefault};
    std::atomic<std::uint64_t> turns{0};
    std::atomic<bool> ends_pause{false};
  };

  Mark& at(std::uint64_t batch) { return marks_[batch % marks_.size()]; }
  Mark& next() { return at(taken_.load(std::memory_order_relaxed)); }

  void add_reached() noexcept {
    const std::uint64_t taken = taken_.load(std::memory_order_acquire);
    const std::uint64_t kept = marks_.size() - kBeside;
    if (taken > kept) seen_ = std::max(seen_, taken - kept);
    while (seen_ < taken && add(seen_)) ++seen_;
  }
  /// The first batch, which fills the pipeline, is not added: it is the beginning of the second
  /// span.
  bool add(std::uint64_t batch) noexcept {
    const Mark& mark = at(batch);
    const std::uint64_t turns = mark.turns.load(std::memory_order_relaxed);
    if (turns == 0 || turns > batch)
      return elapsed(mark.issued.get(), mark.taken.get()).has_value();
    const std::chrono::nanoseconds before = sums_.gaps();
    if (!sums_.add(at(batch - turns).taken.get(), mark.requested.get(), mark.issued.get(),
                   mark.taken.get(), static_cast<std::int64_t>(turns)))
      return false;
    if (mark.ends_pause.load(std::memory_order_relaxed))
      add_alone(paused_, (sums_.gaps() - before).count());
    return true;
  }

  std::deque<Mark> marks_;
  std::atomic<std::uint64_t> taken_{0};
  OneReader reader_;        // of what follows
  std::uint64_t seen_ = 0;  // the first batch that was not added
  SpanSums sums_;
  std::atomic<std::int64_t> paused_{0};
};

}  // namespace penstock::detail
