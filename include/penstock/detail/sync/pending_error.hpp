// SPDX-License-Identifier: Apache-2.0
#pragma once

// PendingError: an error for the consumer that stands for no batch. A later one takes its place.

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

namespace penstock::detail {

class PendingError {
 public:
  /// Any thread.
  void set(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    any_.store(true, std::memory_order_relaxed);
  }
  /// There is one. Any thread.
  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  /// It is not thrown any more. Takes the lock only where there is one.
  void clear() noexcept {
    if (any()) static_cast<void>(take());
  }
  /// Throws it, if there is one.
  void throw_error() {
    if (!any()) return;
    if (const std::exception_ptr error = take()) std::rethrow_exception(error);
  }

 private:
  std::exception_ptr take() noexcept {
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(error_, nullptr);
  }

  std::mutex mutex_;
  std::exception_ptr error_;
  std::atomic<bool> any_{false};  // Changed under the lock; looked at without.
};

}  // namespace penstock::detail
