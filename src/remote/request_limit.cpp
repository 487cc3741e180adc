// SPDX-License-Identifier: Apache-2.0
#include "request_limit.hpp"

#include <algorithm>

namespace penstock::inline PENSTOCK_ABI::remote {
namespace {

constexpr int kFirstLimit = 16;
constexpr std::chrono::milliseconds kPeriod{500};
constexpr std::chrono::seconds kAfterThrottle{1};
constexpr double kWorthwhile = 1.05;
constexpr int kHold = 8;

}  // namespace

RequestLimit::RequestLimit(int most) : most_(most), limit_(std::min(most, kFirstLimit)) {}

bool RequestLimit::try_begin(Time now) noexcept {
  const std::lock_guard lock(mutex_);
  if (running_ >= limit_) return false;
  change_running(now, 1);
  return true;
}

void RequestLimit::begin_anyway(Time now) noexcept {
  const std::lock_guard lock(mutex_);
  change_running(now, 1);
}

void RequestLimit::change_running(Time now, int by) noexcept {
  times_ = times_until(now);
  changed_ = std::max(changed_, now);
  running_ += by;
}

RequestLimit::Times RequestLimit::times_until(Time now) const noexcept {
  if (running_ == 0 || now <= changed_) return times_;  // Threads read the clock before they lock.
  Times times = times_;
  times.running += running_ * (now - changed_);
  if (running_ >= limit_) times.full += now - changed_;
  return times;
}

RequestLimit::Times RequestLimit::times(Time now) const noexcept {
  const std::lock_guard lock(mutex_);
  return times_until(now);
}

void RequestLimit::end(Time now, std::size_t bytes, bool throttled) noexcept {
  const std::lock_guard lock(mutex_);
  reached_ = reached_ || running_ >= limit_;
  change_running(now, -1);
  if (throttled) {
    throttled_ = now;
    if (halved_ == Time{} || now - halved_ >= kAfterThrottle) {
      halved_ = now;
      limit_ = std::max(1, limit_ / 2);
      climbing_ = doubles_ = false;
      hold_ = kHold;
      begin_period(now);
    }
    return;
  }
  if (period_begin_ == Time{}) begin_period(now);
  period_bytes_ += bytes;
  ++period_ends_;
  if (period_ends_ >= limit_ && now - period_begin_ >= kPeriod) end_period(now);
}

void RequestLimit::end_period(Time now) noexcept {
  const double goodput = static_cast<double>(period_bytes_) /
                         std::chrono::duration<double>(now - period_begin_).count();
  const bool reached = reached_;
  begin_period(now);
  if (climbing_ && goodput < kWorthwhile * goodput_before_) {
    limit_ = before_climb_;
    climbing_ = doubles_ = false;
    hold_ = kHold;
    return;
  }
  climbing_ = false;
  if (hold_ > 0) {
    --hold_;
    return;
  }
  if (!reached || limit_ >= most_) return;
  climbing_ = true;
  before_climb_ = limit_;
  goodput_before_ = goodput;
  limit_ = std::min(most_, limit_ + (doubles_ ? limit_ : std::max(1, limit_ / 8)));
}

void RequestLimit::begin_period(Time now) noexcept {
  period_begin_ = now;
  period_bytes_ = 0;
  period_ends_ = 0;
  reached_ = false;
}

int RequestLimit::limit() const noexcept {
  const std::lock_guard lock(mutex_);
  return limit_;
}

bool RequestLimit::has_room() const noexcept {
  const std::lock_guard lock(mutex_);
  return running_ < limit_;
}

bool RequestLimit::throttled_lately(Time now) const noexcept {
  const std::lock_guard lock(mutex_);
  return throttled_ != Time{} && now - throttled_ < kAfterThrottle;
}

}  // namespace penstock::remote
