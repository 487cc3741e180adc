// SPDX-License-Identifier: Apache-2.0
#pragma once

// RequestQueue: a BatchFormer between threads, in real time: clients push requests, contexts pop
// batches.
//
//   RequestQueue<Request> queue(32, 2ms);
//   queue.push({.number = 7, .arrival = Clock::now()});    // any thread
//   while (queue.pop(batch)) run(batch);          // each context's thread
//   queue.close();                                // no more will come; what waits is popped

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "batch_former.hpp"

namespace resnet::latency {

/// Any thread may call any member. A request has an `arrival`: from when on it waits, now or
/// before.
template <class Request>
class RequestQueue {
 public:
  /// Throws as BatchFormer's constructor does.
  RequestQueue(std::size_t max_batch, Clock::duration deadline) : former_(max_batch, deadline) {}

  /// Does not wait.
  void push(Request request) {
    {
      const std::lock_guard lock(mutex_);
      const Clock::time_point arrival = request.arrival;
      former_.add(std::move(request), arrival);
    }
    changed_.notify_all();
  }

  /// Waits until a batch is due. False: the queue is closed and empty.
  bool pop(std::vector<Request>& batch) {
    std::unique_lock lock(mutex_);
    while (!former_.close(Clock::now(), batch)) {
      if (const auto due = former_.due())
        changed_.wait_until(lock, *due);
      else if (former_.finished())
        return false;
      else
        changed_.wait(lock);
    }
    return true;
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      former_.finish();
    }
    changed_.notify_all();
  }

  std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return former_.waiting();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  BatchFormer<Request> former_;
};

}  // namespace resnet::latency
