// SPDX-License-Identifier: Apache-2.0
#pragma once

// TakeWatch: measures, by three timed events for each batch, how long the consumer's stream works,
// is idle until the copy of the next batch is issued, and is idle until that copy is done.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/detail/measure/span_sums.hpp>
#include <penstock/stats.hpp>
#include <vector>

namespace penstock::detail {

/// The thread that takes a batch calls `record_asked`, `record_staged` and `record_copied`, in this
/// order. They throw CudaError, and then that batch is not counted. Any thread may call the other
/// members. Without room for batches, all do nothing.
class TakeWatch {
 public:
  /// The device is at most `batches` batches behind the host.
  explicit TakeWatch(std::size_t batches) {
    // When a batch is requested, its copy is not issued yet: the device may be one more behind.
    if (batches > 0)
      for (std::size_t i = 0; i < batches + 1 + kBeside; ++i) marks_.emplace_back();
  }

  void record_asked(cudaStream_t consumer) {
    if (marks_.empty()) return;
    collect();
    next().asked.record(consumer);
  }
  void record_staged(cudaStream_t consumer) {
    if (!marks_.empty()) next().staged.record(consumer);
  }
  void record_copied(cudaStream_t consumer) {
    if (marks_.empty()) return;
    next().copied.record(consumer);
    entered_.fetch_add(1, std::memory_order_release);
  }

  /// Adds the times of the batches that the device has reached. Does not block; does nothing while
  /// another thread does it.
  void collect() noexcept {
    // Reading a time would hide an error that the user has not checked for yet.
    if (marks_.empty() || cudaPeekAtLastError() != cudaSuccess ||
        collecting_.test_and_set(std::memory_order_acquire))
      return;
    const std::uint64_t entered = entered_.load(std::memory_order_acquire);
    const std::uint64_t kept = marks_.size() - kBeside;
    if (entered > kept) seen_ = std::max(seen_, entered - kept);
    while (seen_ < entered && add(seen_)) ++seen_;
    collecting_.clear(std::memory_order_release);
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
  // One is being recorded, one is the beginning of the next span.
  static constexpr std::size_t kBeside = 2;

  struct Mark {
    Event asked{cudaEventDefault}, staged{cudaEventDefault}, copied{cudaEventDefault};
  };

  Mark& at(std::uint64_t batch) { return marks_[batch % marks_.size()]; }
  Mark& next() { return at(entered_.load(std::memory_order_relaxed)); }

  /// The first batch, which fills the pipeline, is not added; it begins the span of the second.
  bool add(std::uint64_t batch) noexcept {
    if (batch == 0) return elapsed(at(0).staged.get(), at(0).copied.get()).has_value();
    const Mark& mark = at(batch);
    return sums_.add(at(batch - 1).copied.get(), mark.asked.get(), mark.staged.get(),
                     mark.copied.get());
  }

  std::vector<Mark> marks_;
  std::atomic<std::uint64_t> entered_{0};
  std::atomic_flag collecting_;  // guards what follows
  std::uint64_t seen_ = 0;       // the first batch that was not added
  SpanSums sums_;
};

}  // namespace penstock::detail
