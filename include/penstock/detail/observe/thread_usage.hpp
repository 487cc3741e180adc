// SPDX-License-Identifier: Apache-2.0
#pragma once

// ThreadUsage: the CPU time of threads, the number of their reads from files, and the bytes that
// they read. The system counts these in any case, so the threads have no extra work.

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <optional>
#include <penstock/stats.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

inline long this_thread_id() {
  return ::syscall(SYS_gettid);
}

/// Parses the text of /proc/self/task/<thread>/io. Returns nullopt if the counts are missing.
inline std::optional<ReadCounts> parse_reads(const char* text) {
  unsigned long long bytes = 0, calls = 0;
  if (std::sscanf(text, "rchar: %llu wchar: %*u syscr: %llu", &bytes, &calls) != 2)
    return std::nullopt;
  return ReadCounts{.calls = calls, .bytes = bytes};
}

/// Returns the calls of read, pread and similar functions by a thread of this process since it
/// began. Returns nullopt if the system does not provide the counts or there is no such thread.
/// Does not allocate.
inline std::optional<ReadCounts> reads_of_thread(long thread) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), "/proc/self/task/%ld/io", thread);
  const int file = ::open(text.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  text.fill('\0');
  const ::ssize_t count = ::read(file, text.data(), text.size() - 1);
  ::close(file);
  return count > 0 ? parse_reads(text.data()) : std::nullopt;
}

/// Adds `counts` to `sum`. If either is unknown, the sum becomes unknown.
inline void add_known(std::optional<ReadCounts>& sum, const std::optional<ReadCounts>& counts) {
  if (!sum || !counts) {
    sum.reset();
    return;
  }
  sum->calls += counts->calls;
  sum->bytes += counts->bytes;
}

/// The sums over all threads that call start() and stop(), one thread after the other. Any thread
/// may read the sums at any time. Only a call of cpu() or reads() costs time: reads() takes some
/// microseconds, at most once in kPeriod. No result ever decreases.
class ThreadUsage {
 public:
  /// Call it on the thread itself when the thread begins.
  void start() {
    const std::lock_guard lock(mutex_);
    thread_ = this_thread_id();
    if (clockid_t clock{}; pthread_getcpuclockid(pthread_self(), &clock) == 0) clock_ = clock;
    looked_ = {};
  }
  /// Call it on the thread itself, before it ends.
  void stop() {
    const std::lock_guard lock(mutex_);
    ended_cpu_ += running_cpu();
    add_known(ended_reads_, reads_of_thread(thread_));
    clock_.reset();
    thread_ = kNone;
  }
  /// Returns 0 if the system does not provide the time.
  std::chrono::nanoseconds cpu() const {
    const std::lock_guard lock(mutex_);
    return ended_cpu_ + running_cpu();
  }
  /// nullopt: unknown.
  std::optional<ReadCounts> reads() const {
    const std::lock_guard lock(mutex_);
    std::optional<ReadCounts> sum = ended_reads_;
    if (thread_ == kNone) return sum;
    if (const auto now = Clock::now(); now - looked_ >= kPeriod) {
      running_reads_ = reads_of_thread(thread_);
      looked_ = now;
    }
    add_known(sum, running_reads_);
    return sum;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPeriod{10};
  static constexpr long kNone = -1;

  std::chrono::nanoseconds running_cpu() const {
    timespec now{};
    if (clock_) clock_gettime(*clock_, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }

  mutable std::mutex mutex_;
  long thread_ = kNone;                                   // the thread that runs
  std::optional<clockid_t> clock_;                        // the clock of its CPU time
  std::chrono::nanoseconds ended_cpu_{0};                 // of the threads that stopped
  std::optional<ReadCounts> ended_reads_ = ReadCounts{};  // the reads of these threads
  mutable std::optional<ReadCounts> running_reads_;       // of the thread that runs, as read at
                                                          // `looked_`
  mutable Clock::time_point looked_;
};

}  // namespace penstock::detail
