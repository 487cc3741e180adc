// SPDX-License-Identifier: Apache-2.0
#pragma once

// WorkerErrors: the workers that have no source, because it could not be made. The consumer is told
// of each once, and at every call if none is left.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <penstock/error.hpp>
#include <string>
#include <vector>

namespace penstock::inline PENSTOCK_ABI::detail {

class WorkerErrors {
 public:
  /// `workers`: of all.
  explicit WorkerErrors(std::size_t workers) : workers_(workers) {}

  /// For the worker `worker`, in the handler of what it has caught.
  void add(std::size_t worker) {
    const std::string why = what_is_handled();
    const std::lock_guard lock(mutex_);
    errors_.push_back(std::make_exception_ptr(WorkerError(static_cast<int>(worker), why)));
    lost_count_.fetch_add(1, std::memory_order_relaxed);
    unreported_.fetch_add(1, std::memory_order_relaxed);
  }

  /// There is a WorkerError to be thrown.
  bool has_error() const noexcept {
    return unreported_.load(std::memory_order_relaxed) > 0 || no_worker_left();
  }
  /// Throws it, if there is one.
  void throw_error() {
    if (!has_error()) return;
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      const std::size_t left = unreported_.load(std::memory_order_relaxed);
      if (left > 0) unreported_.fetch_sub(1, std::memory_order_relaxed);
      error = errors_[errors_.size() - std::max<std::size_t>(1, left)];
    }
    std::rethrow_exception(error);
  }

  /// No worker may run.
  void clear() {
    errors_.clear();
    lost_count_ = 0;
    unreported_ = 0;
  }

 private:
  bool no_worker_left() const noexcept {
    return lost_count_.load(std::memory_order_relaxed) == workers_;
  }

  const std::size_t workers_;
  std::mutex mutex_;
  std::vector<std::exception_ptr> errors_;
  // Changed under the lock; looked at without.
  std::atomic<std::size_t> lost_count_{0}, unreported_{0};
};

}  // namespace penstock::detail
