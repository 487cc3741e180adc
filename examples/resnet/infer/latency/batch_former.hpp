// SPDX-License-Identifier: Apache-2.0
#pragma once

// BatchFormer: which requests go together. A batch is closed when it is full, or when its oldest
// request has waited for the deadline, whatever there is then. No thread, no clock: whoever calls
// says what time it is, so that a test can say it too.
//
//   BatchFormer<Request> former(32, 2ms);
//   former.add(request, now);
//   if (former.close(now, batch)) run(batch);      // else there is nothing to close before
//   wait_until(*former.due());                     // this time, unless more requests come

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace resnet::latency {

using Clock = std::chrono::steady_clock;

/// One thread at a time.
template <class Request>
class BatchFormer {
 public:
  using Time = Clock::time_point;

  /// Throws std::invalid_argument for `max_batch` 0 or a deadline before the arrival.
  BatchFormer(std::size_t max_batch, Clock::duration deadline)
      : max_batch_(max_batch), deadline_(deadline) {
    if (max_batch == 0) throw std::invalid_argument("BatchFormer: batches of at most 0 requests");
    if (deadline < Clock::duration::zero())
      throw std::invalid_argument("BatchFormer: a deadline before the request");
  }

  /// `arrival` is not before those of earlier requests.
  void add(Request request, Time arrival) { waiting_.push_back({std::move(request), arrival}); }
  /// No requests come any more: what waits is due at once.
  void finish() { finished_ = true; }

  /// When a batch is to be closed, if nothing else comes: its oldest request's deadline, or that
  /// request's arrival where the batch is full. None: nothing waits.
  std::optional<Time> due() const {
    if (waiting_.empty()) return std::nullopt;
    const Time oldest = waiting_.front().arrival;
    return finished_ || waiting_.size() >= max_batch_ ? oldest : oldest + deadline_;
  }

  /// Where one is due at `now`: moves its requests, oldest first, to `batch`, in place of what was
  /// there. Else leaves `batch` alone.
  bool close(Time now, std::vector<Request>& batch) {
    const std::optional<Time> when = due();
    if (!when || now < *when) return false;
    batch.clear();
    for (; batch.size() < max_batch_ && !waiting_.empty(); waiting_.pop_front())
      batch.push_back(std::move(waiting_.front().request));
    return true;
  }

  std::size_t waiting() const { return waiting_.size(); }
  bool finished() const { return finished_; }

 private:
  struct Waiting {
    Request request;
    Time arrival;
  };

  std::size_t max_batch_;
  Clock::duration deadline_;
  std::deque<Waiting> waiting_;
  bool finished_ = false;
};

}  // namespace resnet::latency
