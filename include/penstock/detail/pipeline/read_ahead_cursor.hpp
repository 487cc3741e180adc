// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadAheadCursor: calls the functions of ReadAhead for the batches that come later, each once and
// in order, though many workers begin batches at the same time. Nobody waits: a worker that finds
// another one announcing leaves it to that one.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <penstock/any_sampler.hpp>
#include <penstock/detail/observe/worker_trace.hpp>
#include <penstock/detail/pipeline/batch_pace.hpp>
#include <penstock/read_ahead.hpp>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class ReadAheadCursor {
 public:
  /// `batch_size` is the most samples of a batch. Throws std::invalid_argument if it would announce
  /// without end.
  ReadAheadCursor(ReadAhead read_ahead, AnySampler sampler, std::size_t batch_size)
      : will_need_(std::move(read_ahead.will_need)),
        will_need_by_(std::move(read_ahead.will_need_by)),
        sampler_(std::move(sampler)),
        batches_(sampler_.batches()),
        ahead_(will_need_ || will_need_by_ ? std::min(read_ahead.batches, batches_) : 0) {
    if (ahead_ == 0) return;
    constexpr std::uint64_t kEndless = std::uint64_t{1} << 63;
    if (ahead_ >= kEndless)
      throw std::invalid_argument("read_ahead: batches is " + std::to_string(ahead_) +
                                  ", and the sampler's epoch has no end: name a number of batches "
                                  "that the storage can fetch ahead, such as 8");
    samples_.reserve(batch_size);
  }

  /// The next batch to be begun is `first`, the last one is before `end`. No worker may run.
  void restart(std::uint64_t first, std::uint64_t end) {
    next_ = wanted_ = first + 1;
    end_ = end;
    pace_.restart();
  }

  /// The worker that has begun this batch calls this with its `trace`. Returns early when stop is
  /// requested.
  void begun(std::uint64_t number, const std::stop_token& stop, WorkerTrace& trace) noexcept {
    if (ahead_ == 0) return;
    want(number + 1 + std::min(ahead_, end_ - (number + 1)));
    // All of these operations are sequentially consistent. A worker that raises wanted_ and finds
    // announcing_ set did so before it is cleared: the worker that clears it sees the new wanted_.
    while (next_ < wanted_ && !stop.stop_requested() && !announcing_.exchange(true)) {
      const WorkerTrace::Announcing announcing(trace, number);
      if (will_need_by_) pace_.begun(number, std::chrono::steady_clock::now());
      for (; next_ < wanted_ && !stop.stop_requested(); ++next_) announce(next_);
      announcing_ = false;
    }
  }

 private:
  void want(std::uint64_t end) noexcept {
    std::uint64_t wanted = wanted_;
    while (wanted < end && !wanted_.compare_exchange_weak(wanted, end)) {
    }
  }

  void announce(std::uint64_t number) noexcept try {
    samples_.clear();
    sampler_.samples(number / batches_, number % batches_, samples_);
    if (will_need_by_)
      will_need_by_(samples_, pace_.due(number));
    else
      will_need_(samples_);
  } catch (...) {  // A hint. What is wrong with the sampler is told at the batch itself.
  }

  const std::function<void(std::span<const std::uint64_t>)> will_need_;
  const std::function<void(std::span<const std::uint64_t>, BatchPace::Time)> will_need_by_;
  const AnySampler sampler_;
  const std::uint64_t batches_;  // of an epoch
  const std::uint64_t ahead_;    // an epoch at most
  std::uint64_t end_ = 0;
  std::atomic<std::uint64_t> next_{0};    // to be announced
  std::atomic<std::uint64_t> wanted_{0};  // what is before it is to be announced
  std::atomic<bool> announcing_{false};   // A worker is; what follows is that worker's.
  BatchPace pace_;                        // Whoever announces uses these.
  std::vector<std::uint64_t> samples_;
};

}  // namespace penstock::detail
