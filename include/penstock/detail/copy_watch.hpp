// SPDX-License-Identifier: Apache-2.0
#pragma once

// CopyWatch: marks where each copy begins and ends on the copy stream, and looks now and then at
// the oldest copy under way: does it run, does it wait for its slot's readers, is there none?
// Nothing here blocks; no clock of the device is read.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <penstock/cuda.hpp>
#include <penstock/detail/worker_trace.hpp>
#include <vector>

namespace penstock::detail {

class CopyWatch {
 public:
  /// At most `copies` are under way at a time, or have an end that somebody still has to wait for.
  explicit CopyWatch(std::size_t copies) : marks_(copies) {}

  /// Right before a copy and right after it, by the thread that issues copies. The end stays valid
  /// until `copies` more have begun.
  void begin(cudaStream_t stream) { next().begun.record(stream); }
  cudaEvent_t end(cudaStream_t stream) {
    Mark& mark = next();
    mark.copied.record(stream);
    issued_.fetch_add(1, std::memory_order_release);
    return mark.copied.get();
  }

  /// At the end of a lease, before that makes a new copy possible: a look right after a copy was
  /// issued would find it running whatever the bottleneck is. Any thread; skipped while another one
  /// looks. Costs two event queries, and one more for each copy that ended since.
  void look() noexcept {
    // A query would cover up an error that the user's own check has yet to see.
    if (cudaPeekAtLastError() != cudaSuccess || looking_.test_and_set(std::memory_order_acquire))
      return;
    const std::uint64_t issued = issued_.load(std::memory_order_acquire);
    if (issued > marks_.size()) oldest_ = std::max(oldest_, issued - marks_.size());
    while (oldest_ < issued && done(at(oldest_).copied)) ++oldest_;
    if (oldest_ == issued)
      add_alone(idle_, std::uint64_t{1});
    else
      add_alone(done(at(oldest_).begun) ? running_ : held_, std::uint64_t{1});
    looking_.clear(std::memory_order_release);
  }

  std::uint64_t issued() const { return issued_.load(std::memory_order_relaxed); }

  /// Parts of the looks that found the oldest copy running, held by its slot's readers, or none:
  /// sum 1.
  struct Shares {
    double running = 0, held = 0, idle = 1;
  };
  Shares shares() const {
    const auto running = static_cast<double>(running_.load(std::memory_order_relaxed));
    const auto held = static_cast<double>(held_.load(std::memory_order_relaxed));
    const double looks =
        running + held + static_cast<double>(idle_.load(std::memory_order_relaxed));
    if (looks == 0) return {};
    return {running / looks, held / looks, 1 - (running + held) / looks};
  }

 private:
  struct Mark {
    Event begun, copied;
  };

  Mark& at(std::uint64_t copy) { return marks_[copy % marks_.size()]; }
  Mark& next() { return at(issued_.load(std::memory_order_relaxed)); }
  static bool done(const Event& event) noexcept { return query(event.get()) == cudaSuccess; }

  std::vector<Mark> marks_;
  std::atomic<std::uint64_t> issued_{0};
  std::atomic_flag looking_;  // guards what follows
  std::uint64_t oldest_ = 0;  // the first copy that was not seen done
  std::atomic<std::uint64_t> running_{0}, held_{0}, idle_{0};
};

}  // namespace penstock::detail
