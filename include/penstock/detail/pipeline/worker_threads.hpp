// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerThreads: the threads of a producer's workers: start them, wait for them.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <penstock/detail/sync/event_count.hpp>
#include <penstock/detail/sync/owner_process.hpp>
#include <penstock/version.hpp>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

/// One thread at a time may call the members. Join or detach the threads before the destructor.
class WorkerThreads {
 public:
  /// Starts `count` threads that call `work(worker, stop)`, which throws nothing. If one cannot be
  /// started, those before it run; throws std::system_error, which says what to change.
  template <class Work>
  void start(std::size_t count, const std::stop_token& stop, Work work) {
    threads_.reserve(count);
    try {
      for (std::size_t i = 0; i < count; ++i) {
        running_.fetch_add(1, std::memory_order_relaxed);
        threads_.emplace_back([this, work, i, stop] {
          work(i, stop);
          running_.fetch_sub(1, std::memory_order_relaxed);
          ended_.notify_one();
        });
      }
    } catch (...) {
      running_.fetch_sub(1, std::memory_order_relaxed);  // The one that could not be started.
      try {
        throw;
      } catch (const std::system_error& error) {
        throw std::system_error(
            error.code(), "the thread of worker " + std::to_string(threads_.size()) + " of " +
                              std::to_string(count) +
                              " cannot be started: lower workers, or raise the limit on threads "
                              "(ulimit -u, pids.max)");
      }
    }
  }

  /// Waits until no more than `left` threads are at work. False: `patience` is over.
  bool wait_for_ends(std::chrono::seconds patience, int left = 0) {
    return ended_.wait_until(EventCount::Clock::now() + patience, [this, left] {
      return running_.load(std::memory_order_relaxed) <= left;
    });
  }

  /// Joins the threads: what they did is seen then.
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  /// Nobody joins the threads any more: this object has to live on for them.
  void detach() {
    for (std::thread& thread : threads_) thread.detach();
  }

  /// In a forked child there are no threads to join.
  void leak() noexcept { detail::leak(std::move(threads_)); }

 private:
  std::atomic<int> running_{0};
  EventCount ended_;
  std::vector<std::thread> threads_;
};

}  // namespace penstock::detail
