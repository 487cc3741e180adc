// SPDX-License-Identifier: Apache-2.0
#pragma once

// PendingError: an error for one call of the consumer, that stands for no batch. A later call never
// throws it.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

namespace penstock::detail {

/// Calls have numbers, from 1, that ascend; without numbers, an error is for the next call.
class PendingError {
 public:
  static constexpr std::uint64_t kNextCall = 1;

  /// For the call of this number; of several errors for it, the first. Any thread.
  void set(std::uint64_t call, std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (call <= call_.load(std::memory_order_relaxed)) return;  // A thread that comes late.
    error_ = std::move(error);
    call_.store(call, std::memory_order_relaxed);
  }
  void set(std::exception_ptr error) noexcept { set(kNextCall, std::move(error)); }
  /// There is one for this call. Any thread.
  bool any(std::uint64_t call = kNextCall) const noexcept {
    return call_.load(std::memory_order_relaxed) == call;
  }
  /// Throws it, if there is one for this call, which then ends.
  void throw_error(std::uint64_t call = kNextCall) {
    if (!any(call)) return;
    std::exception_ptr error;
    {
      const std::lock_guard lock(mutex_);
      error = std::exchange(error_, nullptr);
      call_.store(0, std::memory_order_relaxed);
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::atomic<std::uint64_t> call_{0};  // Changed under the lock; looked at without.
};

}  // namespace penstock::detail
