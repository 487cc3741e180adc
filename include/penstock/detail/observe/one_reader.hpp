// SPDX-License-Identifier: Apache-2.0
#pragma once

// OneReader: any thread may ask for the times of events to be read; one at a time reads them, the
// others go on.

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>

namespace penstock::detail {

/// Any thread may call any member. What `read` changes belongs to the thread that is in it.
class OneReader {
 public:
  /// Calls `read`. Does nothing while another thread is in it, or while CUDA has an error that the
  /// user has not checked for yet: a query would replace it.
  template <class Read>
  void collect(Read read) noexcept {
    if (cudaPeekAtLastError() != cudaSuccess || reading_.test_and_set(std::memory_order_acquire))
      return;
    read();
    reading_.clear(std::memory_order_release);
  }
  /// The same, at most once in `period`.
  template <class Read>
  void sample(std::chrono::nanoseconds period, Read read) noexcept {
    const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
    if (now.count() - sampled_at_.load(std::memory_order_relaxed) < period.count()) return;
    sampled_at_.store(now.count(), std::memory_order_relaxed);
    collect(read);
  }

 private:
  std::atomic_flag reading_;
  std::atomic<std::chrono::nanoseconds::rep> sampled_at_{0};
};

}  // namespace penstock::detail
