// SPDX-License-Identifier: Apache-2.0
#pragma once

// How long requests take: a histogram of fixed bounds for all, and one that forgets for each class
// of sizes.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <penstock/version.hpp>

#include "clock.hpp"

namespace penstock::inline PENSTOCK_ABI::remote {

/// Counts of durations. A bound is 2^(1/4) times the one before; the first is 50 microseconds, the
/// last 14 minutes. Any number of threads may use it.
class Histogram {
 public:
  void add(Clock::duration duration) noexcept;
  std::uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  /// The bound that this share of the durations is not above; nullopt: there are none.
  std::optional<Clock::duration> quantile(double share) const noexcept;
  /// Forgets half of each count.
  void halve() noexcept;

 private:
  std::array<std::atomic<std::uint32_t>, 97> counts_{};
  std::atomic<std::uint64_t> count_{0};
};

/// Any number of threads may use it.
class Latencies {
 public:
  void add(std::size_t bytes, Clock::duration duration) noexcept;
  /// Of all requests.
  const Histogram& all() const noexcept { return all_; }
  /// Of the last thousand or two of about this size; nullopt while there are fewer than 20.
  std::optional<Clock::duration> quantile(std::size_t bytes, double share) const noexcept;

 private:
  static std::size_t class_of(std::size_t bytes) noexcept;

  Histogram all_;
  std::mutex halving_;
  std::array<Histogram, 10> classes_;  // up to 64 KiB, 128 KiB, ..., 16 MiB, more
};

}  // namespace penstock::remote
