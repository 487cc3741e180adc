// SPDX-License-Identifier: Apache-2.0
#pragma once

// PendingError: an error for one call of the consumer that belongs to no batch. A later call never
// throws it.

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <penstock/version.hpp>
#include <utility>

namespace penstock::inline PENSTOCK_ABI::detail {

/// Calls have ascending numbers, from 1. Without a number, an error is for the next call.
class PendingError {
 public:
  static constexpr std::uint64_t kNextCall = 1;

  /// Stores an error for the call with this number. The first error for a call is kept. Any thread
  /// may call this.
  void set(std::uint64_t call, std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (call <= call_.load(std::memory_order_relaxed))
      return;  // this or a later call already has
               // an error
    error_ = std::move(error);
    call_.store(call, std::memory_order_relaxed);
  }
  void set(std::exception_ptr error) noexcept { set(kNextCall, std::move(error)); }
  /// Whether there is an error for this call. Any thread may call this.
  bool any(std::uint64_t call = kNextCall) const noexcept {
    return call_.load(std::memory_order_relaxed) == call;
  }
  /// Throws the error if there is one for this call.
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
  std::atomic<std::uint64_t> call_{0};  // written with the lock held, read without
};

}  // namespace penstock::detail
