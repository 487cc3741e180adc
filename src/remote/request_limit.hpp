// SPDX-License-Identifier: Apache-2.0
#pragma once

// RequestLimit: how many requests may run at the same time, found from what they bring. The rule is
// in remote.hpp.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <penstock/version.hpp>

#include "clock.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// Any number of threads may use it.
class RequestLimit {
 public:
  explicit RequestLimit(int most);

  /// Sums since the beginning.
  struct Times {
    Clock::duration running{};  ///< of all requests together
    Clock::duration full{};     ///< in which as many requests ran as may
  };

  /// Counts a request that begins, unless as many run as may.
  bool try_begin(Time now) noexcept;
  /// Counts one that begins in any case.
  void begin_anyway(Time now) noexcept;
  /// A request has ended and brought `bytes`. `throttled`: by 429 or 503.
  void end(Time now, std::size_t bytes, bool throttled) noexcept;

  int limit() const noexcept;
  /// What the limit never goes beyond.
  int most() const noexcept { return most_; }
  Times times(Time now) const noexcept;
  /// Whether there is room for one more.
  bool has_room() const noexcept;
  /// Whether the last 429 or 503 came within a second before `now`.
  bool throttled_lately(Time now) const noexcept;

 private:
  void change_running(Time now, int by) noexcept;
  Times times_until(Time now) const noexcept;
  void end_period(Time now) noexcept;
  void begin_period(Time now) noexcept;

  mutable std::mutex mutex_;
  const int most_;
  int limit_, running_ = 0;
  Times times_;  // until changed_
  Time changed_{};
  bool reached_ = false;  // in this period
  bool doubles_ = true;   // the next rise doubles the limit
  Time period_begin_{};
  std::uint64_t period_bytes_ = 0;
  int period_ends_ = 0;
  bool climbing_ = false;      // the last period ended with a higher limit
  int before_climb_ = 0;       // the limit then
  double goodput_before_ = 0;  // bytes a second with it
  int hold_ = 0;               // periods for which the limit stays
  Time halved_{}, throttled_{};
};

}  // namespace penstock::remote
