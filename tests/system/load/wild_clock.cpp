// SPDX-License-Identifier: Apache-2.0

#include "wild_clock.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/time.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace penstock::test::wild_clock {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

// Plain words that need no constructor: the clock is read before main.
std::atomic<std::int64_t> offset{0};     // of CLOCK_MONOTONIC, in nanoseconds
std::atomic<std::int64_t> stands_at{0};  // 0: it goes
std::atomic<bool> realtime_jumps{false};
std::atomic<std::uint64_t> reads{0}, waits{0};

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::int64_t to_number(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}
timespec to_timespec(std::int64_t time) {
  return {time / kSecond, time % kSecond};
}

int system_clock(clockid_t clock, timespec* time) {
  static auto* const function = next<int(clockid_t, timespec*)>("clock_gettime");
  return function(clock, time);
}

std::int64_t system_time(clockid_t clock) {
  timespec time{};
  system_clock(clock, &time);
  return to_number(time);
}

std::int64_t monotonic(clockid_t clock) {
  const std::int64_t still = stands_at.load();
  return still != 0 ? still : system_time(clock) + offset.load();
}

/// Back and forth, by years.
std::int64_t realtime(clockid_t clock) {
  const std::uint64_t read = reads.fetch_add(1);
  const std::int64_t now = system_time(clock);
  if (!realtime_jumps.load()) return now;
  constexpr std::int64_t kYear = 31'557'600 * kSecond;
  return now + (static_cast<std::int64_t>(read * 7 % 11) - 5) * kYear;
}

}  // namespace

void make_realtime_jump() {
  realtime_jumps = true;
}
void leap(std::chrono::nanoseconds forward) {
  offset += forward.count();
}
void stand_still(bool still) {
  if (still) {
    stands_at = monotonic(CLOCK_MONOTONIC);
  } else {  // It goes on where it stood.
    offset = stands_at.load() - system_time(CLOCK_MONOTONIC);
    stands_at = 0;
  }
}
std::uint64_t realtime_reads() {
  return reads;
}
std::uint64_t realtime_waits() {
  return waits;
}

}  // namespace penstock::test::wild_clock

namespace wild = penstock::test::wild_clock;

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
      *time = wild::to_timespec(wild::realtime(clock));
      return 0;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
      *time = wild::to_timespec(wild::monotonic(clock));
      return 0;
    default:
      return wild::system_clock(clock, time);
  }
}

int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  const std::int64_t now = wild::realtime(CLOCK_REALTIME);
  *time = {now / wild::kSecond, now % wild::kSecond / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  const time_t now = wild::realtime(CLOCK_REALTIME) / wild::kSecond;
  if (result != nullptr) *result = now;
  return now;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* deadline) {
  static auto* const function =
      wild::next<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
  wild::waits.fetch_add(1);
  return function(condition, mutex, deadline);
}

/// By the clock above: for a millisecond at a time, with a spurious wake-up behind it.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  static auto* const function =
      wild::next<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
          "pthread_cond_clockwait");
  if (clock != CLOCK_MONOTONIC) {
    wild::waits.fetch_add(1);
    return function(condition, mutex, clock, deadline);
  }
  const std::int64_t left = wild::to_number(*deadline) - wild::monotonic(clock);
  if (left <= 0) return ETIMEDOUT;
  constexpr std::int64_t kMillisecond = 1'000'000;
  const timespec until = wild::to_timespec(wild::system_time(CLOCK_MONOTONIC) +
                                           (left < kMillisecond ? left : kMillisecond));
  const int result = function(condition, mutex, CLOCK_MONOTONIC, &until);
  if (result != ETIMEDOUT) return result;
  return wild::monotonic(clock) >= wild::to_number(*deadline) ? ETIMEDOUT : 0;
}

}  // extern "C"
