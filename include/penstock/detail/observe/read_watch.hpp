// SPDX-License-Identifier: Apache-2.0
#pragma once

// ReadWatch: how often threads read from files, and how many bytes, as the system counts it anyway
// (/proc/self/task/<thread>/io). The threads themselves do nothing for it.

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <penstock/stats.hpp>
#include <string_view>
#include <system_error>

namespace penstock::detail {

inline long this_thread_id() {
  return ::syscall(SYS_gettid);
}

/// The number behind `name` in the lines of `text`; nullopt: there is none.
inline std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  const char* const begin = text.data() + at + name.size();
  if (std::from_chars(begin, text.data() + text.size(), number).ec != std::errc())
    return std::nullopt;
  return number;
}

/// The calls of read, pread and the like of a thread of this process since it began. nullopt: the
/// system does not tell, or there is no such thread. Does not allocate.
inline std::optional<ReadCounts> reads_of_thread(long thread) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/self/task/%ld/io", thread);
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 512> text;
  const ::ssize_t count = ::read(file, text.data(), text.size());
  ::close(file);
  if (count <= 0) return std::nullopt;
  const std::string_view lines(text.data(), static_cast<std::size_t>(count));
  const auto bytes = number_behind(lines, "rchar: "), calls = number_behind(lines, "syscr: ");
  if (!bytes || !calls) return std::nullopt;
  return ReadCounts{.calls = *calls, .bytes = *bytes};
}

/// sum += counts. What is unknown makes the sum unknown.
inline void add_known(std::optional<ReadCounts>& sum, const std::optional<ReadCounts>& counts) {
  if (!sum || !counts) {
    sum.reset();
    return;
  }
  sum->calls += counts->calls;
  sum->bytes += counts->bytes;
}

/// Of the threads that start and stop it, one after the other. Any thread reads it, also while they
/// run: only that costs anything, some microseconds at most once in kPeriod.
class ReadWatch {
 public:
  /// On the thread itself, which has read nothing yet.
  void start() {
    const std::lock_guard lock(mutex_);
    thread_ = this_thread_id();
    looked_ = {};
  }
  /// On the thread itself, before it ends.
  void stop() {
    const std::lock_guard lock(mutex_);
    add_known(ended_, reads_of_thread(thread_));
    thread_ = kNone;
  }
  /// nullopt: unknown.
  std::optional<ReadCounts> counts() const {
    const std::lock_guard lock(mutex_);
    std::optional<ReadCounts> sum = ended_;
    if (thread_ == kNone) return sum;
    if (const auto now = Clock::now(); now - looked_ >= kPeriod) {
      running_ = reads_of_thread(thread_);
      looked_ = now;
    }
    add_known(sum, running_);
    return sum;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPeriod{10};
  static constexpr long kNone = -1;

  mutable std::mutex mutex_;
  long thread_ = kNone;                             // the one that runs
  std::optional<ReadCounts> ended_ = ReadCounts{};  // of the threads that stopped
  mutable std::optional<ReadCounts> running_;       // of the one that runs, when `looked_` was
  mutable Clock::time_point looked_;
};

}  // namespace penstock::detail
